//! Metrics of this server, gathered when somebody asks for them.

use super::Control;
use crate::clock;
use crate::metrics::{Exposition, Metric, add_process};
use crate::shard::BrickReport;
use cluster::{Brick, Set, State, Status, Volume};
use ids::BrickId;
use std::collections::HashMap;
use std::time::Duration;

impl Control {
    /// All metrics as text.
    pub(super) async fn metrics(&self) -> String {
        let (state, mut to) = (self.state(), Exposition::new());
        add_process(&mut to);
        self.add_server(&mut to, &state);
        to.add(Metric::Sessions, &[], self.sessions().await);
        let reports = self.reports().await;
        let clients = self.shared.metrics.clients.read(clock::now());
        for volume in state.volumes.values() {
            let started = u8::from(volume.status == Status::Started);
            to.add(Metric::VolumeStarted, &[&volume.name], started);
            for (client, times) in clients.get(&volume.id).into_iter().flatten() {
                to.add_times(Metric::ClientDuration, &[&volume.name, client], times);
            }
            for set in state.sets_of(volume) {
                self.add_set(&mut to, &state, (volume, set), &reports);
            }
        }
        to.text()
    }

    fn add_server(&self, to: &mut Exposition, state: &State) {
        let me = self.shared.me();
        let host = state.servers.get(&me).map_or("", |s| s.host.as_str());
        to.add(Metric::BuildInfo, &[env!("CARGO_PKG_VERSION")], 1);
        to.add(Metric::ServerInfo, &[&state.pool, &me.to_string(), host], 1);
        let crowd = self.shared.guests.crowd();
        to.add(Metric::Connections, &[], crowd.connections);
        to.add(Metric::Handshakes, &[], crowd.handshakes);
        to.add(Metric::Addresses, &[], crowd.addresses);
        for (reason, n) in self.shared.metrics.all_closed() {
            to.add(Metric::ConnectionsRefused, &[reason], n);
        }
        let until = self.shared.lease(state.version).unwrap_or(Duration::ZERO);
        to.add(Metric::Lease, &[], until.saturating_sub(clock::now()).as_secs_f64());
        to.add(Metric::PoolVersion, &[], state.version);
        to.add(Metric::PoolServers, &[], state.servers.len());
        to.add(Metric::PoolServersDown, &[], self.leases.down().len());
        to.add(Metric::PoolLeader, &[], u8::from(self.store().is_leader()));
        to.add(Metric::PoolHeard, &[], u8::from(self.leases.heard_of_leader()));
    }

    /// A set, as far as this server has to do with it.
    fn add_set(
        &self,
        to: &mut Exposition,
        state: &State,
        (volume, set): (&Volume, &Set),
        reports: &HashMap<BrickId, BrickReport>,
    ) {
        let me = self.shared.me();
        let number = set.name().to_string();
        let labels = [volume.name.as_str(), number.as_str()];
        // Once, also if two of its bricks are here.
        if set.bricks.iter().any(|b| b.server == me) {
            to.add(Metric::SetEpoch, &labels, set.view.epoch);
            to.add(Metric::SetLed, &labels, u8::from(set.view.primary.is_some()));
            to.add(Metric::SetBricks, &labels, set.bricks.len());
            to.add(Metric::SetInSync, &labels, set.view.in_sync.len());
        }
        for brick in set.bricks.iter().filter(|b| b.server == me) {
            add_brick(to, state, (volume, set, brick), reports.get(&brick.id));
        }
        let Some(counts) = self.shared.metrics.counts(set.id) else { return };
        for (operation, times) in &counts.times {
            to.add_times(Metric::RequestDuration, &[labels[0], labels[1], operation], times);
        }
        for (reason, n) in &counts.failures {
            to.add(Metric::RequestFailures, &[labels[0], labels[1], reason], n);
        }
        to.add(Metric::ReadBytes, &labels, counts.read);
        to.add(Metric::WrittenBytes, &labels, counts.written);
        to.add(Metric::LongSteps, &labels, counts.long_steps);
    }
}

fn add_brick(
    to: &mut Exposition,
    state: &State,
    (volume, set, brick): (&Volume, &Set, &Brick),
    report: Option<&BrickReport>,
) {
    let (number, name) = (set.name().to_string(), state.brick_name(brick));
    let labels = [volume.name.as_str(), number.as_str(), name.as_str()];
    let up = report.is_some_and(|r| r.role != replica::Role::Failed);
    to.add(Metric::BrickUp, &labels, u8::from(up));
    to.add(Metric::BrickInSync, &labels, u8::from(set.view.in_sync.contains(&brick.id)));
    let Some(r) = report else { return };
    let leads = r.role == replica::Role::Primary;
    to.add(Metric::BrickPrimary, &labels, u8::from(leads));
    to.add(Metric::BrickFree, &labels, r.free);
    to.add(Metric::BrickSize, &labels, r.total);
    to.add(Metric::BrickLsn, &labels, r.lsn);
    to.add(Metric::BrickUnsynced, &labels, r.lsn.0.saturating_sub(r.durable.0));
    to.add(Metric::JournalBytes, &labels, r.journal);
    if let Some(heal) = &r.heal {
        to.add(Metric::HealDone, &labels, heal.done);
        to.add(Metric::HealLeft, &labels, heal.total.saturating_sub(heal.done));
        to.add(Metric::HealBytes, &labels, heal.bytes);
        to.add(Metric::HealSeconds, &labels, heal.seconds);
    }
    let of_set = [labels[0], labels[1]];
    to.add(Metric::QueueWaiting, &of_set, r.queues.waiting);
    to.add(Metric::QueueDisk, &of_set, r.queues.disk);
    to.add(Metric::QueueAsked, &of_set, r.queues.asked);
    to.add(Metric::QueuePeers, &of_set, r.queued);
    if leads {
        to.add(Metric::OpenFiles, &of_set, r.queues.open_files);
        to.add(Metric::MovedFiles, &of_set, r.moved.files);
        to.add(Metric::MovedBytes, &of_set, r.moved.bytes);
        to.add(Metric::MovedDirectories, &of_set, r.moved.directories);
    }
}

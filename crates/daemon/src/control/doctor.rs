//! `mortar doctor`: what servers say of themselves, and what is known of the pool.

use super::Control;
use super::brick_warnings::memory_file_system;
use super::protocol::{ClusterReply, ClusterRequest};
use super::status::join_all;
use crate::clock;
use crate::findings::{self, BrickHealth, DiskHealth, Health, Heard};
use crate::limits::STATUS_WAIT;
use crate::shared::lock;
use admin::{AdminError, DoctorReport, Finding, ServerRole};
use cluster::{Server, State, Status};
use rustix::fs::StatFs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A disk that does not answer within this time hangs.
const LOOK: Duration = Duration::from_secs(1);

impl Control {
    /// What this server says of itself.
    pub(super) async fn own_health(&self) -> Health {
        let (state, me) = (self.state(), self.shared.me());
        let errors = lock(&self.shared.brick_errors).clone();
        let mut bricks = Vec::new();
        for set in state.sets.values() {
            let Some(volume) = state.volumes.get(&set.volume) else { continue };
            for b in set.bricks.iter().filter(|b| b.server == me) {
                let serves = volume.status == Status::Started;
                let error = errors.get(&b.id).filter(|_| serves).cloned();
                let (name, path) = (state.brick_name(b), PathBuf::from(&b.path));
                bricks.push(async move {
                    let disk = self.looks.at(path, LOOK, disk).await.flatten();
                    BrickHealth { name, volume: volume.name.clone(), error, disk }
                });
            }
        }
        let bricks = join_all(bricks.into_iter()).await;
        let state_free = stat(self.folder.path()).map_or(u64::MAX, |s| room(&s).0);
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let open = std::fs::read_dir("/proc/self/fd").map_or(0, |all| all.count() as u64);
        Health {
            program: env!("CARGO_PKG_VERSION").to_owned(),
            clock_us: clock_us(),
            open_files: open,
            most_files: limit.unwrap_or(u64::MAX),
            state_free,
            bricks,
        }
    }

    pub(super) async fn doctor(&self) -> Result<DoctorReport, AdminError> {
        let state = self.state();
        let mut report = DoctorReport::default();
        let asked = state.servers.values().map(|server| async move { (server, self.hear(server).await) });
        for (server, heard) in join_all(asked).await {
            report.checked.push(format!(
                "{}: reached, version, clock, descriptors, state folder, bricks",
                findings::server_named(&server.host)
            ));
            match heard {
                Ok(heard) => report.findings.extend(findings::of_server(&heard, env!("CARGO_PKG_VERSION"))),
                Err(why) => report.findings.push(findings::error(
                    &findings::server_named(&server.host),
                    format!("it does not answer: {why}"),
                    "start it and look at its log; if it is gone for good: mortar peer replace",
                )),
            }
        }
        report.checked.push("pool: agreement, voters".to_owned());
        report.findings.extend(self.of_pool(&state).await);
        for volume in state.volumes.values() {
            report.checked.push(format!("volume {}: views, healing", volume.name));
            if volume.status == Status::Started {
                report.findings.extend(of_views(&state, volume));
            }
        }
        report.findings.sort_by_key(|f| f.severity);
        Ok(report)
    }

    async fn hear(&self, server: &Server) -> Result<Heard, String> {
        let before = clock_us();
        let asked = self.ask_cluster(&server.address, ClusterRequest::Health);
        let answer = tokio::time::timeout(STATUS_WAIT, asked).await;
        let after = clock_us();
        match answer {
            Ok(Ok(ClusterReply::Health(health))) => {
                // Its clock was read last of all.
                let error_us = after.saturating_sub(before);
                Ok(Heard { host: server.host.clone(), health, clock_us: after, error_us })
            }
            Ok(Ok(_)) => Err("an unexpected answer".to_owned()),
            Ok(Err(e)) => Err(e.to_string()),
            Err(_) => Err("no answer in time".to_owned()),
        }
    }

    async fn of_pool(&self, state: &State) -> Vec<Finding> {
        let mut all = Vec::new();
        if self.linearizable().await.is_err() {
            let voters = self.peers().iter().filter(|p| p.role == ServerRole::Voter).count();
            all.push(findings::error(
                "pool",
                format!("no majority of its {voters} voters answers: nothing can be changed"),
                "start the servers that are down; if most are gone for good: mortar pool recover on the last one",
            ));
        }
        let notes = state.pool_notes().into_iter();
        all.extend(notes.map(|note| findings::warning("pool", note, "see mortar peer status")));
        all
    }
}

/// What the pool has agreed on about the bricks of a started volume.
fn of_views(state: &State, volume: &cluster::Volume) -> Vec<Finding> {
    let mut all = Vec::new();
    for set in state.sets_of(volume) {
        let object = state.named_set(set).to_string();
        if set.view.primary.is_none() {
            all.push(findings::error(&object, "it serves nobody".to_owned(), "see mortar volume status"));
            continue;
        }
        let out: Vec<String> = set
            .bricks
            .iter()
            .filter(|b| !set.view.in_sync.contains(&b.id))
            .map(|b| state.brick_name(b))
            .collect();
        if !out.is_empty() {
            let cause = format!("not in sync: {}", out.join(", "));
            all.push(findings::warning(
                &object,
                cause,
                "it heals when its server is up: see mortar volume heal VOL info",
            ));
        }
    }
    all
}

fn disk(path: &Path) -> Option<DiskHealth> {
    let s = stat(path)?;
    let (free, total) = room(&s);
    Some(DiskHealth {
        free,
        total,
        files_free: s.f_ffree,
        files: s.f_files,
        in_memory: memory_file_system(&s).is_some(),
        is_root: brick::mount_point(path).is_ok_and(|mount| mount == Path::new("/")),
    })
}

fn stat(path: &Path) -> Option<StatFs> {
    rustix::fs::statfs(path).ok()
}

/// Bytes free for users, and in all.
fn room(s: &StatFs) -> (u64, u64) {
    let unit = u64::try_from(s.f_bsize).unwrap_or(4096);
    (s.f_bavail.saturating_mul(unit), s.f_blocks.saturating_mul(unit))
}

fn clock_us() -> u64 {
    u64::try_from(clock::unix_time().as_micros()).unwrap_or(u64::MAX)
}

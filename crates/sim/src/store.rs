//! The model of the pool store: one copy of the pool's state that takes the real commands (crate `cluster`), and the leader's
//! real record of who lives.

use crate::client::ToClient;
use crate::log::say;
use crate::server::ToServer;
use crate::world::{Event, SetPlan, World, brick_id, server_of, set_id};
use crate::{Config, Mutant};
use cluster::liveness::{Input, Liveness, Output};
use cluster::{Command, State, ViewChange};
use core::time::Duration;
use ids::{BrickId, Epoch, ServerId, VolumeId};
use replica::{Proposal, View};
use std::collections::BTreeMap;

/// How long a lease lasts, from the moment it is asked for, on the server's clock.
pub(crate) const LEASE: Duration = cluster::liveness::LEASE;
/// A proposal is tried for so long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// A server says that it lives.
pub(crate) struct Renewal {
    pub(crate) server: usize,
    pub(crate) inc: u32,
    /// Until when the lease will hold, on its clock.
    pub(crate) lease: Duration,
}

pub(crate) enum ToStore {
    Renew(Renewal),
    Propose { set: usize, server: usize, until: Duration, proposal: Proposal },
    Suspect(usize),
    Ask { client: usize },
}

pub(crate) struct Store {
    state: State,
    liveness: Liveness,
    pub(crate) views: Vec<View>,
    /// It has no leader: nothing is heard or said.
    pub(crate) down: bool,
}

fn server_id(s: usize) -> ServerId {
    ServerId(s as u64 + 1)
}

impl Store {
    pub(crate) fn new(sets: &[SetPlan], views: Vec<View>, servers: usize, config: &Config) -> Store {
        let mut state = State { pool: "simulated".to_owned(), ..State::default() };
        for s in 0..servers {
            let id = server_id(s);
            let (identity, host) = (s.to_string(), s.to_string());
            let (address, role, lost) = (String::new(), cluster::Role::Voter, false);
            state.servers.insert(id, cluster::Server { id, identity, host, address, role, lost });
        }
        for (i, (plan, view)) in sets.iter().zip(&views).enumerate() {
            let brick = |s: &usize| {
                let id = brick_id(i, *s);
                cluster::Brick {
                    id,
                    server: server_id(*s),
                    path: format!("/{i}"),
                    arbiter: plan.arbiters.contains(&id),
                    mount: String::new(),
                }
            };
            let bricks = plan.servers.iter().map(brick).collect();
            let (id, volume) = (set_id(i), VolumeId(set_id(i).0));
            let view =
                cluster::View { epoch: view.epoch, primary: view.primary, in_sync: view.in_sync.clone() };
            state.sets.insert(id, cluster::Set { id, volume, bricks, view, lost_before: Epoch(0) });
            let of = cluster::Volume {
                id: volume,
                name: i.to_string(),
                status: cluster::Status::Started,
                replica: u32::try_from(plan.servers.len()).unwrap_or(0),
                arbiter: u32::try_from(plan.arbiters.len()).unwrap_or(0),
                sets: vec![id],
                options: BTreeMap::new(),
                created: 0,
            };
            state.volumes.insert(volume, of);
        }
        state.next_server = server_id(servers);
        state.next_set = set_id(sets.len());
        state.next_volume = VolumeId(set_id(sets.len()).0);
        state.next_brick = brick_id(sets.len(), 0);
        let mut liveness = Liveness::default();
        let all = (0..servers).map(server_id).collect();
        let hasty = config.mutant == Mutant::HastyStore;
        for input in [Input::Servers(all), Input::BecameLeader] {
            liveness.step(Duration::ZERO, input, &mut Vec::new());
        }
        if hasty {
            liveness.step(Duration::ZERO, Input::Lease(LEASE / 4), &mut Vec::new());
        }
        Store { state, liveness, views, down: false }
    }

    /// A new leader gives everybody the time to be heard.
    pub(crate) fn up(&mut self, now: Duration) {
        self.down = false;
        self.liveness.step(now, Input::BecameLeader, &mut Vec::new());
    }

    /// It has no leader from now on.
    pub(crate) fn fall(&mut self, now: Duration) {
        self.down = true;
        self.liveness.step(now, Input::LostLeadership, &mut Vec::new());
    }

    fn view(&self, set: usize) -> Option<View> {
        let known = self.views.get(set)?;
        let set = self.state.sets.get(&set_id(set))?;
        let (now, lost_before) = (&set.view, set.lost_before);
        let (epoch, primary, in_sync) = (now.epoch, now.primary, now.in_sync.clone());
        Some(View { epoch, primary, in_sync, lost_before, ..known.clone() })
    }
}

impl World {
    pub(crate) fn send_store(&mut self, s: usize, what: ToStore) {
        if self.servers[s].cut && !matches!(what, ToStore::Propose { .. }) {
            return;
        }
        let mut delay = self.rng.millis(1, 30) + self.servers[s].slow;
        if matches!(what, ToStore::Propose { .. }) && self.rng.chance(self.pace.late) {
            delay += self.rng.millis(100, 8000);
        }
        self.after(delay, Event::Store(what));
    }

    pub(crate) fn on_store(&mut self, what: ToStore) {
        match what {
            ToStore::Propose { set, server, until, proposal } => {
                if self.store.down || self.servers[server].cut {
                    if self.now < until {
                        let what = ToStore::Propose { set, server, until, proposal };
                        self.after(Duration::from_millis(200), Event::Store(what));
                    }
                } else {
                    self.propose(set, proposal);
                }
            }
            _ if self.store.down => {}
            ToStore::Renew(renewal) => self.renew(renewal),
            // The leader looks for itself.
            ToStore::Suspect(s) => {
                if !self.servers[s].alive && self.servers[s].refuses {
                    self.command(&Command::ServerDown { server: server_id(s) }, "its port is closed");
                }
            }
            ToStore::Ask { client } => {
                let delay = self.rng.millis(1, 20);
                let what = ToClient::Views(self.store.views.clone());
                self.after(delay, Event::Client { client, what });
            }
        }
    }

    fn renew(&mut self, r: Renewal) {
        if self.servers[r.server].inc != r.inc || self.servers[r.server].cut {
            return;
        }
        let mut out = Vec::new();
        self.store.liveness.step(self.now, Input::Heartbeat(server_id(r.server)), &mut out);
        if !out.contains(&Output::Renew(server_id(r.server))) {
            return;
        }
        let mine = |v: &usize| self.servers[r.server].bricks.contains_key(v);
        let views = self.store.views.iter().cloned().enumerate().filter(|(i, _)| mine(i)).collect();
        let what = ToServer::Granted { views, lease: r.lease };
        let delay = self.rng.millis(1, 30) + self.servers[r.server].slow;
        self.after(delay, Event::Server { server: r.server, inc: r.inc, what });
    }

    fn propose(&mut self, set: usize, p: Proposal) {
        let change = ViewChange {
            set: set_id(set),
            expect_epoch: p.expect,
            primary: p.primary,
            in_sync: p.in_sync,
            healed: p.healed.into_iter().collect(),
            lost: p.lost,
            reason: p.reason.to_owned(),
        };
        self.command(&Command::ChangeView(change), p.reason);
    }

    /// The store carries a command out, or refuses it.
    fn command(&mut self, command: &Command, why: &str) {
        if let Err(e) = self.store.state.apply(command) {
            say!(self, "refused: {command:?}: {e}");
            return;
        }
        for set in 0..self.sets.len() {
            let view = self.store.view(set).filter(|v| *v != self.store.views[set]);
            if let Some(view) = view {
                self.agree(set, view, why);
            }
        }
    }

    /// The store has agreed on a view and tells everybody.
    fn agree(&mut self, set: usize, view: View, why: &str) {
        say!(
            self,
            "set {set}: epoch {} primary {:?} in sync {:?}: {why}",
            view.epoch,
            view.primary,
            view.in_sync
        );
        let old = core::mem::replace(&mut self.store.views[set], view.clone());
        if let Some(what) = self.checks.views.agreed(&old, &view) {
            self.fail(|| what);
        }
        self.excuse(set);
        for s in 0..self.servers.len() {
            let server = &self.servers[s];
            if server.alive && !server.cut && server.bricks.contains_key(&set) {
                let inc = server.inc;
                let delay = self.rng.millis(1, 60) + self.servers[s].slow;
                let what = ToServer::View(set, view.clone());
                self.after(delay, Event::Server { server: s, inc, what });
            }
        }
        for client in 0..self.clients.len() {
            let delay = self.rng.millis(1, 100);
            self.after(delay, Event::Client { client, what: ToClient::View(set, view.clone()) });
        }
    }

    /// If no brick in sync came through whole, what was acknowledged may be lost; what was synced may not.
    pub(crate) fn excuse(&mut self, set: usize) {
        let view = &self.store.views[set];
        let whole = |b: &&BrickId| !self.servers[server_of(**b)].bricks[&set].torn;
        if !view.in_sync.iter().filter(|b| !view.arbiters.contains(b)).any(|b| whole(&b))
            && self.checks.excused.insert(set)
        {
            say!(self, "set {set}: every brick in sync has been through a power cut");
            *self.faults.counts.entry("power cut of a whole set").or_default() += 1;
        }
    }

    pub(crate) fn store_tick(&mut self) {
        self.after(Duration::from_millis(100), Event::StoreTick);
        let mut out = Vec::new();
        self.store.liveness.step(self.now, Input::Tick, &mut out);
        for o in out {
            if let Output::Down(server) = o {
                self.command(&Command::ServerDown { server }, "its lease ran out");
            }
        }
    }
}

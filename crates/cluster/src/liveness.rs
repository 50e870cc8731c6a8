//! The failure detector for servers: the leases that they hold from the leader of the pool store. Works on durations,
//! without clocks.
//!
//! Always true: before [`Liveness`] calls a server down, that server's own [`ServerLease`] has run out.
//! This rests on four rules. A server counts from when it *sent* the heartbeat, the leader from when it arrived. A
//! new leader waits a full lease before it calls anybody down, since its predecessor may have renewed until just
//! before. A lease that was given before the option was lowered counts with its own length and its own margin, also for a
//! leader that did not give it itself; a process that starts anew learns from the pool's state how long leases may have
//! been. And a leader answers a heartbeat only after it made sure, since the heartbeat arrived, that it still leads
//! (`ConfigStore::confirm_leader`): one answer of a deposed leader would break the second rule.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use ids::ServerId;

/// How often a server renews its lease.
pub const HEARTBEAT: Duration = Duration::from_millis(500);
/// How long a lease lasts unless network.ping-timeout says otherwise.
pub const LEASE: Duration = Duration::from_secs(3);

/// What happens to the leader's record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Input {
    /// This server leads now.
    BecameLeader,
    /// It does not any more.
    LostLeadership,
    /// The pool's servers, this one left out: it cannot miss itself.
    Servers(BTreeSet<ServerId>),
    /// The lease is that long from now on.
    Lease(Duration),
    /// A heartbeat came in.
    Heartbeat(ServerId),
    /// One server says that it cannot reach another.
    Suspect {
        /// Who says so.
        by: ServerId,
        /// Whom it cannot reach.
        server: ServerId,
    },
    /// Time went by.
    Tick,
}

/// What the leader has to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// Answer the heartbeat (after making sure of the leadership): the lease is renewed.
    Renew(ServerId),
    /// Answer the heartbeat without renewing: half of the others cannot reach it.
    Deny(ServerId),
    /// Its lease ran out: propose `ServerDown`, and report it to the store.
    Down(ServerId),
    /// It was down and is heard again.
    Up(ServerId),
}

#[derive(Debug)]
struct Watched {
    renewed: Duration,
    /// A lease of an earlier, longer length may hold until then.
    held_until: Duration,
    down: bool,
    suspected_by: BTreeMap<ServerId, Duration>,
}

impl Watched {
    fn new(now: Duration) -> Watched {
        Watched { renewed: now, held_until: Duration::ZERO, down: false, suspected_by: BTreeMap::new() }
    }
}

/// A little more than a lease: clocks of two machines do not run at the same speed.
fn with_margin(lease: Duration) -> Duration {
    lease + lease / 16
}

/// The leader's record of all other servers. `now` is any monotonic clock that runs through suspension.
#[derive(Debug)]
pub struct Liveness {
    lease: Duration,
    /// Leases of earlier, longer lengths may hold until then, whoever gave them.
    longer_until: Duration,
    leading: bool,
    servers: BTreeMap<ServerId, Watched>,
}

impl Default for Liveness {
    fn default() -> Liveness {
        Liveness { lease: LEASE, longer_until: Duration::ZERO, leading: false, servers: BTreeMap::new() }
    }
}

impl Liveness {
    /// Takes one input at `now`; appends what is to be done.
    pub fn step(&mut self, now: Duration, input: Input, out: &mut Vec<Output>) {
        match input {
            Input::BecameLeader => self.lead(now),
            Input::LostLeadership => self.leading = false,
            Input::Servers(servers) => self.set_servers(now, servers),
            Input::Lease(lease) => self.set_lease(now, lease),
            Input::Heartbeat(server) => self.on_heartbeat(now, server, out),
            Input::Suspect { by, server } => self.on_suspect(now, by, server),
            Input::Tick => self.on_tick(now, out),
        }
    }

    /// The servers whose leases ran out.
    pub fn down(&self) -> BTreeSet<ServerId> {
        self.servers.iter().filter(|(_, w)| w.down).map(|(id, _)| *id).collect()
    }

    /// How long ago a server renewed its lease.
    pub fn silent_for(&self, now: Duration, server: ServerId) -> Option<Duration> {
        self.servers.get(&server).map(|w| now.saturating_sub(w.renewed))
    }

    fn lease_with_margin(&self) -> Duration {
        with_margin(self.lease)
    }

    fn lead(&mut self, now: Duration) {
        self.leading = true;
        for watched in self.servers.values_mut() {
            *watched = Watched { held_until: self.longer_until, ..Watched::new(now) };
        }
    }

    fn set_servers(&mut self, now: Duration, servers: BTreeSet<ServerId>) {
        self.servers.retain(|id, _| servers.contains(id));
        for id in servers {
            self.servers.entry(id).or_insert_with(|| Watched::new(now));
        }
    }

    /// Leases given so far keep their length. Those that this leader gave are counted from their renewals; those that
    /// another one gave, from now on: it gave none of that length after it knew of the change.
    fn set_lease(&mut self, now: Duration, lease: Duration) {
        if lease < self.lease {
            let longer = self.lease_with_margin();
            self.longer_until = self.longer_until.max(now + longer);
            for watched in self.servers.values_mut().filter(|w| !w.down) {
                watched.held_until = watched.held_until.max(watched.renewed + longer);
            }
        }
        self.lease = lease;
    }

    fn on_heartbeat(&mut self, now: Duration, server: ServerId, out: &mut Vec<Output>) {
        if !self.leading || !self.servers.contains_key(&server) {
            return;
        }
        if self.is_cut_off(now, server) {
            out.push(Output::Deny(server));
            return;
        }
        if let Some(watched) = self.servers.get_mut(&server) {
            watched.renewed = watched.renewed.max(now);
            if std::mem::take(&mut watched.down) {
                out.push(Output::Up(server));
            }
            out.push(Output::Renew(server));
        }
    }

    fn on_suspect(&mut self, now: Duration, by: ServerId, server: ServerId) {
        if by == server {
            return;
        }
        if let Some(watched) = self.servers.get_mut(&server) {
            watched.suspected_by.insert(by, now);
        }
    }

    /// Whether at least two others, and half of the live ones, said lately that they cannot reach it.
    fn is_cut_off(&self, now: Duration, server: ServerId) -> bool {
        let Some(watched) = self.servers.get(&server) else { return false };
        let live = |id: &ServerId| self.servers.get(id).is_some_and(|w| !w.down);
        let lately = |at: &Duration| now.saturating_sub(*at) < self.lease;
        let voices = watched.suspected_by.iter().filter(|(id, at)| live(id) && lately(at)).count();
        let others = self.servers.iter().filter(|(id, w)| **id != server && !w.down).count();
        voices >= 2 && voices * 2 >= others
    }

    fn on_tick(&mut self, now: Duration, out: &mut Vec<Output>) {
        if !self.leading {
            return;
        }
        let lease_with_margin = self.lease_with_margin();
        for (id, watched) in &mut self.servers {
            if !watched.down && now > watched.held_until.max(watched.renewed + lease_with_margin) {
                watched.down = true;
                out.push(Output::Down(*id));
            }
        }
    }
}

/// A server's own side: until when it may act as a primary.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ServerLease {
    until: Option<Duration>,
}

impl ServerLease {
    /// The leader renewed; `sent` is when the heartbeat it answered was sent, `lease` what the answer granted.
    pub fn renewed(&mut self, sent: Duration, lease: Duration) {
        self.until = self.until.max(Some(sent + lease));
    }

    /// Whether it may act. Ask after the work and before the answer.
    pub fn is_valid(&self, now: Duration) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    /// How long it still may; zero: not any more.
    pub fn remaining(&self, now: Duration) -> Duration {
        self.until.unwrap_or_default().saturating_sub(now)
    }

    /// Gives it up, for instance because the server was taken out of the pool.
    pub fn drop_now(&mut self) {
        self.until = None;
    }
}

#[cfg(test)]
#[path = "liveness_tests.rs"]
mod tests;

//! Leases: each server's right to answer, renewed by heartbeats to the leader of the pool's store.
//!
//! Always true: a lease is counted from when its heartbeat was sent, and is worth something only to those who know the
//! pool's state of its version: somebody who knows less might act in a view that is over. Who is alive is decided in
//! [`cluster::liveness`].

use cluster::State;
use cluster::liveness::{HEARTBEAT, Input, Liveness, Output};
use ids::ServerId;
use std::collections::BTreeSet;
use std::time::Duration;

/// A server's right to answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Lease {
    /// Until then.
    pub until: Duration,
    /// The version of the pool's state that whoever uses it must know.
    pub version: u64,
}

impl Lease {
    /// Until when somebody may answer who knows the pool's state of that version; `None`: he knows too little.
    pub fn of(self, known: u64) -> Option<Duration> {
        (known >= self.version).then_some(self.until)
    }
}

/// The leader's answer to a heartbeat.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grant {
    /// Whether the lease is renewed.
    pub renewed: bool,
    /// For how long from the sending of the heartbeat.
    pub length: Duration,
    /// The version of the pool's state that the server has to know.
    pub version: u64,
}

impl Grant {
    /// The lease of a server whose heartbeat was sent then and which knows the pool's state of that version.
    pub fn lease(self, sent: Duration, known: u64) -> Option<Lease> {
        let counts = self.renewed && known >= self.version;
        counts.then(|| Lease { until: sent + self.length, version: self.version })
    }
}

/// How long a server waits before its next heartbeat. A change of the leader ends the wait.
pub fn next_beat(renewed: bool) -> Duration {
    if renewed { HEARTBEAT } else { HEARTBEAT / 5 }
}

/// How often a leader looks for leases that ran out.
pub fn next_judging() -> Duration {
    HEARTBEAT / 5
}

/// What the leader makes of a heartbeat.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Heard {
    /// The pool knows another server by that number, or none.
    Stranger,
    /// The lease is not renewed.
    Denied,
    /// The server lives, also if it was declared down by its port before its lease ran out. Now the leader makes certain
    /// that it leads, and which state was agreed on, before it answers.
    Confirm,
}

/// What a look at all servers has shown.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Judged {
    /// Another leader's term has begun: what was reported of servers does not count.
    pub forget_reports: bool,
    /// Their leases ran out: they leave all views. Said again until it is decided.
    pub down: Vec<ServerId>,
}

/// The leadership of the pool's store, as this server sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Leadership {
    /// This server.
    pub me: ServerId,
    /// It leads.
    pub leads: bool,
    /// Somebody else may have led, and renewed leases, since the last look.
    pub changed: bool,
}

/// The leader's side: gives leases to the other servers, and notices when they run out.
///
/// Always true: whoever the pool is about to agree is down holds no lease, and gets none before that is decided. A proposal
/// may take long, and one that got no answer may still be agreed on, but not after another leader's term has begun.
#[derive(Debug, Default)]
pub struct LeaseGiver {
    liveness: Liveness,
    led: bool,
    /// The longest lease that was waited for, or is in force.
    longest: Duration,
    declared: BTreeSet<ServerId>,
}

impl LeaseGiver {
    /// A process or a store begins: what was before counts no more. An earlier process may have seen longer leases given
    /// just before it ended.
    pub fn begin(&mut self, now: Duration, state: &State) {
        self.led = false;
        self.declared.clear();
        let mut out = Vec::new();
        self.liveness.step(now, Input::LostLeadership, &mut out);
        self.longest = Duration::ZERO;
        self.learn_lengths(now, state);
    }

    /// A state that comes after others that this server did not see, as it was cut off, may tell of leases that were longer
    /// meanwhile: another leader may have given some a moment ago.
    fn learn_lengths(&mut self, now: Duration, state: &State) {
        let mut out = Vec::new();
        let longest = state.longest_lease();
        if longest > self.longest {
            self.longest = longest;
            self.liveness.step(now, Input::Lease(longest), &mut out);
        }
        self.liveness.step(now, Input::Lease(state.lease_length()), &mut out);
    }

    /// Looks at all servers.
    pub fn detect_failures(&mut self, now: Duration, who: Leadership, state: &State) -> Judged {
        let others = state.servers.keys().copied().filter(|s| *s != who.me).collect();
        let mut out = Vec::new();
        self.liveness.step(now, Input::Servers(others), &mut out);
        self.learn_lengths(now, state);
        let begins = who.leads != self.led || who.leads && who.changed;
        if begins {
            let input = if who.leads { Input::BecameLeader } else { Input::LostLeadership };
            self.liveness.step(now, input, &mut out);
            self.led = who.leads;
            self.declared.clear();
        }
        self.liveness.step(now, Input::Tick, &mut out);
        let down = out.into_iter().filter_map(|o| if let Output::Down(s) = o { Some(s) } else { None });
        self.declared.extend(down);
        self.declared.retain(|s| state.servers.contains_key(s));
        Judged { forget_reports: begins, down: self.declared.iter().copied().collect() }
    }

    /// The pool has agreed that the server is down, or has refused to.
    pub fn decided(&mut self, server: ServerId) {
        self.declared.remove(&server);
    }

    /// A heartbeat came in.
    pub fn on_beat(&mut self, now: Duration, server: ServerId, identity: &str, state: &State) -> Heard {
        if !state.is_server(server, identity) {
            return Heard::Stranger;
        }
        if self.declared.contains(&server) {
            return Heard::Denied;
        }
        let mut out = Vec::new();
        self.liveness.step(now, Input::Heartbeat(server), &mut out);
        if out.contains(&Output::Renew(server)) { Heard::Confirm } else { Heard::Denied }
    }

    /// The servers whose leases ran out.
    pub fn down(&self) -> BTreeSet<ServerId> {
        self.liveness.down()
    }
}

/// What a server is promised by a leader that is one for certain; `confirmed`: the version of the state with everything
/// that was agreed until then. Without it nothing is promised.
pub fn grant(confirmed: Option<u64>, state: &State) -> Grant {
    let version = confirmed.unwrap_or(0);
    Grant { renewed: confirmed.is_some(), length: state.lease_length(), version }
}

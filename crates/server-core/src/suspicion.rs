//! Servers that seem dead: whether to look for oneself, and what follows.
//!
//! Somebody could not reach a server's port. The leader of the pool's store looks for itself; a port that refuses has no
//! server behind it, and a server that does not run cannot act, so it is declared down without waiting for its lease.
//!
//! A process holds its port until the kernel has ended all its threads, and closes it before anything else when it stops in
//! order, after its sets. So a refusal means that nobody answers clients there any more; two servers have seen it by then.
//! (A firewall that refuses in a server's name to other servers, and only to them, is the one way to be wrong: clients
//! might read what was true up to a lease ago. Rules that drop are safe.) A process that starts anew, there or elsewhere,
//! begins without a lease.

use cluster::State;
use ids::ServerId;
use std::collections::BTreeMap;
use std::time::Duration;

/// A suspicion is not passed on again within this time.
const AGAIN: Duration = Duration::from_millis(400);

/// When each server was last suspected here.
#[derive(Debug, Default)]
pub struct Suspicions(BTreeMap<ServerId, Duration>);

impl Suspicions {
    /// A set's link was refused. Whether something is to be done about it now.
    pub fn note(&mut self, now: Duration, server: ServerId) -> bool {
        if self.0.get(&server).is_some_and(|at| now < *at + AGAIN) {
            return false;
        }
        self.0.insert(server, now);
        true
    }
}

/// What to do about a server that somebody could not reach.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Suspect {
    /// Nothing.
    Nothing,
    /// It leads the pool's store. If its port refuses, have another one lead, and ask [`suspect`] again.
    ReplaceLeader,
    /// This server leads. If its port refuses: it leaves all views, and does not count among the voters that live.
    DeclareDown,
    /// Tell this server, which leads.
    Tell(ServerId),
}

/// Decides by what is known now. `replaced`: the suspect led the pool's store, and another one should by now.
pub fn suspect(
    state: &State,
    server: ServerId,
    leader: Option<ServerId>,
    me: ServerId,
    replaced: bool,
) -> Suspect {
    if !state.servers.contains_key(&server) {
        return Suspect::Nothing;
    }
    match leader {
        Some(leader) if leader == server => {
            if replaced {
                Suspect::Nothing
            } else {
                Suspect::ReplaceLeader
            }
        }
        Some(leader) if leader == me => {
            if serves(state, server) {
                Suspect::DeclareDown
            } else {
                Suspect::Nothing
            }
        }
        Some(leader) => Suspect::Tell(leader),
        None => Suspect::Nothing,
    }
}

/// Whether views count on a server: without it somebody else would serve, or nobody.
fn serves(state: &State, server: ServerId) -> bool {
    state.bricks_of(server).any(|(set, b)| {
        set.view.in_sync.contains(&b.id) && (set.view.in_sync.len() > 1 || set.view.primary == Some(b.id))
    })
}

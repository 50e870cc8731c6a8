//! Choice of the voters: a pure function, and the task on the leader that changes the membership of the agreement
//! accordingly.
//!
//! Always true: an odd number of voters, and a majority of those chosen is believed to live. Two servers get one
//! voter, not two: with two, losing either one stops the pool; with one, only losing that one does. A third server
//! makes it three voters, any of which may be lost.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use cluster::{Command, Role, State};
use ids::ServerId;
use openraft::ChangeMembers;

use crate::{
    store::Inner,
    types::{Node, StoredMembership},
};

/// The most servers that vote.
const MOST: usize = 5;
/// A learner this many entries behind is near enough to vote.
const NEAR: u64 = 100;

/// What the choice is made of.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Candidates {
    /// Who votes now.
    pub voters: BTreeSet<ServerId>,
    /// All servers that may vote.
    pub servers: BTreeSet<ServerId>,
    /// Those that have (nearly) the whole log.
    pub ready: BTreeSet<ServerId>,
    /// Those that were down for long.
    pub down: BTreeSet<ServerId>,
    /// The leader: it stays, so that nobody is elected without need.
    pub leader: Option<ServerId>,
}

/// Who should vote: 1 of one or two servers, 3 of three or four, 5 of more. Live voters stay, a live learner takes the
/// place of a voter that is down. Empty: change nothing.
pub fn choose_voters(c: &Candidates) -> BTreeSet<ServerId> {
    let target = match c.servers.len() {
        0..=2 => 1,
        3 | 4 => 3,
        _ => MOST,
    };
    let rank = |id: &ServerId| {
        let live = !c.down.contains(id);
        match (c.leader == Some(*id), c.voters.contains(id), live) {
            (true, _, _) => Some(0),
            (_, true, true) => Some(1),
            (_, false, true) if c.ready.contains(id) => Some(2),
            (_, true, false) => Some(3),
            _ => None,
        }
    };
    let mut fit: Vec<_> = c.servers.iter().filter_map(|id| rank(id).map(|r| (r, *id))).collect();
    fit.sort_unstable();
    fit.truncate(target);
    if fit.len() % 2 == 0 {
        fit.pop();
    }
    let comes = |id: &&ServerId| !c.down.contains(id) && !c.ready.contains(id) && !c.voters.contains(id);
    if fit.len() < c.voters.len() && fit.len() < target && c.servers.iter().any(|id| comes(&id)) {
        // Another one will be able to vote soon: until then those that vote stay.
        return BTreeSet::new();
    }
    let live = fit.iter().filter(|(_, id)| !c.down.contains(id)).count();
    if live * 2 <= fit.len() {
        return BTreeSet::new();
    }
    fit.into_iter().map(|(_, id)| id).collect()
}

/// What to change in the membership next; `None`: it is as it should be.
#[derive(Debug, PartialEq)]
enum Step {
    Learner(ServerId, Node),
    Voters(BTreeSet<u64>),
    Remove(BTreeSet<u64>),
    Record(BTreeSet<ServerId>),
}

fn next_step(state: &State, members: &StoredMembership, choice: &BTreeSet<ServerId>) -> Option<Step> {
    let inside: BTreeMap<u64, &Node> = members.nodes().map(|(id, node)| (*id, node)).collect();
    let voters: BTreeSet<u64> = members.voter_ids().collect();
    let joint = members.membership().get_joint_config().len() > 1;
    let mut live = state.servers.values().filter(|s| !s.lost);
    if let Some(new) = live.find(|s| !inside.contains_key(&s.id.0)) {
        return Some(Step::Learner(new.id, Node::new(new.address.clone())));
    }
    let wanted: BTreeSet<u64> = choice.iter().map(|id| id.0).collect();
    if !wanted.is_empty() && (joint || wanted != voters) {
        return Some(Step::Voters(wanted));
    }
    let known = |id: &u64| state.servers.get(&ServerId(*id)).is_some_and(|s| !s.lost);
    let gone: BTreeSet<u64> =
        inside.keys().copied().filter(|id| !known(id) && !voters.contains(id)).collect();
    if !gone.is_empty() {
        return Some(Step::Remove(gone));
    }
    let recorded: BTreeSet<ServerId> =
        state.servers.values().filter(|s| s.role == Role::Voter).map(|s| s.id).collect();
    let voting: BTreeSet<ServerId> = voters.iter().map(|id| ServerId(*id)).collect();
    let all_known = voting.iter().all(|id| state.servers.contains_key(id));
    (recorded != voting && all_known).then_some(Step::Record(voting))
}

/// Runs until the store stops.
pub(crate) async fn manage(inner: std::sync::Arc<Inner>) {
    let mut stopped = inner.stopping.subscribe();
    let mut changes = inner.machine.watch();
    loop {
        tokio::select! {
            _ = stopped.wait_for(|stop| *stop) => return,
            _ = changes.changed() => {}
            () = tokio::time::sleep(inner.options.heartbeat) => {}
        }
        if inner.is_leader() {
            tokio::select! {
                _ = stopped.wait_for(|stop| *stop) => return,
                () = manage_once(&inner) => {}
            }
        }
    }
}

async fn manage_once(inner: &Inner) {
    let metrics = inner.raft.metrics().borrow().clone();
    let state = inner.machine.state();
    if state.pool.is_empty() {
        return;
    }
    let last = metrics.last_log_index.unwrap_or_default();
    let near = |id: &u64, at: &Option<openraft::LogId<u64>>| {
        *id == inner.me.0 || at.is_some_and(|at| at.index + NEAR >= last)
    };
    let replication = metrics.replication.clone().unwrap_or_default();
    let candidates = Candidates {
        voters: metrics.membership_config.voter_ids().map(ServerId).collect(),
        servers: state.servers.values().filter(|s| !s.lost).map(|s| s.id).collect(),
        ready: replication.iter().filter(|(id, at)| near(id, at)).map(|(id, _)| ServerId(*id)).collect(),
        down: inner.down_for(inner.options.replace_voter_after),
        leader: Some(inner.me),
    };
    let choice = choose_voters(&candidates);
    let Some(step) = next_step(&state, &metrics.membership_config, &choice) else { return };
    tracing::info!(?step, "the pool store's membership changes");
    let limit: Duration = inner.options.command_timeout;
    match tokio::time::timeout(limit, take(inner, step)).await {
        Ok(Ok(())) => {}
        Ok(Err(reason)) => {
            tracing::info!(reason, "the pool store's membership did not change, will try again")
        }
        Err(_) => tracing::warn!("the pool store's membership did not change in time, will try again"),
    }
}

async fn take(inner: &Inner, step: Step) -> Result<(), String> {
    let raft = &inner.raft;
    let done = match step {
        Step::Learner(id, node) => raft.add_learner(id.0, node, false).await,
        Step::Voters(voters) => raft.change_membership(ChangeMembers::ReplaceAllVoters(voters), true).await,
        Step::Remove(ids) => raft.change_membership(ChangeMembers::RemoveNodes(ids), true).await,
        Step::Record(voters) => {
            let proposal = inner.name(Command::SetVoters { voters });
            return inner.propose_here(&proposal).await.map(drop).map_err(|e| e.to_string());
        }
    };
    done.map(drop).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(ids: &[u64]) -> BTreeSet<ServerId> {
        ids.iter().map(|id| ServerId(*id)).collect()
    }

    fn choose(voters: &[u64], servers: &[u64], down: &[u64]) -> BTreeSet<ServerId> {
        let (voters, servers, down) = (ids(voters), ids(servers), ids(down));
        choose_voters(&Candidates {
            leader: voters.first().copied(),
            voters,
            ready: servers.clone(),
            servers,
            down,
        })
    }

    #[test]
    fn a_pool_grows_and_shrinks() {
        assert_eq!(choose(&[1], &[1], &[]), ids(&[1]));
        assert_eq!(choose(&[1], &[1, 2], &[]), ids(&[1]));
        assert_eq!(choose(&[1], &[1, 2, 3], &[]), ids(&[1, 2, 3]));
        assert_eq!(choose(&[1, 2, 3], &[1, 2, 3, 4], &[]), ids(&[1, 2, 3]));
        assert_eq!(choose(&[1, 2, 3], &[1, 2, 3, 4, 5], &[]), ids(&[1, 2, 3, 4, 5]));
        assert_eq!(choose(&[1, 2, 3, 4, 5], &[1, 2, 3, 4, 5, 6, 7], &[]), ids(&[1, 2, 3, 4, 5]));
        assert_eq!(choose(&[1, 2, 3], &[1, 3], &[]), ids(&[1]));
        assert_eq!(choose(&[2, 3], &[1, 2, 3], &[]), ids(&[1, 2, 3]));
    }

    #[test]
    fn a_voter_that_is_down_is_replaced_when_possible() {
        assert_eq!(choose(&[1, 2, 3], &[1, 2, 3, 4], &[2]), ids(&[1, 3, 4]));
        assert_eq!(choose(&[1, 2, 3], &[1, 2, 3], &[2]), ids(&[1, 2, 3]));
        assert_eq!(choose(&[1, 2, 3, 4, 5], &[1, 2, 3, 4, 5, 6], &[4, 5]), ids(&[1, 2, 3, 4, 6]));
        assert_eq!(choose(&[1], &[1, 2, 3], &[2, 3]), ids(&[1]));
        assert_eq!(choose(&[1, 2, 3], &[1, 2, 3], &[2, 3]), ids(&[]), "no majority: change nothing");
    }

    #[test]
    fn voters_stay_until_a_newcomer_can_vote() {
        // Server 3 was replaced by 4, which does not have the log yet.
        let mut c = Candidates {
            voters: ids(&[1, 2, 3]),
            servers: ids(&[1, 2, 4]),
            ready: ids(&[1, 2]),
            down: ids(&[]),
            leader: Some(ServerId(1)),
        };
        assert_eq!(choose_voters(&c), ids(&[]));
        c.ready = ids(&[1, 2, 4]);
        assert_eq!(choose_voters(&c), ids(&[1, 2, 4]));
        (c.ready, c.down) = (ids(&[1, 2]), ids(&[4]));
        assert_eq!(choose_voters(&c), ids(&[1]), "it does not come");
    }

    #[test]
    fn learners_vote_when_they_have_the_log() {
        let c = Candidates {
            voters: ids(&[1]),
            servers: ids(&[1, 2, 3]),
            ready: ids(&[1, 2]),
            down: ids(&[]),
            leader: Some(ServerId(1)),
        };
        assert_eq!(choose_voters(&c), ids(&[1]), "two voters are worse than one");
    }
}

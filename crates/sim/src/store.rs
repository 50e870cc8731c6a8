//! The pool's store: one register that all servers agree on, with a leader who changes and readers who are behind.
//!
//! The state and its commands are the product's (crate `cluster`), and so are the leases that its leader gives. How servers
//! agree on an order (Raft) is left out: a command is agreed on when it reaches a leader who reaches most servers.

use crate::machine::ToProcess;
use crate::network::Node;
use crate::trace::say;
use crate::world::{Event, World};
use cluster::{Command, Refusal, State};
use core::time::Duration;
use ids::{BrickId, Epoch, ServerId, SetId};
use namespace::placement::SetRoom;
use server_core::arbitration_run::Proposed;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A request to the leader is repeated after so long.
const AGAIN: Duration = Duration::from_millis(200);
/// And given up after so long.
const LONGEST: Duration = Duration::from_secs(10);
/// How often it is looked whether there is a leader.
const LOOK: Duration = Duration::from_millis(100);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Store {
    state: Arc<State>,
    leader: Option<usize>,
    /// Counts leaders.
    term: u64,
    /// When somebody is elected, if there is no leader.
    election: Option<Duration>,
    /// Nobody is elected before.
    down_until: Duration,
    /// Bricks that it was asked to let in, in which epoch of their sets, and when first: while that lasts, it may.
    entering: BTreeMap<BrickId, (Epoch, Duration)>,
}

/// What a process asks of the leader.
#[derive(Clone, Debug)]
pub(crate) enum Ask {
    /// Agree on this. With a number the outcome is told.
    Propose(Command, Option<u64>),
    /// Agree that a server is down: the leader of that term proposes it, and the outcome is told. Only that term's leader
    /// can bring it about.
    Declare { server: ServerId, term: u64, id: u64 },
    /// What is agreed on by now?
    Read(u64),
    /// I live, and that is the room of the sets that I lead.
    Beat { sent: Duration, rooms: Vec<SetRoom> },
    /// That server's port refuses connections.
    Suspect(usize),
}

pub(crate) enum StoreEvent {
    /// A request gets to the leader, if it can: when it was sent, and until when it is tried.
    Ask { from: usize, life: u32, sent: Duration, until: Duration, ask: Ask },
    /// The state of that version gets to a server, if it can.
    Publish { to: usize },
    /// Is there a leader?
    Look,
}

impl Store {
    pub(crate) fn new(state: State) -> Store {
        Store { state: Arc::new(state), leader: Some(0), term: 1, ..Store::default() }
    }

    pub(crate) fn state(&self) -> &Arc<State> {
        &self.state
    }

    pub(crate) fn term(&self) -> u64 {
        self.term
    }

    pub(crate) fn leader(&self) -> Option<usize> {
        self.leader
    }

    /// Whether a brick is in sync, or may be in a moment by what the store was asked.
    pub(crate) fn counts_on(&self, brick: BrickId) -> bool {
        let view = self.state.brick(brick).map(|(set, _)| &set.view);
        let asked = self.entering.get(&brick).map(|(epoch, _)| *epoch);
        view.is_some_and(|v| v.in_sync.contains(&brick) || asked == Some(v.epoch))
    }

    /// A brick is opened anew: whoever asks to let it in from now on has seen it heal once more.
    pub(crate) fn opened(&mut self, brick: BrickId) {
        if let Some((_, first)) = self.entering.get_mut(&brick) {
            *first = Duration::MAX;
        }
    }

    /// It is asked to let a brick in. Who only asks again has seen nothing new.
    fn ask_to_let_in(&mut self, brick: BrickId, epoch: Epoch, now: Duration) {
        let before = self.entering.get(&brick).filter(|(e, _)| *e == epoch);
        let first = before.map_or(now, |(_, first)| now.min(*first));
        self.entering.insert(brick, (epoch, first));
    }

    /// When it was first asked to let those in that had healed by then.
    fn first_asked(&self, command: &Command) -> Option<Duration> {
        let Command::ChangeView(change) = command else { return None };
        let asked = |brick| self.entering.get(brick).filter(|(epoch, _)| *epoch == change.expect_epoch);
        change.healed.iter().filter_map(asked).map(|(_, first)| *first).min()
    }

    /// The store is without a leader for a while.
    pub(crate) fn fall(&mut self, until: Duration) {
        self.down_until = until;
    }
}

pub(crate) fn server_id(machine: usize) -> ServerId {
    ServerId(machine as u64 + 1)
}

pub(crate) fn machine_of(server: ServerId) -> usize {
    usize::try_from(server.0.saturating_sub(1)).unwrap_or(usize::MAX)
}

impl World {
    /// A process asks the leader; again and again until it is heard.
    pub(crate) fn ask_store(&mut self, at: Duration, from: usize, ask: Ask) {
        let life = self.machines[from].life;
        if let Ask::Propose(Command::ChangeView(change), _) = &ask {
            for brick in &change.healed {
                self.store.ask_to_let_in(*brick, change.expect_epoch, at);
            }
        }
        let mut delay = self.network.delay(&mut self.rng, Node::Server(from), Node::Server(from));
        if matches!(ask, Ask::Propose(..) | Ask::Declare { .. }) && self.rng.chance(10) {
            delay += self.rng.millis(100, 6000);
        }
        let until = if matches!(ask, Ask::Beat { .. } | Ask::Suspect(_)) { at } else { at + LONGEST };
        self.at(at + delay, Event::Store(StoreEvent::Ask { from, life, sent: at, until, ask }));
    }

    pub(crate) fn on_store(&mut self, event: StoreEvent) {
        match event {
            StoreEvent::Ask { from, life, sent, until, ask } => self.on_ask((from, life), (sent, until), ask),
            StoreEvent::Publish { to } => self.publish(to),
            StoreEvent::Look => self.look_for_leader(),
        }
    }

    fn on_ask(&mut self, (from, life): (usize, u32), (sent, until): (Duration, Duration), ask: Ask) {
        if self.machines[from].life != life || !self.machines[from].lives() {
            return;
        }
        let heard = self.store.leader.filter(|l| self.can_lead(*l) && self.talks(from, *l));
        let Some(leader) = heard else {
            if self.now < until {
                let event = StoreEvent::Ask { from, life, sent, until, ask };
                self.at(self.now + AGAIN, Event::Store(event));
            } else if let Ask::Propose(_, Some(id)) | Ask::Declare { id, .. } | Ask::Read(id) = ask {
                self.tell(from, ToProcess::NoLeader(id));
            }
            return;
        };
        match ask {
            Ask::Declare { term, id, .. } if leader != from || term != self.store.term => {
                self.tell(from, ToProcess::NoLeader(id));
            }
            Ask::Declare { server, id, .. } => {
                let command = Command::ServerDown { server };
                self.on_ask((from, life), (sent, until), Ask::Propose(command, Some(id)));
            }
            Ask::Propose(command, id) => {
                let outcome = self.agree(sent, &command);
                if let Some(id) = id {
                    let proposed = match outcome {
                        Ok(()) => Proposed::Agreed,
                        Err(e) => Proposed::Refused { stale: e.is_stale() },
                    };
                    self.tell(from, ToProcess::Agreed(id, proposed));
                }
            }
            Ask::Read(id) => {
                let state = self.store.state.clone();
                self.tell(from, ToProcess::Read(id, state));
            }
            Ask::Beat { sent, rooms } => {
                let beat = ToProcess::Beat { from, life, sent, rooms };
                self.tell(leader, beat);
            }
            Ask::Suspect(server) => {
                if self.is_gone(leader, server) {
                    let _outcome = self.agree(sent, &Command::ServerDown { server: server_id(server) });
                }
            }
        }
    }

    /// Whether a machine answers, as another one sees it, that nobody listens at its port.
    pub(crate) fn is_gone(&self, by: usize, server: usize) -> bool {
        let open = self.network.reaches(Node::Server(by), Node::Server(server));
        open && self.machines[server].powered && !self.machines[server].lives()
    }

    /// Something gets to a process a little later.
    pub(crate) fn tell(&mut self, to: usize, what: ToProcess) {
        let delay = self.network.delay(&mut self.rng, Node::Server(to), Node::Server(to));
        let life = self.machines[to].life;
        self.at(self.now + delay, Event::Process { machine: to, life, what });
    }

    /// The store carries out, or refuses, a command that was sent at that time.
    fn agree(&mut self, sent: Duration, command: &Command) -> Result<(), Refusal> {
        let mut next = State::clone(&self.store.state);
        if let Err(e) = next.apply(command) {
            say!(self, "refused: {command:?}: {e}");
            return Err(e);
        }
        next.check();
        let sent = self.store.first_asked(command).map_or(sent, |first| first.min(sent));
        let before = core::mem::replace(&mut self.store.state, Arc::new(next));
        let now = self.store.state.clone();
        self.members_changed(&before, &now, command);
        for (id, set) in &now.sets {
            let old = before.sets.get(id).map(|s| &s.view);
            if old != Some(&set.view) {
                say!(
                    self,
                    "agreed: set {id}: epoch {} led by {:?}, in sync {:?}: {command:?}",
                    set.view.epoch,
                    set.view.primary,
                    set.view.in_sync
                );
                self.count("view");
                self.view_changed(sent, *id, &before, &now);
            }
        }
        for to in 0..self.machines.len() {
            let delay = self.rng.millis(1, 60);
            self.at(self.now + delay, Event::Store(StoreEvent::Publish { to }));
        }
        self.publish_to_clients();
        Ok(())
    }

    fn view_changed(&mut self, sent: Duration, set: SetId, before: &State, now: &State) {
        let (Some(old), Some(new)) = (before.sets.get(&set), now.sets.get(&set)) else { return };
        let volume = now.volumes.get(&new.volume);
        let quorum = volume.map_or(1, |v| v.write_quorum(new.copies()) as usize);
        if new.lost_before != old.lost_before {
            self.lost(set, &old.view.in_sync);
        }
        if new.view.epoch != old.view.epoch {
            self.ledger.agreed((sent, self.now), old, new, quorum);
        }
        if new.view.primary != old.view.primary {
            self.note_deposed(old);
        }
        if let Some(brick) = new.view.primary.filter(|_| new.view.primary != old.view.primary) {
            let successor = new.brick(brick).map(|b| machine_of(b.server));
            successor.into_iter().for_each(|m| self.succeeded(set, m));
        }
    }

    fn publish(&mut self, to: usize) {
        let state = self.store.state.clone();
        let m = &self.machines[to];
        if !m.lives() || m.knows(state.version) {
            return;
        }
        if self.store.leader.is_some_and(|l| self.talks(to, l)) {
            let life = m.life;
            self.at(self.now, Event::Process { machine: to, life, what: ToProcess::State(state) });
        } else {
            self.at(self.now + AGAIN, Event::Store(StoreEvent::Publish { to }));
        }
    }

    /// Two servers whose control threads hear each other.
    fn talks(&self, a: usize, b: usize) -> bool {
        a == b || self.network.reaches(Node::Server(a), Node::Server(b))
    }

    /// Whether a server is up and reaches most.
    pub(crate) fn can_lead(&self, server: usize) -> bool {
        let up = |m: usize| self.machines[m].lives() && !self.machines[m].is_frozen();
        let reached = (0..self.machines.len()).filter(|m| up(*m) && self.talks(server, *m)).count();
        up(server) && reached * 2 > self.machines.len() && self.now >= self.store.down_until
    }

    fn look_for_leader(&mut self) {
        self.at(self.now + LOOK, Event::Store(StoreEvent::Look));
        if self.store.leader.is_some_and(|l| self.can_lead(l)) {
            self.store.election = None;
            return;
        }
        let delay = self.rng.millis(200, 1500);
        let at = *self.store.election.get_or_insert(self.now + delay);
        if self.now < at {
            return;
        }
        let able: Vec<usize> = (0..self.machines.len()).filter(|m| self.can_lead(*m)).collect();
        if let Some(leader) = self.rng.pick(&able).copied() {
            say!(self, "server {leader} leads the store");
            self.count("new leader of the store");
            self.store.leader = Some(leader);
            self.store.term += 1;
            self.store.election = None;
            for to in 0..self.machines.len() {
                self.at(self.now + AGAIN, Event::Store(StoreEvent::Publish { to }));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::ViewChange;

    #[test]
    fn who_asks_again_to_let_a_brick_in_has_seen_nothing_new() {
        let (brick, at) = (BrickId(2), Duration::from_secs);
        let healed = |epoch| {
            Command::ChangeView(ViewChange {
                set: SetId(1),
                expect_epoch: Epoch(epoch),
                primary: Some(BrickId(1)),
                in_sync: [BrickId(1), brick].into(),
                healed: [brick].into(),
                lost: false,
                reason: String::new(),
            })
        };
        let mut store = Store::default();
        store.ask_to_let_in(brick, Epoch(3), at(5));
        store.ask_to_let_in(brick, Epoch(3), at(7));
        assert_eq!(store.first_asked(&healed(3)), Some(at(5)));
        assert_eq!(store.first_asked(&healed(4)), None);
        store.opened(brick);
        store.ask_to_let_in(brick, Epoch(3), at(9));
        assert_eq!(store.first_asked(&healed(3)), Some(at(9)), "it has healed once more");
        store.ask_to_let_in(brick, Epoch(4), at(11));
        assert_eq!(store.first_asked(&healed(4)), Some(at(11)));
    }
}

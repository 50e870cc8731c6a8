//! Bricks that cannot be certain of what they hold, or cannot be opened: their servers ask the others, and the pool's
//! store.
//!
//! What is asked and proposed, and who goes on, is decided by `server_core::arbitration_run` and `cluster::arbitration`.

use crate::machine::{Question, ToProcess};
use crate::network::Node;
use crate::store::{Ask, machine_of, server_id};
use crate::world::World;
use cluster::arbitration::{Evidence, Holding};
use cluster::{Command, State};
use core::time::Duration;
use ids::{BrickId, SetId};
use server_core::arbitration_run::{Proposed, Source, Step};
use server_core::{ArbitrationRun, OpenBrick, OpenedBrick, RecoveryVerdict, Unopened};
use set_core::Input;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Who has not answered after so long says nothing.
const LOOK: Duration = Duration::from_secs(2);
/// So long a disk is waited for before its server says nothing, and so often it is looked whether it has answered.
const DISK_LOOK: Duration = Duration::from_secs(1);
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// Numbers of proposals begin here, apart from those of reads.
const PROPOSALS: u64 = 1 << 32;

/// Arbitrations that this server has asked for.
#[derive(Default)]
pub(crate) struct Rounds {
    next: u64,
    open: BTreeMap<u64, Round>,
}

struct Round {
    set: SetId,
    brick: BrickId,
    arbitration_run: ArbitrationRun,
    /// The brick that waits; `None`: it could not be opened.
    opened: Option<OpenedBrick>,
    /// Counts the times that evidence was asked for.
    number: u64,
    evidence: BTreeMap<BrickId, Evidence>,
    missing: usize,
}

impl World {
    pub(crate) fn begin_arbitration(
        &mut self,
        m: usize,
        set: SetId,
        brick: BrickId,
        opened: OpenedBrick,
        evidence: Evidence,
    ) {
        self.count("arbitration");
        let Some(process) = self.process(m) else { return };
        process.control.unopened.insert(brick, Unopened::Waits(evidence));
        self.add_round(m, set, brick, ArbitrationRun::of_uncertain(set, brick), Some(opened));
    }

    pub(crate) fn begin_refusal(&mut self, m: usize, set: SetId, brick: BrickId) {
        self.add_round(m, set, brick, ArbitrationRun::of_refusal(set, brick), None);
    }

    fn add_round(
        &mut self,
        m: usize,
        set: SetId,
        brick: BrickId,
        arbitration_run: ArbitrationRun,
        opened: Option<OpenedBrick>,
    ) {
        let Some(process) = self.process(m) else { return };
        let rounds = &mut process.control.rounds;
        rounds.next += 1;
        let id = rounds.next;
        let evidence = BTreeMap::new();
        rounds
            .open
            .insert(id, Round { set, brick, arbitration_run, opened, number: 0, evidence, missing: 0 });
        self.round_goes_on(m, id);
    }

    /// At the beginning, and after a pause.
    pub(crate) fn round_goes_on(&mut self, m: usize, id: u64) {
        self.advance(m, id, ArbitrationRun::go_on);
    }

    /// The pool's state was read, or could not be.
    pub(crate) fn round_has_state(&mut self, m: usize, id: u64, state: Option<&Arc<State>>) {
        self.advance(m, id, |arbitration_run| arbitration_run.on_state(state.map(|s| &**s), server_id(m)));
    }

    fn advance(&mut self, m: usize, id: u64, by: impl FnOnce(&mut ArbitrationRun) -> Step) {
        let Some(process) = self.process(m) else { return };
        let Some(round) = process.control.rounds.open.get_mut(&id) else { return };
        match by(&mut round.arbitration_run) {
            Step::Read => self.read_for_round(m, id),
            Step::Look => {
                let known = process.known.clone();
                self.round_has_state(m, id, Some(&known));
            }
            Step::Ask(asked) => self.gather(m, id, asked),
            Step::Propose(change) => {
                self.ask_store(self.now, m, Ask::Propose(Command::ChangeView(change), Some(PROPOSALS + id)));
            }
            Step::Pause(time) => self.timer(m, time, ToProcess::Round(id)),
            Step::Done(verdict) => self.stands(m, id, verdict),
        }
    }

    /// What do the bricks' servers say?
    fn gather(&mut self, m: usize, id: u64, asked: Vec<(BrickId, Source)>) {
        let Some(process) = self.process(m) else { return };
        let Some(round) = process.control.rounds.open.get_mut(&id) else { return };
        round.number += 1;
        round.evidence.clear();
        round.missing = asked.len();
        let (set, number) = (round.set, round.number);
        for (brick, source) in asked {
            match source {
                Source::Here => {
                    let asked = self.shown(m);
                    let evidence = self.evidence(m, set, brick, asked).unwrap_or_default();
                    self.later(self.now, m, ToProcess::Evidence { round: id, number, brick, evidence });
                }
                Source::Server(server) => {
                    let to = machine_of(server);
                    if self.network.reaches(Node::Server(m), Node::Server(to)) && self.machines[to].lives() {
                        let life = self.machines[m].life;
                        let question = Question { by: m, life, round: id, number, set, brick, asked: None };
                        self.tell(to, ToProcess::AskEvidence(question));
                    }
                }
            }
        }
        self.timer(m, LOOK, ToProcess::RoundOver(id, number));
    }

    /// What this server can say of its brick; `None`: its disk is looked at first.
    fn evidence(&mut self, m: usize, set: SetId, brick: BrickId, asked: Duration) -> Option<Evidence> {
        let shown = self.shown(m);
        let Some(process) = self.process(m) else { return Some(Evidence::Silent) };
        if let Some(unopened) = process.control.unopened.get(&brick) {
            return Some(unopened.evidence(shown));
        }
        let Some(serving) = process.serving(set) else { return Some(Evidence::Silent) };
        let report = serving.borrow_mut().core.report(shown);
        let holding = Holding { epoch: report.last_epoch, last: report.lsn, durable: report.durable };
        let (role, uncertain, disk_answered) = (report.role, report.uncertain, report.disk_answered);
        OpenBrick { role, uncertain, holding, disk_answered }.evidence(asked)
    }

    /// Another server asks, or has asked a short time ago and waits for the disk.
    pub(crate) fn give_evidence(&mut self, m: usize, question: Question) {
        let shown = self.shown(m);
        let Question { by, life, round, number, set, brick, asked } = question;
        let since = asked.unwrap_or(shown);
        let Some(evidence) = self.evidence(m, set, brick, since) else {
            if asked.is_none() {
                self.count("disk looked at for an arbitration");
                self.step(m, set, Input::LookAtDisk);
            }
            if shown <= since + DISK_LOOK {
                let again = Question { asked: Some(since), ..question };
                self.timer(m, LOOK_AGAIN, ToProcess::AskEvidence(again));
            }
            return;
        };
        if self.machines[by].life == life && self.network.reaches(Node::Server(m), Node::Server(by)) {
            self.tell(by, ToProcess::Evidence { round, number, brick, evidence });
        }
    }

    pub(crate) fn on_evidence(&mut self, m: usize, id: u64, number: u64, brick: BrickId, evidence: Evidence) {
        let Some(process) = self.process(m) else { return };
        let Some(round) = process.control.rounds.open.get_mut(&id).filter(|r| r.number == number) else {
            return;
        };
        round.evidence.insert(brick, evidence);
        if round.evidence.len() >= round.missing {
            self.end_round(m, id, number);
        }
    }

    /// All have answered, or the time is over.
    pub(crate) fn end_round(&mut self, m: usize, id: u64, number: u64) {
        let Some(process) = self.process(m) else { return };
        let Some(round) = process.control.rounds.open.get_mut(&id) else { return };
        if round.number != number || round.missing == 0 {
            return;
        }
        round.missing = 0;
        let evidence = core::mem::take(&mut round.evidence);
        self.advance(m, id, |arbitration_run| arbitration_run.on_evidence(evidence));
    }

    pub(crate) fn on_agreed(&mut self, m: usize, id: u64, outcome: Proposed) {
        if self.ends_declaring(m, id) {
            return;
        }
        if let Some(id) = id.checked_sub(PROPOSALS) {
            self.advance(m, id, |arbitration_run| arbitration_run.on_proposed(outcome));
        }
    }

    /// The pool has said where the brick stands.
    fn stands(&mut self, m: usize, id: u64, verdict: Option<RecoveryVerdict>) {
        let Some(process) = self.process(m) else { return };
        let Some(round) = process.control.rounds.open.remove(&id) else { return };
        let Some(opened) = round.opened else { return };
        let Some(verdict) = verdict else {
            drop(opened);
            return self.not_opened(m, round.set, round.brick, "its set is gone");
        };
        let wall = self.machines[m].clock.wall(self.now);
        if let Some(disk) = self.machines[m].disks.get(&round.brick) {
            disk.set_time(wall);
        }
        let after = opened.apply_verdict(verdict);
        if self.machines[m].disks.get(&round.brick).is_some_and(|d| d.is_off()) {
            drop(after);
            return self.die(m);
        }
        match after {
            Ok(opened) => {
                if verdict.last {
                    self.ledger.goes_on(self.now, round.brick);
                }
                self.begin_set(m, round.set, round.brick, opened);
            }
            Err(why) => self.not_opened(m, round.set, round.brick, &why),
        }
    }
}

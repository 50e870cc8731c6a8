//! After the storm: faults end, everything comes to rest, and what is there is read and compared.

use crate::trace::say;
use crate::world::{Event, World};
use bytes::Bytes;
use core::time::Duration;
use ids::{Fid, SetId};
use replica::Role;
use std::collections::{BTreeSet, VecDeque};
use wire::{Body, Op};

/// How often it is looked whether everything rests.
const LOOK: Duration = Duration::from_millis(250);

/// How far a run is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// Faults happen.
    Storm,
    /// No more faults. `busy`: clients go on until all bricks are in sync, as a healing must end under load too.
    Calm { busy: bool },
    /// Everything is read once more.
    Reading,
    /// That was all.
    Over,
}

/// What is still to be read at the end.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    seen: BTreeSet<Fid>,
    queue: VecDeque<(SetId, Op)>,
}

impl World {
    pub(crate) fn end_storm(&mut self) {
        say!(self, "the storm is over");
        let busy = self.rng.chance(500);
        self.phase = Phase::Calm { busy };
        self.end_faults();
        self.at(self.now + LOOK, Event::Rest);
    }

    pub(crate) fn look_for_rest(&mut self) {
        let end = self.config.storm + self.config.calm;
        if self.now > end {
            let later = self.later_unrest().map(|(_, why)| why);
            let why = [self.unrest(), self.bricks_unrest(), later].map(Option::unwrap_or_default).join("; ");
            for m in 0..self.machines.len() {
                let known = self.machines[m].process.as_ref().map(|p| p.known.version);
                say!(self, "server {m} knows version {known:?} of {}", self.store.state().version);
                for set in self.process_sets(m) {
                    let shown = self.shown(m);
                    let lease = self.process(m).and_then(|p| p.control.lease(p.known.version));
                    let report = self
                        .process(m)
                        .and_then(|p| p.serving(set))
                        .map(|s| s.borrow_mut().core.report(shown));
                    say!(self, "  at {shown:?}, lease until {lease:?}: {report:?}");
                }
            }
            return self.fail(format!("no rest {:?} after the storm: {why}", self.config.calm));
        }
        let rests = self.unrest().is_none();
        let whole = self.bricks_unrest().is_none();
        match self.phase {
            Phase::Calm { busy: true } if whole => {
                self.phase = Phase::Calm { busy: false };
            }
            Phase::Calm { busy: false } if rests => self.begin_reading(),
            Phase::Reading if rests && self.reader.queue.is_empty() => match self.later_unrest() {
                Some((next, _)) => return self.at(next, Event::Rest),
                None => return self.finish_run(),
            },
            _ => {}
        }
        self.at(self.now + LOOK, Event::Rest);
    }

    /// What comes to rest when nobody asks for anything any more, and when to look for it again.
    fn later_unrest(&mut self) -> Option<(Duration, String)> {
        self.pieces_unrest().or_else(|| self.paths_unrest())
    }

    /// What does not rest yet.
    fn unrest(&mut self) -> Option<String> {
        for (c, client) in self.clients.iter().enumerate().filter(|(_, c)| c.alive) {
            if client.waits() > 0 {
                return Some(format!("client {c} waits for {:?}", client.waiting()));
            }
        }
        self.bricks_unrest()
    }

    fn bricks_unrest(&mut self) -> Option<String> {
        let state = self.store.state().clone();
        for set in state.sets.values() {
            for brick in &set.bricks {
                if !set.view.in_sync.contains(&brick.id) {
                    return Some(format!("set {}: brick {} is not in sync", set.id, brick.id));
                }
                if brick.leaving {
                    return Some(format!("set {}: brick {} does not leave", set.id, brick.id));
                }
            }
        }
        if self.is_emptied() {
            return Some("a set is to be emptied".to_owned());
        }
        for (set, places) in self.places() {
            let mut lsns = BTreeSet::new();
            for (m, brick) in places {
                let shown = self.shown(m);
                let serving = self.process(m).and_then(|p| p.serving(set));
                let Some(serving) = serving else {
                    return Some(format!("set {set}: brick {brick} of server {m} is not open"));
                };
                let report = serving.borrow_mut().core.report(shown);
                if !matches!(report.role, Role::Primary | Role::Secondary) || report.heal.is_some() {
                    return Some(format!("set {set}: brick {brick} is {:?}", report.role));
                }
                if report.role == Role::Primary && report.marked > 0 {
                    return Some(format!(
                        "set {set}: {} files and directories wait for transactions",
                        report.marked
                    ));
                }
                if report.on_their_way > 0 {
                    return Some(format!("set {set}: {} files and directories move", report.on_their_way));
                }
                lsns.insert(report.lsn);
            }
            if lsns.len() != 1 {
                return Some(format!("set {set}: the bricks are at {lsns:?}"));
            }
        }
        None
    }

    fn begin_reading(&mut self) {
        say!(self, "everything rests: all is read");
        self.phase = Phase::Reading;
        let (root, home) = self.history.root();
        self.reader.queue.push_back((home, Op::ReadDir { fid: root, cookie: 0, plus: false }));
        self.reader.seen.insert(root);
        self.read_next();
    }

    fn reading_client(&self) -> usize {
        self.clients.iter().position(|c| c.alive).unwrap_or(0)
    }

    fn read_next(&mut self) {
        let c = self.reading_client();
        if let Some((set, op)) = self.reader.queue.pop_front() {
            self.call(c, set, op, Bytes::new());
        }
    }

    /// An answer came: what it leads to is read too.
    pub(crate) fn on_final_answer(&mut self, c: usize, record: usize) {
        if self.phase != Phase::Reading || c != self.reading_client() {
            return;
        }
        let Some(record) = self.history.get(record) else { return };
        let Some((_, Ok((Body::Page { entries, end }, _)))) = &record.answer else { return self.read_next() };
        let mut more = Vec::new();
        for e in entries {
            if !self.reader.seen.insert(e.fid) {
                continue;
            }
            match e.kind & 0o170_000 {
                0o040_000 => more.push((e.home, Op::ReadDir { fid: e.fid, cookie: 0, plus: false })),
                0o100_000 => {
                    more.push((e.home, Op::GetAttr { fid: e.fid }));
                    more.push((e.home, Op::ListXattr { fid: e.fid }));
                    more.push((e.home, Op::Read { fid: e.fid, offset: 0, len: 1 << 20 }));
                }
                0o120_000 => more.push((e.home, Op::ReadLink { fid: e.fid })),
                _ => {}
            }
        }
        if let (false, Op::ReadDir { fid, .. }, Some(last)) = (*end, &record.op, entries.last()) {
            more.push((record.set, Op::ReadDir { fid: *fid, cookie: last.cookie, plus: false }));
        }
        self.reader.queue.extend(more);
        self.read_next();
    }

    fn finish_run(&mut self) {
        for m in 0..self.machines.len() {
            self.stop(m);
        }
        self.phase = Phase::Over;
        self.check_bricks();
        if !self.has_failed() {
            self.check_stripes();
        }
        if !self.has_failed() {
            self.check_soundness();
        }
        if self.config.histories && !self.has_failed() {
            self.check_history();
        }
    }
}

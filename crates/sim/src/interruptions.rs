//! How often each step of transactions between sets was reached, and how often it was interrupted: whoever asks, or is asked, was
//! killed, lost power, or was deposed while the step was under way. What is under way the product's cores say
//! (`set_core::TransactionStep`). With `--interrupt` steps are interrupted on purpose, rare ones more often.

use crate::rest::Phase;
use crate::store::machine_of;
use crate::world::{Event, World};
use cluster::Set;
use core::fmt;
use ids::{OpId, SetId};
use set_core::{TransactionKind, TransactionStep, Waits};
use std::collections::{BTreeMap, BTreeSet};

/// What happens to a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cause {
    Killed,
    PowerCut,
    /// It lives, and another brick leads its set.
    Deposed,
}

/// How often something happened to whoever waits for the step, and to whoever is asked for it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Sides {
    /// To whoever waits, mostly the coordinator.
    pub asker: u64,
    /// To whoever is asked.
    pub asked: u64,
}

/// What is known of a step.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Interrupted {
    /// How often it was reached.
    pub reached: u64,
    /// Killed meanwhile.
    pub killed: Sides,
    /// Without power meanwhile.
    pub power: Sides,
    /// No primary any more, and alive.
    pub deposed: Sides,
}

impl Interrupted {
    fn of(&mut self, cause: Cause) -> &mut Sides {
        match cause {
            Cause::Killed => &mut self.killed,
            Cause::PowerCut => &mut self.power,
            Cause::Deposed => &mut self.deposed,
        }
    }

    fn add(&mut self, more: &Interrupted) {
        self.reached += more.reached;
        for cause in [Cause::Killed, Cause::PowerCut, Cause::Deposed] {
            let Sides { asker, asked } = *{ *more }.of(cause);
            self.of(cause).asker += asker;
            self.of(cause).asked += asked;
        }
    }

    /// How often it was interrupted, whatever by.
    pub fn interruptions(&self) -> u64 {
        [self.killed, self.power, self.deposed].iter().map(|sides| sides.asker + sides.asked).sum()
    }
}

/// All steps that were reached.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Steps(pub BTreeMap<TransactionStep, Interrupted>);

impl Steps {
    /// Adds those of other runs.
    pub fn add(&mut self, other: &Steps) {
        other.0.iter().for_each(|(step, more)| self.0.entry(*step).or_default().add(more));
    }

    /// All steps of transactions of that kind together.
    pub fn of(&self, kind: TransactionKind) -> Interrupted {
        self.all(|step| step.of == kind)
    }

    /// Those that follow the commit of a rename or an exchange.
    pub fn ends_of(&self, kind: TransactionKind) -> Interrupted {
        self.all(|step| step.of == kind && is_end(step))
    }

    fn all(&self, are: impl Fn(TransactionStep) -> bool) -> Interrupted {
        let mut all = Interrupted::default();
        self.0.iter().filter(|(step, _)| are(**step)).for_each(|(_, more)| all.add(more));
        all
    }
}

impl fmt::Display for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "interrupted: the asker, and whoever is asked")?;
        writeln!(
            f,
            "  {:<30} {:>9} {:>13} {:>13} {:>13}",
            "step", "reached", "killed", "power cut", "deposed"
        )?;
        for (step, n) in &self.0 {
            let sides = |s: Sides| format!("{} {}", s.asker, s.asked);
            let (killed, power, deposed) = (sides(n.killed), sides(n.power), sides(n.deposed));
            let step = format!("{:?}, {:?}", step.of, step.waits);
            writeln!(f, "  {step:<30} {:>9} {killed:>13} {power:>13} {deposed:>13}", n.reached)?;
        }
        Ok(())
    }
}

/// How often the first step of its kind in a run is interrupted on purpose, in thousandths; the `n`th one an `n`th as often, down to
/// the other number.
const FIRST: usize = 150;
const LAST: usize = 5;
/// Likewise where the ends of transactions are interrupted above all. Few runs reach them.
const FIRST_END: usize = 700;

/// Whether it is a step of a rename or an exchange that has committed.
fn is_end(TransactionStep { of, waits }: TransactionStep) -> bool {
    use TransactionKind::{Exchange, MoveDirectory, Rename, RenameBeneath, Replace};
    matches!(of, Exchange | MoveDirectory | Rename | RenameBeneath | Replace)
        && matches!(waits, Waits::Commit | Waits::EntryToDisk | Waits::End | Waits::EndToDisk | Waits::Unmark)
}

impl World {
    /// The core of a set at that machine asks another set: a step of a transaction begins, if it is one.
    pub(crate) fn note_step(&mut self, m: usize, step: Option<TransactionStep>, asked: SetId) {
        let Some(step) = step else { return };
        let known = self.steps.0.entry(step).or_default();
        known.reached += 1;
        let first = match (self.config.interrupt_ends, is_end(step)) {
            (true, true) => FIRST_END,
            (true, false) => LAST,
            (false, _) => FIRST,
        };
        let often = first / usize::try_from(known.reached).unwrap_or(first);
        if self.phase != Phase::Storm
            || !self.interrupts.as_mut().is_some_and(|rng| rng.chance(often.max(LAST)))
        {
            return;
        }
        let known = self.store.state().sets.get(&asked);
        let leads = known.and_then(|set| Some(machine_of(set.brick(set.view.primary?)?.server)));
        let Some(rng) = &mut self.interrupts else { return };
        let victim = if rng.chance(500) { m } else { leads.unwrap_or(m) };
        match rng.below(4) {
            // In the midst of what follows.
            0 | 1 => self.machines[victim].dies_in = u32::try_from(rng.below(5)).ok(),
            2 => {
                let later = rng.millis(0, 5);
                self.at(self.now + later, Event::PowerCut(victim));
            }
            _ => {
                let lasts = rng.millis(1500, 6000);
                self.cut_off(victim, lasts);
            }
        }
    }

    /// The core of a set at that machine has worked: the changes of these transactions are under way. `before`: those of earlier.
    pub(crate) fn note_commits(
        &mut self,
        (m, set): (usize, SetId),
        now: impl Iterator<Item = (OpId, TransactionKind)>,
        before: &mut BTreeSet<OpId>,
    ) {
        let mut under_way = BTreeSet::new();
        for (tx, of) in now {
            if !before.contains(&tx) {
                self.note_step(m, Some(TransactionStep { of, waits: Waits::Commit }), set);
            }
            under_way.insert(tx);
        }
        *before = under_way;
    }

    /// The process of a machine is about to end: which steps are under way in which it takes part?
    pub(crate) fn note_interruptions(&mut self, machine: usize, cause: Cause) {
        self.interrupted(cause, |m, asked, _, _| (m == machine, asked == Some(machine)));
    }

    /// Another brick leads a set from now on. If the primary that did lives, the steps in which it takes part are interrupted.
    pub(crate) fn note_deposed(&mut self, old: &Set) {
        let Some(brick) = old.view.primary.and_then(|primary| old.brick(primary)) else { return };
        let machine = machine_of(brick.server);
        if self.machines[machine].lives() {
            let set = old.id;
            self.interrupted(Cause::Deposed, |m, asked, by, of| {
                (m == machine && by == set, asked == Some(machine) && of == Some(set))
            });
        }
    }

    /// Counts what is under way. `meets` tells of a machine that waits, the one that is asked, the set that waits, and the one that is
    /// asked, whether each of the two sides is met.
    fn interrupted(
        &mut self,
        cause: Cause,
        meets: impl Fn(usize, Option<usize>, SetId, Option<SetId>) -> (bool, bool),
    ) {
        let mut found = Vec::new();
        for (m, other) in self.machines.iter().enumerate() {
            let Some(process) = &other.process else { continue };
            for asked in process.questions.under_way(m) {
                let Some(serving) = process.serving(asked.by) else { continue };
                let Ok(serving) = serving.try_borrow() else { continue };
                let step = serving.core.step_of(asked.ticket);
                found.extend(step.map(|step| (step, meets(m, asked.machine, asked.by, Some(asked.of)))));
            }
            for (set, serving) in process.sets.all() {
                let Ok(serving) = serving.try_borrow() else { continue };
                let (met, _) = meets(m, None, set, None);
                let commits = serving.core.commits();
                found.extend(
                    commits.map(|(_, of)| (TransactionStep { of, waits: Waits::Commit }, (met, false))),
                );
            }
        }
        for (step, (asker, asked)) in found {
            let sides = self.steps.0.entry(step).or_default().of(cause);
            sides.asker += u64::from(asker);
            sides.asked += u64::from(asked);
        }
    }
}

//! Files that move to other sets while faults happen, one by one or because their set is to be emptied, and what clients were told of them as a checker of files understands it.
//!
//! A file that has moved has another fid. To the checker it is the same file: its new fid is taken for the old one, and who
//! asks for the old one afterwards learns nothing. It is told which sets such a file ever lay on, and not when: with power cuts
//! it checks what files contain, and no names.

use crate::rest::Phase;
use crate::rng::Prng;
use crate::store::{Ask, machine_of};
use crate::world::{Event, World};
use crate::{Config, Family};
use cluster::{Command, OptionChange};
use core::time::Duration;
use file_history::Record;
use ids::{Fid, SetId};
use set_core::{FileMove, Input};
use std::collections::{BTreeMap, BTreeSet};
use wire::op::EntryName;
use wire::{Attr, Body, Errno, Name, Op};

/// The option that names sets to empty.
const DRAIN: &str = "cluster.drain";
/// In so many of 1,000 cases all files of a set are to move, or no more.
const EMPTIED: usize = 50;
/// In so many of 1,000 cases a file of several names is to move.
const LINKED: usize = 300;
/// In so many of 1,000 cases a file that is to move, and has its name in another set's directory, is to move there.
const HOME: usize = 700;
/// In so many of 1,000 cases such a file is to move, if there is one.
const AWAY: usize = 500;
/// In so many of 1,000 cases a file is to move that has names in directories of its own set and in others'.
const SCATTERED: usize = 400;

/// In so many of 1,000 cases another set is to answer for a directory.
const GIVEN: usize = 300;
/// In so many of 1,000 of these for all of its set that clients lately made.
const TOGETHER: usize = 500;

/// Names in other sets' directories are looked for among so many calls.
const LATELY: usize = 200;

/// A file whose entry was to lead to its copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Moved {
    file: Fid,
    copy: Fid,
    /// It had several names.
    pub(crate) linked: bool,
    /// Its name was in a directory of another set.
    pub(crate) away: bool,
    /// One of several was.
    pub(crate) scattered: bool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Moves {
    rng: Prng,
    /// `None`: nothing moves.
    every: Option<Duration>,
    moved: Vec<Moved>,
    /// Directories that another set was to answer for.
    given: BTreeSet<Fid>,
}

impl Moves {
    pub(crate) fn draw(seed: u64, config: &Config) -> Moves {
        let mut rng = Prng::new(seed ^ 0x6d_6f76_6573);
        let every = rng.millis(20, 500);
        let works = config.faults.contains(&Family::Moves);
        Moves { rng, every: works.then_some(every), moved: Vec::new(), given: BTreeSet::new() }
    }

    /// From how many bytes on files are placed by room; 0: never.
    pub(crate) fn large(&self) -> u64 {
        let mut rng = Prng::new(self.rng.clone().draw() ^ 0x6c_6172_6765);
        if self.every.is_some() { 1 << (4 + rng.below(12)) } else { 0 }
    }

    /// After which time something moves next.
    pub(crate) fn next(&mut self) -> Option<Duration> {
        let every = self.every?;
        Some(self.rng.between(every / 4, every * 2))
    }

    /// The entry of a file is to lead to its copy.
    pub(crate) fn note(&mut self, op: &Op) {
        if let Op::GiveDir { fid, .. } = op {
            self.given.insert(*fid);
        }
        if let Op::Depart { fid, copy, .. }
        | Op::DepartAll { fid, copy, .. }
        | Op::Retarget { fid, copy, .. } = op
        {
            let (linked, away) = (matches!(op, Op::DepartAll { .. }), matches!(op, Op::Retarget { .. }));
            let scattered = matches!(op, Op::DepartAll { names, .. } if are_scattered(names));
            self.moved.push(Moved { file: *fid, copy: *copy, linked, away, scattered });
        }
    }

    /// How many of these are copies, of such files.
    pub(crate) fn count(&self, fids: impl Iterator<Item = Fid>, of: fn(&Moved) -> bool) -> u64 {
        fids.filter(|fid| self.moved.iter().any(|m| m.copy == *fid && of(m))).count() as u64
    }

    pub(crate) fn are_none(&self) -> bool {
        self.moved.is_empty() && self.given.is_empty()
    }

    /// What clients were told, as if files had kept their fids.
    pub(crate) fn as_one_file(&self, records: &[Record]) -> Vec<Record> {
        records.iter().filter_map(|r| self.record(r)).collect()
    }

    /// Which of these the checker is told of.
    pub(crate) fn kept(&self, records: &[Record]) -> Vec<usize> {
        records.iter().enumerate().filter(|(_, r)| self.record(r).is_some()).map(|(n, _)| n).collect()
    }

    fn record(&self, record: &Record) -> Option<Record> {
        let mut record = record.clone();
        let gone = matches!(record.answer, Some((_, Err(Errno::ESTALE | Errno::ENOENT))));
        let crosses = matches!(record.answer, Some((_, Err(Errno::EXDEV))));
        // The answer of a call that is repeated tells of the file that it made: it has moved since.
        let has_left = |attr: &Attr| attr.nlink == 0 && self.moved.iter().any(|m| m.file == attr.fid);
        let left = matches!(&record.answer, Some((_, Ok((Body::Attr { attr }, _)))) if has_left(attr));
        let is_moved = |fid: Fid| self.moved.iter().any(|m| m.file == fid || m.copy == fid);
        let moved = file_of(&mut record.op).is_some_and(|fid| is_moved(*fid));
        if let Some((_, Ok((Body::Moved { .. }, _)))) = record.answer {
            // Nothing else was done.
            return None;
        }
        let about = record.op.named().unwrap_or_default();
        let has_gone = match (&record.op, &record.answer) {
            (_, Some((_, Err(Errno::ESTALE)))) => true,
            (Op::GetAttr { .. }, Some((_, Ok((body, _))))) => matches!(body, Body::Elsewhere { .. }),
            _ => false,
        };
        let asked_elsewhere = has_gone && about.iter().any(|fid| self.given.contains(fid));
        if (moved && gone) || left || asked_elsewhere {
            if !record.op.changes() {
                return None;
            }
            // It may have been done before the file moved.
            record.answer = None;
        } else if crosses && !self.are_none() {
            return None;
        }
        if let Some(fid) = file_of(&mut record.op) {
            *fid = self.before(*fid);
        }
        if let Op::GetAttrs { fids } = &mut record.op {
            fids.iter_mut().for_each(|fid| *fid = self.before(*fid));
        }
        if let Some((_, Ok((body, _)))) = &mut record.answer {
            self.rename(body);
        }
        Some(record)
    }

    /// By the fids that they had first: the sets on which files have lain that have moved or were to, and all of `sets` for
    /// directories.
    pub(crate) fn sets_of_moved(&self, sets: &BTreeSet<SetId>) -> BTreeMap<Fid, BTreeSet<SetId>> {
        let mut moved: BTreeMap<Fid, BTreeSet<SetId>> = BTreeMap::new();
        for m in &self.moved {
            moved.entry(self.before(m.file)).or_default().insert(m.copy.set);
        }
        moved.extend(self.given.iter().map(|dir| (*dir, sets.clone())));
        moved
    }

    /// The fid that a file had first.
    pub(crate) fn before(&self, fid: Fid) -> Fid {
        // A file may have moved more than once: the last move is undone first.
        self.moved.iter().rev().fold(fid, |fid, m| if m.copy == fid { m.file } else { fid })
    }

    /// With old fids, on the sets that gave them, in place of new ones.
    fn rename(&self, body: &mut Body) {
        let place = |fid: &mut Fid, home: &mut SetId| {
            let before = self.before(*fid);
            if before != *fid {
                (*fid, *home) = (before, before.set);
            }
        };
        match body {
            Body::Attr { attr } | Body::Written { attr, .. } => place(&mut attr.fid, &mut attr.home),
            Body::Elsewhere { fid, home, .. } => place(fid, home),
            Body::Attrs { attrs } => attrs.iter_mut().for_each(|attr| place(&mut attr.fid, &mut attr.home)),
            Body::Page { entries, .. } => {
                for e in entries {
                    place(&mut e.fid, &mut e.home);
                    e.attr.iter_mut().for_each(|attr| place(&mut attr.fid, &mut attr.home));
                }
            }
            _ => {}
        }
    }
}

/// The file that the operation is about, by its fid.
fn file_of(op: &mut Op) -> Option<&mut Fid> {
    match op {
        Op::Link { fid, .. } | Op::LinkIn { fid, .. } | Op::Fsync { fid } => Some(fid),
        op => op.object_mut(),
    }
}

/// A name that led to a file.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Named {
    /// The set of the file.
    set: SetId,
    /// The directory; if that is another set's, the folder of names.
    parent: Fid,
    name: Name,
    fid: Fid,
    /// The set of the directory.
    entry: SetId,
}

/// Whether some of these are in directories of other sets.
pub(crate) fn are_scattered(names: &[EntryName]) -> bool {
    names.iter().any(|place| place.dir.is_names())
}

/// The name that a call gave to a file, or found it by.
fn name_of(record: &Record) -> Option<Named> {
    let (_, Ok((body, _))) = record.answer.as_ref()? else { return None };
    let entry = record.set;
    match (&record.op, body) {
        (
            Op::Create { parent, name, .. } | Op::Lookup { parent, name } | Op::Link { parent, name, .. },
            Body::Attr { attr },
        ) if attr.mode & 0o170_000 == 0o100_000 => {
            Some(Named { set: entry, parent: *parent, name: name.clone(), fid: attr.fid, entry })
        }
        (Op::Lookup { parent, name }, Body::Elsewhere { fid, home, kind: 0o100_000 }) => {
            Some(Named { set: *home, parent: parent.names(), name: name.clone(), fid: *fid, entry })
        }
        (Op::LinkIn { fid, home, parent, name }, _) => {
            Some(Named { set: *home, parent: parent.names(), name: name.clone(), fid: *fid, entry })
        }
        _ => None,
    }
}

/// A directory that a call has made, and the set that answered for it then.
fn directory_of(record: &Record) -> Option<(Fid, SetId)> {
    let (Op::Create { .. }, (_, Ok((body, _)))) = (&record.op, record.answer.as_ref()?) else { return None };
    match body {
        Body::Attr { attr } if attr.is_dir() => Some((attr.fid, attr.home)),
        Body::Elsewhere { fid, home, kind: 0o040_000 } => Some((*fid, *home)),
        _ => None,
    }
}

/// The entries that a call has changed.
fn changed(record: &Record) -> Vec<(Fid, Name)> {
    match &record.op {
        Op::Unlink { parent, name } | Op::Create { parent, name, .. } => vec![(*parent, name.clone())],
        Op::Rename { parent, name, to_parent, to_name, .. }
        | Op::MoveIn { parent, name, to_parent, to_name, .. } => {
            vec![(*parent, name.clone()), (*to_parent, to_name.clone())]
        }
        _ => Vec::new(),
    }
}

/// Files that have names in directories of their own set and in others', or in those of two others; by one of the names.
fn scattered(records: &[Record]) -> Vec<(Named, Vec<EntryName>)> {
    let (mut named, mut later): (Vec<Named>, BTreeSet<(Fid, Name)>) = Default::default();
    for record in records.iter().rev().take(LATELY).filter(|r| !matches!(r.answer, Some((_, Err(_))))) {
        if let Some(it) = name_of(record)
            && later.insert((it.parent.without_names(), it.name.clone()))
        {
            named.push(it);
        }
        later.extend(changed(record));
    }
    let with_others = named.iter().map(|it| (it.clone(), others(&named, it)));
    with_others.filter(|(it, also)| are_scattered(also) || it.parent.is_names() && !also.is_empty()).collect()
}

/// Other names of the same file.
fn others(named: &[Named], it: &Named) -> Vec<EntryName> {
    let same = |n: &&Named| (n.set, n.fid) == (it.set, it.fid);
    let others = named.iter().filter(same).filter(|n| (n.parent, &n.name) != (it.parent, &it.name));
    let also: BTreeSet<(Fid, Name)> = others.map(|n| (n.parent, n.name.clone())).collect();
    also.into_iter().map(|(dir, name)| EntryName { dir, name }).collect()
}

impl World {
    /// Whether the pool has a set emptied.
    pub(crate) fn is_emptied(&self) -> bool {
        self.store.state().volumes.values().any(|v| v.options.contains_key(DRAIN))
    }

    /// The administrator has one set emptied, or none, if the pool hears of it.
    fn empty_set(&mut self, set: Option<SetId>) {
        let living: Vec<usize> = (0..self.machines.len()).filter(|m| self.machines[*m].lives()).collect();
        let Some(m) = self.moves.rng.pick(&living).copied() else { return };
        let Some(volume) = self.store.state().volumes.values().next().map(|v| v.name.clone()) else { return };
        let (key, value) = (DRAIN.to_owned(), set.map(|s| s.0.to_string()));
        self.count(if value.is_some() { "set to empty" } else { "no set to empty" });
        let changes = vec![OptionChange { volume, key, value }];
        self.ask_store(self.now, m, Ask::Propose(Command::SetOptions { changes }, None));
    }

    /// A file is to live on another set, or all of a set.
    pub(crate) fn move_file(&mut self) {
        let Some(next) = self.moves.next() else { return };
        if self.phase == Phase::Over {
            return;
        }
        self.at(self.now + next, Event::Move);
        if self.phase != Phase::Storm {
            // What rests is not to move.
            if self.is_emptied() {
                self.empty_set(None);
            }
            return;
        }
        if self.moves.rng.chance(EMPTIED) {
            let sets: Vec<SetId> = self.store.state().sets.keys().copied().collect();
            let set = self.moves.rng.pick(&sets).copied().filter(|_| self.moves.rng.chance(700));
            return self.empty_set(set);
        }
        if self.moves.rng.chance(GIVEN) {
            return self.give_directory();
        }
        let named: Vec<_> = self.history.records().iter().rev().take(60).filter_map(name_of).collect();
        let sets: Vec<SetId> = self.store.state().sets.keys().copied().collect();
        let mut drawn = self.moves.rng.pick(&named).cloned();
        if self.moves.rng.chance(LINKED) {
            // One of several names, if there is one.
            let has_others = |it: &&Named| !others(&named, it).is_empty();
            drawn = named.iter().find(has_others).cloned().or(drawn);
        } else if self.moves.rng.chance(AWAY) {
            let away = self.history.records().iter().rev().take(LATELY).filter_map(name_of);
            let away: Vec<Named> = away.filter(|it| it.parent.is_names()).collect();
            drawn = self.moves.rng.pick(&away).cloned().or(drawn);
        }
        let mut also = drawn.as_ref().map_or_else(Vec::new, |drawn| others(&named, drawn));
        // One whose name is in another set's directory comes home, or goes to a third set.
        also.retain(|place| drawn.as_ref().is_some_and(|it| !it.parent.is_names()) && !place.dir.is_names());
        if self.moves.rng.chance(SCATTERED)
            && let Some(it) = self.moves.rng.pick(&scattered(self.history.records())).cloned()
        {
            (drawn, also) = (Some(it.0), it.1);
        }
        let Some(drawn) = drawn else { return };
        let Named { set, parent, name, entry, .. } = drawn;
        let comes_home = parent.is_names() && self.moves.rng.chance(HOME);
        let to = if comes_home { Some(entry) } else { self.moves.rng.pick(&sets).copied() };
        let Some(to) = to.filter(|to| *to != set) else { return };
        if let Some(m) = self.leader_of(set) {
            self.count("file to move");
            self.step(m, set, Input::Move(FileMove { parent, name, also, to }));
        }
    }

    /// The machine that leads a set, if it is at work.
    fn leader_of(&self, set: SetId) -> Option<usize> {
        let known = self.store.state().sets.get(&set)?;
        let m = machine_of(known.brick(known.view.primary?)?.server);
        (self.machines[m].lives() && !self.machines[m].is_frozen()).then_some(m)
    }

    /// Another set is to answer for a directory.
    fn give_directory(&mut self) {
        let lately = self.history.records().iter().rev().take(LATELY);
        let made: Vec<(Fid, SetId)> = lately.filter_map(directory_of).collect();
        let sets: Vec<SetId> = self.store.state().sets.keys().copied().collect();
        let Some((fid, set)) = self.moves.rng.pick(&made).copied() else { return };
        let Some(to) = self.moves.rng.pick(&sets).copied().filter(|to| *to != set) else { return };
        let Some(m) = self.leader_of(set) else { return };
        // Several go together.
        let beside = made.iter().filter(|(other, at)| (*other, *at) != (fid, set) && *at == set);
        let beside: Vec<Fid> = beside.map(|(other, _)| *other).collect();
        let most = if self.moves.rng.chance(TOGETHER) { beside.len() } else { 0 };
        for fid in [fid].into_iter().chain(beside.into_iter().take(most)) {
            self.count("directory to go to another set");
            self.step(m, set, Input::Give(fid, to));
        }
    }
}

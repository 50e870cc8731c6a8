//! The model of all names: which entry leads to what, what exists, and who holds it open.
//!
//! After a power cut an entry that was not synced may be what it was at any time since its last sync; the first answer that
//! shows it decides.

mod rules;
mod sync;

use crate::choice::{Choice, Shown};
use ids::{Fid, SetId};
use linearizability::Spec;
use std::collections::{BTreeMap, BTreeSet};
use wire::Errno;

/// An object's position in [`Names::objects`].
pub(crate) type Obj = usize;

pub(crate) const S_IFMT: u32 = 0o170_000;
pub(crate) const S_IFDIR: u32 = 0o040_000;
pub(crate) const S_IFREG: u32 = 0o100_000;
pub(crate) const S_IFLNK: u32 = 0o120_000;

/// An entry: a directory and a name's number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct Key {
    pub(crate) dir: Obj,
    pub(crate) name: usize,
}

/// What is known of an object from the whole history.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    /// `None`: made by a call without an answer, and perhaps never seen.
    pub(crate) fid: Option<Fid>,
    pub(crate) set: SetId,
    /// It has lain on another one as well.
    pub(crate) moved: bool,
    /// Type bits, once somebody was told.
    pub(crate) kind: Option<u32>,
    /// It was seen, but no answer says who made it.
    pub(crate) orphan: bool,
    pub(crate) root: bool,
}

impl Object {
    pub(crate) fn is_dir(&self) -> bool {
        self.kind == Some(S_IFDIR)
    }
}

/// A question about names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Ask {
    Look(Key),
    List(Obj),
    /// Makes an entry.
    Make {
        at: Key,
        kind: u32,
        /// What it leads to if nobody ever saw it.
        unseen: Obj,
        /// Objects that were seen, and that it may have made, if nobody was told.
        seen: Vec<Obj>,
        /// The bit of the client that opens it.
        open: u128,
        /// Why it can't be done.
        must: Option<Errno>,
    },
    Unlink(Key),
    Rmdir(Key),
    Rename {
        from: Key,
        to: Key,
        exchange: bool,
        noreplace: bool,
    },
    Link(Obj, Key),
    /// How many names it has.
    Links(Obj),
    Open(Obj, u128),
    Release(Obj, u128),
    /// A client died: all it had open is closed.
    End(u128),
    /// Anything else about an object.
    Touch(Obj),
    Sync {
        obj: Obj,
        vouches: bool,
    },
    SyncAll(SetId),
    Lose(SetId),
}

/// What was answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Told {
    Done,
    Found(Obj),
    All(Vec<(usize, Obj)>),
    Count(u32),
    Not(Errno),
}

/// A mark of what a call reads or changes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Mark {
    Entry(Key),
    /// Any entry of the directory.
    Within(Obj),
    Links(Obj),
    Life(Obj),
    /// Which directory lies below which.
    Shape,
}

/// A question with what it touches.
#[derive(Clone)]
pub(crate) struct Call {
    pub(crate) ask: Ask,
    pub(crate) reads: Vec<Mark>,
    pub(crate) writes: Vec<Mark>,
    /// What it changes in a way that others may change as well, in any order.
    pub(crate) adds: Vec<Mark>,
    /// The position of the record.
    pub(crate) record: usize,
}

impl std::fmt::Debug for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "#{} {:?}", self.record, self.ask)
    }
}

/// What is known of an object now.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
struct Life {
    /// Somebody was told that it is gone.
    gone: bool,
    /// It was so when everything was synced: it stays so.
    buried: bool,
    /// It was made and not synced.
    fresh: bool,
    /// A loss may have taken it.
    adrift: bool,
    /// It was an orphan and is made.
    born: bool,
    /// It had a name at the last sync and was not removed.
    anchored: bool,
    /// Its name was on another set, which lost it. Its own set need not know: a sync there says nothing of its name.
    bereft: bool,
    /// An entry of this directory was lost.
    lost: bool,
    /// A directory whose entry on another set was removed. Its own set may hear of that later: until then it is there, as
    /// an empty directory that takes no entries.
    ending: bool,
    /// A name was taken from this file since its last sync.
    leaving: bool,
    /// So it was when something was lost, and nobody has met it since: without a name it may be gone, although it is held
    /// open. A sync of everything tells nothing of it.
    torn: bool,
    opens: u128,
}

type Slot = Choice<Option<Obj>>;

/// Where a file went.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Departure {
    obj: Obj,
    to: Key,
    /// What its old name leads to then: what came back for it, in an exchange.
    leaves: Option<Obj>,
    /// The file has one of the two names: nothing but the new one was lost since.
    whole: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct State {
    slots: BTreeMap<Key, Slot>,
    lives: BTreeMap<Obj, Life>,
    /// Entries from which a file went to one in a directory of another set, by a rename that this one has not synced: if
    /// that set loses it, the file is where it was.
    left: BTreeMap<Key, Departure>,
    /// Objects of other sets to which an entry of this set leads that was made and not synced. What lies there in the
    /// object's place may be gone after a loss, whatever the object's own set has synced.
    fresh_links: BTreeSet<(SetId, Obj)>,
}

/// Whether an object is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Presence {
    Present,
    Either,
    Absent,
}

/// The model; what it knows from the whole history.
pub(crate) struct Names {
    pub(crate) objects: Vec<Object>,
    /// Sets that lose something in this history.
    pub(crate) losing: BTreeSet<SetId>,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (key, slot) in &self.slots {
            if slot.is_certain() && slot.kept() == Some(&None) {
                continue;
            }
            let values: Vec<String> = slot
                .values()
                .map(|v| v.map_or("?".into(), |v| v.map_or("-".into(), |o| o.to_string())))
                .collect();
            write!(f, "{}/{}={} ", key.dir, key.name, values.join("|"))?;
        }
        f.debug_map().entries(&self.lives).finish()
    }
}

impl State {
    fn life(&self, obj: Obj) -> Life {
        self.lives.get(&obj).copied().unwrap_or_default()
    }

    fn change(&mut self, obj: Obj, change: impl FnOnce(&mut Life)) {
        let mut life = self.life(obj);
        change(&mut life);
        if life == Life::default() {
            self.lives.remove(&obj);
        } else {
            self.lives.insert(obj, life);
        }
    }

    /// The certain and the possible number of names.
    fn links(&self, obj: Obj) -> (u32, u32) {
        let (mut least, mut most) = (0, 0);
        for slot in self.slots.values().filter(|s| s.values().any(|v| v == Some(&Some(obj)))) {
            most += 1;
            least += u32::from(slot.is_certain());
        }
        (least, most)
    }

    /// How many entries may be several things.
    fn uncertain(&self) -> usize {
        self.slots.values().filter(|slot| !slot.is_certain()).count()
    }

    fn within(&self, dir: Obj) -> impl Iterator<Item = (&Key, &Slot)> {
        self.slots.range(Key { dir, name: 0 }..=Key { dir, name: usize::MAX })
    }

    fn slot(&self, key: Key) -> Slot {
        self.slots.get(&key).cloned().unwrap_or_else(|| Choice::known(None))
    }

    fn put(&mut self, key: Key, slot: Slot) {
        if slot == Choice::known(None) {
            self.slots.remove(&key);
        } else {
            self.slots.insert(key, slot);
        }
    }
}

impl Names {
    fn presence(&self, state: &State, obj: Obj) -> Presence {
        let life = state.life(obj);
        if self.objects[obj].root {
            return Presence::Present;
        }
        if life.gone {
            return Presence::Absent;
        }
        if life.adrift || life.bereft {
            return Presence::Either;
        }
        match state.links(obj) {
            (1.., _) => Presence::Present,
            (0, 1..) => Presence::Either,
            (0, 0) if life.ending => Presence::Either,
            (0, 0) if self.objects[obj].is_dir() => Presence::Absent,
            (0, 0) if life.opens != 0 && !life.torn => Presence::Present,
            // A server may keep for a while what has neither name nor holder.
            (0, 0) => Presence::Either,
        }
    }

    /// Whether the directory, if it is there, may get another entry.
    fn takes_entries(&self, state: &State, dir: Obj) -> bool {
        let life = state.life(dir);
        !life.ending || life.adrift || life.bereft || state.links(dir).1 > 0
    }

    fn is_tracked(&self, dir: Obj) -> bool {
        self.losing.contains(&self.objects[dir].set)
    }

    fn set(&self, state: &mut State, key: Key, value: Option<Obj>) {
        let mut slot = state.slot(key);
        slot.set(Some(value), self.is_tracked(key.dir));
        state.put(key, slot);
        state.left.retain(|from, departure| *from != key && departure.to != key);
    }

    /// An entry in this directory was made that leads to an object of another set.
    fn link_afar(&self, state: &mut State, dir: Obj, obj: Obj) {
        if self.objects[dir].set != self.objects[obj].set && self.is_tracked(dir) {
            state.fresh_links.insert((self.objects[dir].set, obj));
        }
    }

    /// The entry of a directory that was removed, which came back in a loss, or outlived it in one: its set hears of that, and it goes.
    fn entry_goes(&self, state: &State, dir: Obj, obj: Obj) -> bool {
        let life = state.life(obj);
        self.objects[obj].is_dir() && (life.gone || life.ending) && self.may_dangle(state, dir, obj)
    }

    /// The entry turns out to be this. `None`: it can't be.
    fn show(&self, state: &State, key: Key, value: Option<Obj>) -> Option<State> {
        let mut slot = state.slot(key);
        let before: Vec<Obj> = slot.values().flatten().copied().flatten().collect();
        let certain = slot.is_certain();
        let mut shown = slot.show(&value);
        if shown == Shown::Wrong {
            if value.is_some() || !before.iter().any(|o| self.entry_goes(state, key.dir, *o)) {
                return None;
            }
            slot.set(Some(None), self.is_tracked(key.dir));
            shown = Shown::Lost;
        }
        let mut state = state.clone();
        if certain && shown == Shown::Kept {
            return Some(state);
        }
        state.put(key, slot);
        if !self.show_departure(&mut state, key, value) {
            return None;
        }
        if shown == Shown::Lost {
            state.change(key.dir, |l| l.lost = true);
            // The removal of another set's directory was lost. That set may have done its part, and keeps it.
            if let Some(back) = value.filter(|o| state.life(*o).ending) {
                state.change(back, |l| l.adrift = !l.gone);
            }
        }
        for other in before.into_iter().filter(|o| Some(*o) != value) {
            let nameless = state.links(other).1 == 0;
            if nameless && state.life(other).anchored {
                return None;
            }
            if nameless && self.objects[other].set != self.objects[key.dir].set {
                state.change(other, |l| l.bereft = true);
            }
        }
        Some(state)
    }

    /// The entry turns out to be this: with it the other end of a rename is decided. Whether it can be so.
    fn show_departure(&self, state: &mut State, key: Key, value: Option<Obj>) -> bool {
        let found = state.left.iter().find(|(from, departure)| **from == key || departure.to == key);
        let Some((from, Departure { obj, to, leaves, whole })) =
            found.map(|(from, departure)| (*from, *departure))
        else {
            return true;
        };
        state.left.remove(&from);
        if !whole {
            return true;
        }
        let other = if key == to { from } else { to };
        let mut slot = state.slot(other);
        let shown = if value != Some(obj) {
            slot.show(&Some(obj))
        } else if key == to {
            slot.show(&leaves)
        } else {
            slot.rule_out(&Some(obj))
        };
        state.put(other, slot);
        shown != Shown::Wrong
    }

    /// The states in which the entry is known, and what it is.
    fn resolve(&self, state: &State, key: Key) -> Vec<(State, Option<Obj>)> {
        let slot = state.slot(key);
        let values = slot.values().flatten().copied();
        values.filter_map(|v| self.show(state, key, v).map(|s| (s, v))).collect()
    }
}

fn meet(a: &[Mark], b: &[Mark]) -> bool {
    a.iter().any(|m| b.contains(m))
}

impl Spec for Names {
    type State = State;
    type Input = Call;
    type Output = Told;

    fn step(&self, state: &State, call: &Call, told: Option<&Told>) -> impl Iterator<Item = State> {
        self.outcomes(state, &call.ask, told).into_iter()
    }

    fn looks(&self, call: &Call, told: Option<&Told>) -> bool {
        matches!(told, Some(Told::Not(_)))
            || matches!(call.ask, Ask::Look(_) | Ask::List(_) | Ask::Links(_) | Ask::Touch(_))
    }

    fn learns(&self, before: &State, after: &State) -> bool {
        after.uncertain() < before.uncertain()
    }

    fn conflict(&self, a: &Call, b: &Call) -> bool {
        let loses = |c: &Call| matches!(c.ask, Ask::Lose(_));
        let vouches = |c: &Call| matches!(c.ask, Ask::Sync { vouches: true, .. });
        let syncs = |c: &Call| matches!(c.ask, Ask::Sync { .. } | Ask::SyncAll(_));
        let changes = |c: &Call| !c.writes.is_empty() || !c.adds.is_empty();
        if loses(a) || loses(b) || vouches(a) || vouches(b) {
            return true;
        }
        if syncs(a) || syncs(b) {
            return changes(a) || changes(b);
        }
        let one = |a: &Call, b: &Call| {
            meet(&a.writes, &b.reads)
                || meet(&a.writes, &b.writes)
                || meet(&a.writes, &b.adds)
                || meet(&a.adds, &b.reads)
        };
        one(a, b) || one(b, a)
    }
}

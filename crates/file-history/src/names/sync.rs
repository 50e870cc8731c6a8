//! Syncs and power cuts.

use super::rules::is_one_of;
use super::{Ask, Departure, Key, Names, Obj, Presence, State, Told};
use ids::SetId;
use wire::Errno;

impl Names {
    /// Entries that are on disk now, and with them what they lead to.
    fn keep(&self, s: &mut State, key: Key) {
        let mut slot = s.slot(key);
        slot.sync();
        let certain = slot.is_certain();
        let leads = slot.kept().copied().flatten().filter(|_| certain);
        s.put(key, slot);
        if certain {
            s.left.retain(|_, departure| departure.to != key);
        }
        if let Some(obj) = leads {
            s.change(obj, |l| l.anchored = true);
            if self.objects[obj].set == self.objects[key.dir].set {
                s.change(obj, |l| l.fresh = false);
            }
            s.fresh_links.remove(&(self.objects[key.dir].set, obj));
        }
    }

    /// The object is on disk, the entries that lead to it, and if it is a directory its own. `vouches`: nothing of it was
    /// lost before.
    pub(super) fn sync(&self, state: &State, obj: Obj, vouches: bool) -> Option<State> {
        let mut s = state.clone();
        if vouches {
            if s.life(obj).lost {
                return None;
            }
            let keys: Vec<Key> = s.within(obj).map(|(k, _)| *k).collect();
            for key in keys {
                let mut slot = s.slot(key);
                slot.settle();
                s.put(key, slot);
            }
        }
        s.change(obj, |l| (l.fresh, l.adrift, l.leaving, l.torn) = (false, false, false, false));
        let within: Vec<Key> = s.within(obj).map(|(k, _)| *k).collect();
        within.into_iter().for_each(|key| self.keep(&mut s, key));
        let mut above = vec![obj];
        let mut next = 0;
        while let Some(at) = above.get(next).copied() {
            next += 1;
            let names: Vec<Key> =
                s.slots.iter().filter(|(_, slot)| slot.kept() == Some(&Some(at))).map(|(k, _)| *k).collect();
            for key in names.into_iter().filter(|k| self.objects[k.dir].set == self.objects[obj].set) {
                self.keep(&mut s, key);
                s.change(key.dir, |l| l.fresh = false);
                if !above.contains(&key.dir) {
                    above.push(key.dir);
                }
            }
        }
        Some(s)
    }

    pub(super) fn sync_all(&self, state: &State, set: SetId) -> State {
        let mut s = state.clone();
        let keys: Vec<Key> = s.slots.keys().filter(|k| self.objects[k.dir].set == set).copied().collect();
        keys.into_iter().for_each(|key| self.keep(&mut s, key));
        s.fresh_links.retain(|(at, _)| *at != set);
        let objects: Vec<Obj> = s.lives.keys().filter(|o| self.objects[**o].set == set).copied().collect();
        objects.into_iter().for_each(|obj| {
            s.change(obj, |l| {
                (l.fresh, l.leaving, l.buried) = (false, false, l.gone);
            })
        });
        s
    }

    /// A directory goes to another one, above which a directory's name on another set was lost: that set cannot say any more
    /// what lies above.
    pub(super) fn move_below_lost(&self, state: &State, ask: &Ask, out: &mut Vec<State>) {
        let Ask::Rename { from, to, exchange, .. } = ask else { return };
        let there = |dir: Obj| self.presence(state, dir) != Presence::Absent;
        if from.dir == to.dir || !there(from.dir) || !there(to.dir) {
            return;
        }
        for (moved, into) in [(from, to), (to, from)].into_iter().take(1 + usize::from(*exchange)) {
            let known = self.resolve(state, *moved).into_iter();
            for (s, _) in known.filter(|(_, o)| o.is_some_and(|o| self.objects[o].is_dir())) {
                let mut ways = Vec::new();
                self.known_way(s, into.dir, &mut ways);
                out.extend(ways.into_iter().filter(|s| s.life(self.top(s, into.dir)).bereft));
            }
        }
    }

    /// A rename onto the directory that it comes from is refused by what has the new name alone, as in the kernel: nobody looks whether
    /// that directory's set has lost it.
    pub(super) fn rename_onto_lost(
        &self,
        state: &State,
        ask: &Ask,
        told: Option<&Told>,
        out: &mut Vec<State>,
    ) {
        let Ask::Rename { from, to, exchange, .. } = ask else { return };
        let refusal = if *exchange { Errno::EINVAL } else { Errno::ENOTEMPTY };
        if is_one_of(told, &[refusal]) && self.objects[from.dir].set != self.objects[to.dir].set {
            let found = self.resolve(state, *to).into_iter();
            out.extend(found.filter(|(_, target)| *target == Some(from.dir)).map(|(s, _)| s));
        }
    }

    /// A name in a directory that was lost is to change places with the entry which leads to that: the entry's set sees that it cannot be.
    pub(super) fn exchange_with_lost(&self, state: &State, ask: &Ask, out: &mut Vec<State>) {
        let Ask::Rename { from, to, exchange: true, .. } = ask else { return };
        if self.presence(state, from.dir) == Presence::Absent {
            let found = self.resolve(state, *to).into_iter();
            out.extend(found.filter(|(_, o)| *o == Some(from.dir)).map(|(s, _)| s));
        }
    }

    /// The directory above `dir` that lies in no other one.
    fn top(&self, s: &State, dir: Obj) -> Obj {
        let above = |at: &Obj| {
            s.slots.iter().find(|(_, slot)| slot.kept() == Some(&Some(*at))).map(|(key, _)| key.dir)
        };
        std::iter::successors(Some(dir), above).take(self.objects.len()).last().unwrap_or(dir)
    }

    /// A power cut of all bricks of the set.
    pub(super) fn lose(&self, state: &State, set: SetId) -> State {
        let mut s = state.clone();
        let keys: Vec<Key> = s.slots.keys().filter(|k| self.objects[k.dir].set == set).copied().collect();
        for key in keys {
            let mut slot = s.slot(key);
            for obj in slot.since().copied().flatten() {
                s.change(obj, |l| l.torn |= l.leaving);
            }
            slot.lose();
            // What was made and never synced may be gone, and with it every entry that leads to it.
            let fresh = |obj: &Obj| s.life(*obj).fresh || s.fresh_links.contains(&(set, *obj));
            if slot.values().flatten().flatten().any(fresh) {
                slot.widen([Some(None)]);
            }
            s.put(key, slot);
        }
        s.fresh_links.retain(|(at, _)| *at != set);
        for (from, Departure { obj, to, .. }) in s.left.clone() {
            if self.objects[to.dir].set == set {
                let mut slot = s.slot(from);
                slot.widen([Some(Some(obj))]);
                s.put(from, slot);
            }
        }
        let loses = |o: Obj| self.objects[o].set == set;
        for (from, departure) in &mut s.left {
            // Where the file was, or its own set: it may have neither name.
            departure.whole &= !loses(from.dir) && !loses(departure.obj);
        }
        let objects: Vec<Obj> = s.lives.keys().filter(|o| self.objects[**o].set == set).copied().collect();
        for obj in objects {
            s.change(obj, |l| {
                // What was removed may be back, also without a name.
                let back = l.gone && !l.buried;
                l.adrift |= l.fresh || back;
                l.gone &= !back;
                // The set of its name need not lose its part of the removal: then it is there without one.
                l.bereft |= l.ending && !l.gone;
                (l.fresh, l.leaving) = (false, false);
            });
        }
        s
    }
}

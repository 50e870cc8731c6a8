//! What POSIX says about each question.

use super::{Ask, Departure, Key, Names, Obj, Presence, S_IFDIR, State, Told};
use wire::Errno;

/// Whether an answer, if there is one, is one of these errors.
pub(super) fn is_one_of(told: Option<&Told>, errors: &[Errno]) -> bool {
    matches!(told, Some(Told::Not(e)) if errors.contains(e))
}

fn is_done(told: Option<&Told>) -> bool {
    matches!(told, None | Some(Told::Done))
}

impl Names {
    /// The states that explain the answer.
    pub(super) fn outcomes(&self, state: &State, ask: &Ask, told: Option<&Told>) -> Vec<State> {
        let mut out = self.answered(state, ask, told);
        if is_one_of(told, &[Errno::ESTALE]) {
            self.move_below_lost(state, ask, &mut out);
        }
        if is_one_of(told, &[Errno::EINVAL]) {
            self.exchange_with_lost(state, ask, &mut out);
        }
        out
    }

    /// Those of a state in which nothing is asked of a set that lost what it knew.
    fn answered(&self, state: &State, ask: &Ask, told: Option<&Told>) -> Vec<State> {
        let mut out = Vec::new();
        match ask {
            Ask::Look(key) => self.look(state, *key, told, &mut out),
            Ask::List(dir) => self.list(state, *dir, told, &mut out),
            Ask::Make { at, .. } if self.enter(state, at.dir, told, &mut out) => {
                for (s, there) in self.resolve(state, *at) {
                    self.make(&s, ask, there, told, &mut out);
                }
            }
            Ask::Unlink(key) | Ask::Rmdir(key) if self.enter(state, key.dir, told, &mut out) => {
                let dir = matches!(ask, Ask::Rmdir(_));
                for (s, there) in self.resolve(state, *key) {
                    self.remove(&s, *key, there, dir, told, &mut out);
                }
            }
            Ask::Rename { .. } => self.rename_found(state, ask, told, &mut out),
            // Either may be gone.
            Ask::Link(obj, at) if is_one_of(told, &[Errno::ESTALE]) => {
                self.enter(state, at.dir, told, &mut out);
                self.touch(state, *obj, told, &mut out, |_| {});
            }
            Ask::Link(obj, at) if self.enter(state, at.dir, told, &mut out) => {
                for (s, there) in self.resolve(state, *at) {
                    self.link(&s, *obj, *at, there, told, &mut out);
                }
            }
            Ask::Make { .. } | Ask::Unlink(_) | Ask::Rmdir(_) | Ask::Link(..) => {}
            Ask::Links(obj) => {
                let (least, most) = state.links(*obj);
                let fits = matches!(told, Some(Told::Count(n)) if (least..=most).contains(n));
                out.extend(fits.then(|| state.clone()));
            }
            Ask::Open(obj, client) => self.touch(state, *obj, told, &mut out, |l| l.opens |= client),
            Ask::Release(obj, client) => {
                let mut s = state.clone();
                s.change(*obj, |l| l.opens &= !client);
                out.push(s);
            }
            Ask::End(client) => {
                let mut s = state.clone();
                for obj in state.lives.keys() {
                    s.change(*obj, |l| l.opens &= !client);
                }
                out.push(s);
            }
            Ask::Touch(obj) => self.touch(state, *obj, told, &mut out, |_| {}),
            Ask::Sync { obj, vouches } => out.extend(self.sync(state, *obj, *vouches)),
            Ask::SyncAll(set) => out.push(self.sync_all(state, *set)),
            Ask::Lose(set) => out.push(self.lose(state, *set)),
        }
        out
    }

    /// A rename, as far as its directories are there.
    fn rename_found(&self, state: &State, ask: &Ask, told: Option<&Told>, out: &mut Vec<State>) {
        let Ask::Rename { from, to, .. } = ask else { return };
        let enters = self.enter(state, from.dir, told, out);
        let arrives = self.enter(state, to.dir, told, out);
        if !enters && arrives {
            self.rename_onto_lost(state, ask, told, out);
        }
        if !enters || !arrives {
            return;
        }
        for (s, source) in self.resolve(state, *from) {
            for (s, target) in self.resolve(&s, *to) {
                self.rename_placed(s, ask, (source, target), told, out);
            }
        }
    }

    /// The directory of an entry: whether the question goes on to the entry.
    fn enter(&self, state: &State, dir: Obj, told: Option<&Told>, out: &mut Vec<State>) -> bool {
        let presence = self.presence(state, dir);
        if is_one_of(told, &[Errno::ESTALE]) {
            if presence != Presence::Present {
                out.push(self.without(state, dir));
            }
            return false;
        }
        if self.objects[dir].kind.is_some_and(|k| k != S_IFDIR) {
            out.extend(is_one_of(told, &[Errno::ENOTDIR]).then(|| state.clone()));
            return false;
        }
        if presence != Presence::Present && is_one_of(told, &[Errno::ENOENT]) {
            out.push(state.clone());
            return false;
        }
        presence != Presence::Absent
    }

    /// Somebody was told that it is gone.
    fn without(&self, state: &State, obj: Obj) -> State {
        let mut s = state.clone();
        s.change(obj, |l| {
            (l.gone, l.adrift, l.bereft, l.anchored) = (true, false, false, false);
        });
        s
    }

    fn touch(
        &self,
        state: &State,
        obj: Obj,
        told: Option<&Told>,
        out: &mut Vec<State>,
        change: impl FnOnce(&mut super::Life),
    ) {
        let presence = self.presence(state, obj);
        if is_one_of(told, &[Errno::ESTALE, Errno::ENOENT]) {
            if presence != Presence::Present {
                out.push(self.without(state, obj));
            }
        } else if is_done(told) && presence != Presence::Absent {
            let mut s = state.clone();
            s.change(obj, |l| {
                change(l);
                l.torn = false;
            });
            out.push(s);
        }
    }

    fn look(&self, state: &State, key: Key, told: Option<&Told>, out: &mut Vec<State>) {
        if !self.enter(state, key.dir, told, out) {
            return;
        }
        match told {
            Some(Told::Found(obj)) if !state.life(*obj).gone || self.may_dangle(state, key.dir, *obj) => {
                out.extend(self.show(state, key, Some(*obj)))
            }
            Some(Told::Not(Errno::ENOENT)) => out.extend(self.show(state, key, None)),
            _ => {}
        }
    }

    /// Whether the entry of a directory may outlive it: another set has lost it, and the entry's does not know; or the
    /// entry's set has lost the removal, and the other one does not know.
    pub(super) fn may_dangle(&self, state: &State, dir: Obj, obj: Obj) -> bool {
        let (here, there) = (self.objects[dir].set, self.objects[obj].set);
        let back = state.life(obj).ending && self.losing.contains(&here);
        here != there && (self.losing.contains(&there) || back)
    }

    fn list(&self, state: &State, dir: Obj, told: Option<&Told>, out: &mut Vec<State>) {
        if !self.enter(state, dir, told, out) {
            return;
        }
        let Some(Told::All(entries)) = told else { return };
        let mut keys: Vec<Key> = state.within(dir).map(|(k, _)| *k).collect();
        keys.extend(entries.iter().map(|(name, _)| Key { dir, name: *name }));
        keys.sort_unstable();
        keys.dedup();
        let mut s = state.clone();
        for key in keys {
            let value = entries.iter().find(|(name, _)| *name == key.name).map(|(_, obj)| *obj);
            match self.show(&s, key, value) {
                Some(next) => s = next,
                None => return,
            }
        }
        out.push(s);
    }

    fn make(&self, s: &State, ask: &Ask, there: Option<Obj>, told: Option<&Told>, out: &mut Vec<State>) {
        let Ask::Make { at, unseen, seen, open, must, .. } = ask else { return };
        let mut errors = Vec::new();
        errors.extend(there.map(|_| Errno::EEXIST));
        errors.extend(*must);
        if is_one_of(told, &errors) {
            out.push(s.clone());
        }
        if there.is_some() || must.is_some() || !self.takes_entries(s, at.dir) {
            return;
        }
        let made: Vec<Obj> = match told {
            Some(Told::Found(obj)) => vec![*obj],
            None => seen.iter().copied().filter(|o| !s.life(*o).born).chain([*unseen]).collect(),
            _ => vec![],
        };
        for obj in made {
            let mut next = s.clone();
            self.set(&mut next, *at, Some(obj));
            self.link_afar(&mut next, at.dir, obj);
            let (fresh, orphan) = (self.is_tracked(obj), self.objects[obj].orphan);
            next.change(obj, |l| {
                (l.fresh, l.born) = (fresh, orphan);
                l.opens |= open;
            });
            out.push(next);
        }
    }

    /// Whether the directory has no entries: certainly not, perhaps, certainly.
    fn is_empty(&self, s: &State, dir: Obj) -> Option<bool> {
        let mut certain = Some(true);
        for (_, slot) in s.within(dir) {
            if slot.values().all(|v| v != Some(&None)) {
                return Some(false);
            }
            if !slot.is_certain() {
                certain = None;
            }
        }
        certain
    }

    /// All entries of the directory turn out not to be there.
    fn emptied(&self, s: &State, dir: Obj) -> Option<State> {
        let keys: Vec<Key> = s.within(dir).map(|(k, _)| *k).collect();
        keys.into_iter().try_fold(s.clone(), |s, key| self.show(&s, key, None))
    }

    fn remove(
        &self,
        s: &State,
        at: Key,
        there: Option<Obj>,
        dir: bool,
        told: Option<&Told>,
        out: &mut Vec<State>,
    ) {
        let Some(obj) = there else {
            out.extend(is_one_of(told, &[Errno::ENOENT]).then(|| s.clone()));
            return;
        };
        let is_dir = self.objects[obj].is_dir();
        if is_dir != dir && self.objects[obj].kind.is_some() {
            let right: &[Errno] = if dir { &[Errno::ENOTDIR] } else { &[Errno::EISDIR, Errno::EPERM] };
            out.extend(is_one_of(told, right).then(|| s.clone()));
            return;
        }
        if dir && self.is_empty(s, obj) != Some(true) {
            out.extend(is_one_of(told, &[Errno::ENOTEMPTY, Errno::EEXIST]).then(|| s.clone()));
        }
        let emptied = if dir { self.emptied(s, obj) } else { Some(s.clone()) };
        if let Some(mut next) = emptied.filter(|_| is_done(told)) {
            self.set(&mut next, at, None);
            let ending = self.ends_later(obj, at.dir);
            let leaving = self.leaves(obj);
            next.change(obj, |l| (l.anchored, l.ending, l.leaving) = (false, ending, leaving));
            out.push(next);
        }
    }

    /// Whether it is a directory, perhaps on another set than the one that it is an entry of: it hears later that it has gone.
    fn ends_later(&self, obj: Obj, from: Obj) -> bool {
        let object = &self.objects[obj];
        object.is_dir() && (object.moved || object.set != self.objects[from].set)
    }

    /// Whether it matters that a name was taken from it: its place among files without a name is on disk only with a sync.
    fn leaves(&self, obj: Obj) -> bool {
        self.is_tracked(obj) && !self.objects[obj].is_dir()
    }

    /// Whether `dir` is `above` or lies beneath it.
    fn is_beneath(&self, s: &State, dir: Obj, above: Obj) -> bool {
        let (mut at, mut left) = (dir, self.objects.len());
        while at != above {
            let up = s.slots.iter().find(|(_, slot)| slot.kept() == Some(&Some(at))).map(|(k, _)| k.dir);
            left = left.saturating_sub(1);
            match up {
                Some(up) if left > 0 => at = up,
                _ => return false,
            }
        }
        true
    }

    /// The states in which it is known where `dir` lies.
    pub(super) fn known_way(&self, s: State, dir: Obj, out: &mut Vec<State>) {
        let (mut at, mut left) = (dir, self.objects.len());
        while left > 0 {
            let leads = |slot: &super::Slot| slot.values().any(|v| v == Some(&Some(at)));
            let mut above = s.slots.iter().filter(|(_, slot)| leads(slot));
            let (certain, open) = (above.clone().find(|(_, slot)| slot.is_certain()), above.next());
            match (certain, open) {
                (Some((key, _)), _) => at = key.dir,
                (None, Some((key, _))) => {
                    let known = self.resolve(&s, *key);
                    return known.into_iter().for_each(|(s, _)| self.known_way(s, dir, out));
                }
                (None, None) => break,
            }
            left -= 1;
        }
        out.push(s);
    }

    /// A rename in all states in which it is known whether it would put a directory beneath itself or remove one above it, if
    /// that matters.
    fn rename_placed(
        &self,
        s: State,
        ask: &Ask,
        (source, target): (Option<Obj>, Option<Obj>),
        told: Option<&Told>,
        out: &mut Vec<State>,
    ) {
        let Ask::Rename { from, to, exchange, .. } = ask else { return };
        let moves = |o: Option<Obj>| o.filter(|o| self.objects[*o].is_dir() && from.dir != to.dir);
        let down = moves(source).map(|o| (o, to.dir));
        let up = moves(target.filter(|_| *exchange)).map(|o| (o, from.dir));
        let mut states = vec![s];
        for (moved, dir) in down.into_iter().chain(up) {
            for s in std::mem::take(&mut states) {
                if is_one_of(told, &[Errno::EINVAL]) || self.is_beneath(&s, dir, moved) {
                    self.known_way(s, dir, &mut states);
                } else {
                    states.push(s);
                }
            }
        }
        // What is above its source is not empty.
        if is_one_of(told, &[Errno::ENOTEMPTY]) && target.is_some_and(|o| self.objects[o].is_dir()) {
            for s in std::mem::take(&mut states) {
                self.known_way(s, from.dir, &mut states);
            }
        }
        for s in states {
            self.rename(&s, ask, source, target, told, out);
        }
    }

    /// Why the source of a rename can't replace its target. The directory that has to be empty, if it is not certain.
    fn replace(
        &self,
        s: &State,
        from: Obj,
        (source, target): (Obj, Obj),
        errors: &mut Vec<Errno>,
        may: &mut Vec<Errno>,
    ) -> Option<Obj> {
        let is_dir = |o: Obj| self.objects[o].is_dir();
        let mut empty = None;
        match (is_dir(source), is_dir(target)) {
            (false, true) => errors.push(Errno::EISDIR),
            (true, false) => errors.push(Errno::ENOTDIR),
            (true, true) => match self.is_empty(s, target) {
                Some(true) => {}
                Some(false) => errors.extend([Errno::ENOTEMPTY, Errno::EEXIST]),
                None => {
                    may.extend([Errno::ENOTEMPTY, Errno::EEXIST]);
                    empty = Some(target);
                }
            },
            (false, false) => {}
        }
        // A target above the source is not empty, whatever else is wrong with it.
        if is_dir(target) && self.is_beneath(s, from, target) {
            errors.push(Errno::ENOTEMPTY);
        }
        empty
    }

    fn rename(
        &self,
        s: &State,
        ask: &Ask,
        source: Option<Obj>,
        target: Option<Obj>,
        told: Option<&Told>,
        out: &mut Vec<State>,
    ) {
        let Ask::Rename { from, to, exchange, noreplace } = ask else { return };
        let is_dir = |o: &Obj| self.objects[*o].is_dir();
        let mut errors = Vec::new();
        let mut may = Vec::new();
        if source.is_none() || (*exchange && target.is_none()) {
            errors.push(Errno::ENOENT);
        }
        // Its own set is asked, which may have lost it.
        let is_gone = |o: Obj| is_dir(&o) && self.presence(s, o) != Presence::Present;
        let mut moved = [source, target.filter(|_| *exchange)].into_iter().flatten();
        if self.objects[from.dir].set != self.objects[to.dir].set && moved.any(is_gone) {
            may.push(Errno::ENOENT);
        }
        if source.is_some_and(|o| is_dir(&o) && self.is_beneath(s, to.dir, o))
            || (*exchange && target.is_some_and(|o| is_dir(&o) && self.is_beneath(s, from.dir, o)))
        {
            errors.push(Errno::EINVAL);
        }
        let mut empty = None;
        if let (Some(source), Some(target), false) = (source, target, *exchange) {
            if *noreplace {
                errors.push(Errno::EEXIST);
            } else if source != target {
                empty = self.replace(s, from.dir, (source, target), &mut errors, &mut may);
            }
        }
        if is_one_of(told, &errors) || is_one_of(told, &may) {
            out.push(s.clone());
        }
        if !errors.is_empty() || !is_done(told) || !self.takes_entries(s, to.dir) {
            return;
        }
        let Some(mut next) = empty.map_or(Some(s.clone()), |dir| self.emptied(s, dir)) else { return };
        if source != target {
            self.set(&mut next, *to, source);
            let back = target.filter(|_| *exchange);
            self.set(&mut next, *from, back);
            if let Some(moved) = source.filter(|_| self.objects[from.dir].set != self.objects[to.dir].set) {
                self.link_afar(&mut next, to.dir, moved);
                if let Some(back) = back {
                    self.link_afar(&mut next, from.dir, back);
                }
                self.leave(&mut next, *from, (moved, back), *to);
            }
            if let Some(replaced) = target.filter(|_| !exchange) {
                let leaving = self.leaves(replaced);
                let ending = self.ends_later(replaced, to.dir);
                next.change(replaced, |l| {
                    (l.anchored, l.leaving) = (false, leaving);
                    l.ending |= ending;
                });
            }
        }
        out.push(next);
    }

    /// A file goes to a directory of another set: the entry there decides, and need not be on disk yet, also when it is
    /// answered because it could not be synced.
    fn leave(&self, s: &mut State, from: Key, (obj, leaves): (Obj, Option<Obj>), to: Key) {
        if self.is_tracked(to.dir) {
            s.left.insert(from, Departure { obj, to, leaves, whole: true });
        }
    }

    fn link(
        &self,
        s: &State,
        obj: Obj,
        at: Key,
        there: Option<Obj>,
        told: Option<&Told>,
        out: &mut Vec<State>,
    ) {
        let presence = self.presence(s, obj);
        let mut errors = Vec::new();
        errors.extend(there.map(|_| Errno::EEXIST));
        errors.extend(self.objects[obj].is_dir().then_some(Errno::EPERM));
        if presence == Presence::Absent {
            errors.extend([Errno::ESTALE, Errno::ENOENT]);
        }
        let nameless = s.links(obj);
        if nameless.1 == 0 {
            errors.extend([Errno::ENOENT, Errno::ESTALE]);
        }
        let mut may = Vec::new();
        if nameless.0 == 0 {
            may.extend([Errno::ENOENT, Errno::ESTALE]);
        }
        if is_one_of(told, &errors) || is_one_of(told, &may) {
            out.push(s.clone());
        }
        if errors.is_empty() && is_done(told) && self.takes_entries(s, at.dir) {
            let mut next = s.clone();
            self.set(&mut next, at, Some(obj));
            self.link_afar(&mut next, at.dir, obj);
            out.push(next);
        }
    }
}

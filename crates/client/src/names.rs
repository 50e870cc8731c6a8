//! Names of files, kept by a client whose key is for what lies beneath a directory: a set that does not know yet that a file
//! lies there is shown one of its names ([`wire::Op::Show`], docs/design/0027).
//!
//! Always true: names of files that are held open are kept; of others at most [`MAX`], and the oldest go. A name that is not
//! right any more does no harm: the set looks itself.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;

use ids::{Fid, SetId};
use wire::op::rename_flags::EXCHANGE;
use wire::{Attr, Body, Call, Errno, Name, Op};

use crate::call::{Client, Core};
use crate::files::Object;
use crate::sets::lock;

/// Names that are kept of files which are not held open.
const MAX: usize = 1 << 16;

/// A directory and a name in it.
type Place = (Fid, Name);

#[derive(Debug)]
struct Known {
    place: Place,
    /// The directory's set.
    home: SetId,
    age: u64,
    /// How often the file is held open.
    opens: u32,
}

#[derive(Debug, Default)]
struct Table {
    files: HashMap<Fid, Known>,
    places: HashMap<Place, Fid>,
    /// Those that are not held open.
    by_age: BTreeMap<u64, Fid>,
    last: u64,
}

impl Table {
    fn note(&mut self, fid: Fid, place: Place, home: SetId) {
        let opens = self.take(fid).map_or(0, |known| known.opens);
        self.last += 1;
        if let Some(other) = self.places.insert(place.clone(), fid) {
            self.lose_place(other, &place);
        }
        self.files.insert(fid, Known { place, home, age: self.last, opens });
        if opens == 0 {
            self.by_age.insert(self.last, fid);
        }
        if self.by_age.len() > MAX
            && let Some((_, oldest)) = self.by_age.pop_first()
        {
            self.take(oldest);
        }
    }

    /// Another file has the place now: its own name is not known.
    fn lose_place(&mut self, fid: Fid, place: &Place) {
        if self.files.get(&fid).is_some_and(|known| known.place == *place)
            && let Some(known) = self.files.remove(&fid)
        {
            self.by_age.remove(&known.age);
        }
    }

    fn take(&mut self, fid: Fid) -> Option<Known> {
        let known = self.files.remove(&fid)?;
        self.by_age.remove(&known.age);
        if self.places.get(&known.place) == Some(&fid) {
            self.places.remove(&known.place);
        }
        Some(known)
    }

    fn rename(&mut self, from: Place, to: (Place, SetId)) {
        if let Some(fid) = self.places.get(&from).copied() {
            self.note(fid, to.0, to.1);
        } else if let Some(replaced) = self.places.get(&to.0).copied() {
            self.take(replaced);
        }
    }
}

/// What all threads know of them.
#[derive(Debug)]
pub(crate) struct Names {
    /// Mostly no names are needed.
    table: Option<Mutex<Table>>,
}

impl Names {
    pub(crate) fn new(needed: bool) -> Names {
        Names { table: needed.then(Mutex::default) }
    }

    /// Whether names have to be shown.
    pub(crate) fn are_needed(&self) -> bool {
        self.table.is_some()
    }

    fn change<T>(&self, change: impl FnOnce(&mut Table) -> T) -> Option<T> {
        self.table.as_ref().map(|table| change(&mut lock(table)))
    }

    /// A name leads to a file.
    pub(crate) fn note(&self, fid: Fid, dir: Object, name: &Name) {
        self.change(|table| table.note(fid, (dir.fid, name.clone()), dir.home));
    }

    /// A name leads to what an answer tells of, if that is no directory.
    pub(crate) fn note_told(&self, body: &Body, dir: Object, name: &Name) {
        match body {
            Body::Attr { attr: Attr { fid, mode: kind, .. } } | Body::Elsewhere { fid, kind, .. }
                if kind & 0o170_000 != 0o040_000 =>
            {
                self.note(*fid, dir, name);
            }
            _ => {}
        }
    }

    /// A name was moved, or two were exchanged.
    pub(crate) fn renamed(&self, from: (Object, &Name), to: (Object, &Name), flags: u32) {
        self.change(|table| {
            let place = |(dir, name): (Object, &Name)| ((dir.fid, name.clone()), dir.home);
            let (from, to) = (place(from), place(to));
            let exchanged = table.places.get(&to.0).copied().filter(|_| flags & EXCHANGE != 0);
            table.rename(from.0.clone(), to);
            if let Some(fid) = exchanged {
                table.note(fid, from.0, from.1);
            }
        });
    }

    /// A name is gone.
    pub(crate) fn removed(&self, dir: Object, name: &Name) {
        self.change(|table| {
            let place = (dir.fid, name.clone());
            if let Some(fid) = table.places.remove(&place) {
                table.lose_place(fid, &place);
            }
        });
    }

    /// A file is held open once more.
    fn opened(&self, fid: Fid) {
        self.change(|table| {
            if let Some(known) = table.files.get_mut(&fid) {
                known.opens += 1;
                table.by_age.remove(&known.age);
            }
        });
    }

    /// Likewise once less.
    fn closed(&self, fid: Fid) {
        self.change(|table| {
            if let Some(known) = table.files.get_mut(&fid) {
                known.opens = known.opens.saturating_sub(1);
                if known.opens == 0 {
                    table.by_age.insert(known.age, fid);
                }
            }
        });
    }

    fn forget(&self, fid: Fid) {
        self.change(|table| table.take(fid));
    }

    fn show(&self, fid: Fid, shown: Fid, open: bool) -> Option<Op> {
        self.change(|table| {
            let Known { place: (dir, name), home, .. } = table.files.get(&fid)?;
            Some(Op::Show { fid: shown, dir: *dir, name: name.clone(), home: *home, open })
        })?
    }
}

impl Core {
    /// What tells a set that the file is held open.
    pub(crate) fn opening(&self, fid: Fid) -> Op {
        let show = if self.names.are_needed() { self.names.show(self.first(fid), fid, true) } else { None };
        show.unwrap_or(Op::Open { fid })
    }

    /// A file, which may have moved since it was first met, is held open, or not any more.
    pub(crate) fn note_open(&self, fid: Fid, is_open: bool) {
        if self.names.are_needed() {
            let fid = self.first(fid);
            if is_open { self.names.opened(fid) } else { self.names.closed(fid) }
        }
    }
}

impl Client {
    /// Shows a set the names of the files that it did not know in a call; whether it knows one now that it did not.
    pub(crate) fn show(&self, call: &Call) -> bool {
        let names = &self.core.names;
        if !names.are_needed() || matches!(call.op, Op::Show { .. }) {
            return false;
        }
        let shows = |fid: Fid| names.show(self.core.first(fid), fid, false);
        let shows: Vec<Op> = call.op.named().into_iter().flatten().filter_map(shows).collect();
        // The set of the new name asks the file's own one.
        let set = if let Op::LinkIn { home, .. } = &call.op { *home } else { call.set };
        // Each of them: a copy has two.
        let shown: Vec<Result<Body, Errno>> = shows.into_iter().map(|op| self.ask(set, op)).collect();
        !shown.is_empty() && shown.iter().all(Result::is_ok)
    }

    /// Whoever uses the client knows the object no more.
    pub(crate) fn forget_name(&self, object: Object) {
        self.core.names.forget(object.fid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ids::{Epoch, Lsn};

    fn fid(n: u64) -> Fid {
        Fid { set: SetId(1), epoch: Epoch(1), lsn: Lsn(n) }
    }

    fn name(s: &str) -> Name {
        Name::new(s.as_bytes()).unwrap()
    }

    fn shown(names: &Names, n: u64) -> Option<(Fid, Name)> {
        match names.show(fid(n), fid(n), false) {
            Some(Op::Show { dir, name, .. }) => Some((dir, name)),
            _ => None,
        }
    }

    #[test]
    fn names_follow_what_the_client_does() {
        let names = Names::new(true);
        let (d, e) = (Object { fid: fid(1), home: SetId(1) }, Object { fid: fid(2), home: SetId(2) });
        let (a, b) = (name("a"), name("b"));
        names.note(fid(5), d, &a);
        names.renamed((d, &a), (e, &b), 0);
        assert_eq!(shown(&names, 5), Some((fid(2), b.clone())));
        names.note(fid(6), d, &a);
        names.renamed((d, &a), (e, &b), EXCHANGE);
        assert_eq!(
            (shown(&names, 5), shown(&names, 6)),
            (Some((fid(1), a.clone())), Some((fid(2), b.clone())))
        );
        names.renamed((d, &a), (e, &b), 0);
        assert_eq!(
            (shown(&names, 5), shown(&names, 6)),
            (Some((fid(2), b.clone())), None),
            "it was replaced"
        );
        // A directory, whose name is not kept, takes the place.
        names.renamed((d, &a), (e, &b), 0);
        assert_eq!(shown(&names, 5), None);
        names.note(fid(5), d, &a);
        names.removed(d, &b);
        names.removed(d, &a);
        assert_eq!(shown(&names, 5), None);
        let unused = Names::new(false);
        unused.note(fid(5), d, &a);
        assert_eq!(shown(&unused, 5), None);
    }

    #[test]
    fn names_of_open_files_are_kept_and_the_oldest_others_go() {
        let names = Names::new(true);
        let d = Object { fid: fid(1), home: SetId(1) };
        for n in [10, 11] {
            names.note(fid(n), d, &name(&n.to_string()));
        }
        names.opened(fid(10));
        for n in 100..100 + MAX as u64 {
            names.note(fid(n), d, &name(&n.to_string()));
        }
        assert!(shown(&names, 10).is_some() && shown(&names, 11).is_none() && shown(&names, 100).is_some());
        names.closed(fid(10));
        assert!(shown(&names, 10).is_some());
        names.note(fid(99), d, &name("99"));
        assert!(shown(&names, 10).is_none());
        names.forget(fid(99));
        assert!(shown(&names, 99).is_none());
        let table = names.table.as_ref().map(lock).unwrap();
        assert_eq!((table.files.len(), table.places.len(), table.by_age.len()), (MAX, MAX, MAX));
    }
}

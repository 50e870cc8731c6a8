//! Which calls without an answer may have made an object that was seen later.
//!
//! Clients learn of an object by its name. So it was made under a name from which renames lead to the one where it was seen
//! first, and before that was answered.

use crate::names::{Ask, Key, Obj, Object, Told};
use crate::split::Question;
use std::collections::{BTreeMap, BTreeSet};

type Asked = Question<Ask, Told>;

/// Where and until when each orphan was seen first.
fn sightings(objects: &[Object], questions: &[Asked]) -> BTreeMap<Obj, (u64, Key)> {
    let mut first: BTreeMap<Obj, (u64, Key)> = BTreeMap::new();
    let mut saw = |obj: Obj, at: u64, key: Key| {
        if objects[obj].orphan {
            let known = first.entry(obj).or_insert((at, key));
            if at < known.0 {
                *known = (at, key);
            }
        }
    };
    for q in questions {
        match (&q.ask, &q.answer) {
            (Ask::Look(key), Some((Told::Found(obj), at))) => saw(*obj, *at, *key),
            (Ask::List(dir), Some((Told::All(all), at))) => {
                all.iter().for_each(|(name, obj)| saw(*obj, *at, Key { dir: *dir, name: *name }));
            }
            _ => {}
        }
    }
    first
}

/// Where renames may take what is made here.
fn reached(from: Key, renames: &[(Key, Key)]) -> BTreeSet<Key> {
    let mut keys = BTreeSet::from([from]);
    loop {
        let more: Vec<Key> =
            renames.iter().filter(|(a, b)| keys.contains(a) && !keys.contains(b)).map(|r| r.1).collect();
        if more.is_empty() {
            return keys;
        }
        keys.extend(more);
    }
}

/// Tells each call without an answer what it may have made.
pub(crate) fn fill(objects: &[Object], questions: &mut [Asked]) {
    let sightings = sightings(objects, questions);
    let mut renames = Vec::new();
    for q in questions.iter() {
        if let (Ask::Rename { from, to, exchange, .. }, None | Some((Told::Done, _))) = (&q.ask, &q.answer) {
            renames.push((*from, *to));
            renames.extend(exchange.then_some((*to, *from)));
        }
    }
    for q in questions.iter_mut().filter(|q| q.answer.is_none()) {
        let begun = q.begun;
        if let Ask::Make { at, kind, seen, .. } = &mut q.ask {
            let keys = reached(*at, &renames);
            let fits = |(obj, (until, key)): (&Obj, &(u64, Key))| {
                let fits = objects[*obj].kind == Some(*kind) && begun <= *until && keys.contains(key);
                fits.then_some(*obj)
            };
            *seen = sightings.iter().filter_map(fits).collect();
        }
    }
}

//! What each question about names touches: the search need not try the orders of questions that touch nothing in common.

use crate::names::{Ask, Key, Mark, Names, Obj, Told};
use std::collections::{BTreeMap, BTreeSet};

/// Which objects an entry may ever lead to.
#[derive(Default)]
pub(crate) struct Leads(BTreeMap<Key, BTreeSet<Obj>>);

impl Leads {
    /// Learns from all questions and answers of a history.
    pub(crate) fn learn<'a>(calls: impl Iterator<Item = (&'a Ask, Option<&'a Told>)> + Clone) -> Leads {
        let mut leads = Leads::default();
        for (ask, told) in calls.clone() {
            match (ask, told) {
                (Ask::Make { at, .. } | Ask::Look(at), Some(Told::Found(obj))) => leads.add(*at, [*obj]),
                (Ask::Make { at, unseen, seen, .. }, None) => {
                    leads.add(*at, seen.iter().copied().chain([*unseen]));
                }
                (Ask::Link(obj, at), _) => leads.add(*at, [*obj]),
                (Ask::List(dir), Some(Told::All(all))) => {
                    all.iter().for_each(|(name, obj)| leads.add(Key { dir: *dir, name: *name }, [*obj]));
                }
                _ => {}
            }
        }
        loop {
            let before: usize = leads.0.values().map(BTreeSet::len).sum();
            for (ask, told) in calls.clone() {
                if let (Ask::Rename { from, to, exchange, .. }, None | Some(Told::Done)) = (ask, told) {
                    leads.add(*to, leads.of(*from));
                    if *exchange {
                        leads.add(*from, leads.of(*to));
                    }
                }
            }
            if leads.0.values().map(BTreeSet::len).sum::<usize>() == before {
                return leads;
            }
        }
    }

    fn add(&mut self, key: Key, objects: impl IntoIterator<Item = Obj>) {
        self.0.entry(key).or_default().extend(objects);
    }

    /// Entries that may lead to directories.
    fn to_dirs(&self, model: &Names) -> impl Iterator<Item = (Key, Obj)> {
        let all = self.0.iter().flat_map(|(key, objects)| objects.iter().map(|o| (*key, *o)));
        all.filter(|(_, o)| model.objects[*o].kind.is_none_or(|_| model.objects[*o].is_dir()))
    }

    fn of(&self, key: Key) -> Vec<Obj> {
        self.0.get(&key).into_iter().flatten().copied().collect()
    }
}

/// Marks of a question.
#[derive(Default)]
pub(crate) struct Marks {
    pub(crate) reads: Vec<Mark>,
    pub(crate) writes: Vec<Mark>,
    pub(crate) adds: Vec<Mark>,
}

impl Marks {
    fn enter(&mut self, dir: Obj) {
        self.reads.push(Mark::Life(dir));
    }

    fn change(&mut self, key: Key) {
        self.enter(key.dir);
        self.writes.push(Mark::Entry(key));
        self.adds.push(Mark::Within(key.dir));
    }

    /// What is there may lose this name.
    fn unlink(&mut self, model: &Names, objects: &[Obj], dirs: bool) {
        for obj in objects {
            self.adds.push(Mark::Links(*obj));
            if dirs && model.objects[*obj].kind.is_none_or(|_| model.objects[*obj].is_dir()) {
                self.reads.push(Mark::Within(*obj));
                self.writes.push(Mark::Life(*obj));
            }
        }
    }
}

/// What the question touches if it is done.
fn touched(model: &Names, leads: &Leads, ask: &Ask, told: Option<&Told>) -> Marks {
    let mut m = Marks::default();
    let failed = matches!(told, Some(Told::Not(_)));
    match ask {
        Ask::Look(key) => {
            m.enter(key.dir);
            m.reads.push(Mark::Entry(*key));
            if let Some(Told::Found(obj)) = told {
                m.reads.push(Mark::Life(*obj));
            }
        }
        Ask::List(dir) => {
            m.enter(*dir);
            m.reads.push(Mark::Within(*dir));
        }
        Ask::Make { at, unseen, seen, .. } => {
            m.change(*at);
            let made: Vec<Obj> = match told {
                Some(Told::Found(obj)) => vec![*obj],
                Some(_) => vec![],
                None => seen.iter().copied().chain([*unseen]).collect(),
            };
            for obj in made {
                m.writes.extend([Mark::Links(obj), Mark::Life(obj)]);
            }
        }
        Ask::Unlink(key) | Ask::Rmdir(key) => {
            m.change(*key);
            m.unlink(model, &leads.of(*key), matches!(ask, Ask::Rmdir(_)));
        }
        Ask::Rename { from, to, exchange, .. } => {
            m.change(*from);
            m.change(*to);
            let sources = leads.of(*from);
            m.unlink(model, &leads.of(*to), !exchange);
            let dirs = sources
                .iter()
                .chain(&leads.of(*to))
                .any(|o| model.objects[*o].kind.is_none_or(|_| model.objects[*o].is_dir()));
            if dirs && from.dir != to.dir {
                m.writes.push(Mark::Shape);
            }
            m.adds.extend(sources.iter().map(|o| Mark::Links(*o)));
        }
        Ask::Link(obj, at) => {
            m.change(*at);
            m.reads.extend([Mark::Links(*obj), Mark::Life(*obj)]);
            m.adds.push(Mark::Links(*obj));
        }
        Ask::Links(obj) => m.reads.push(Mark::Links(*obj)),
        Ask::Open(obj, _) | Ask::Release(obj, _) => {
            m.reads.push(Mark::Links(*obj));
            m.writes.push(Mark::Life(*obj));
        }
        Ask::Touch(obj) if failed => {
            m.reads.push(Mark::Links(*obj));
            m.writes.push(Mark::Life(*obj));
        }
        Ask::Touch(obj) => m.reads.push(Mark::Life(*obj)),
        Ask::End(_) => m.writes.extend((0..model.objects.len()).map(Mark::Life)),
        Ask::Sync { .. } | Ask::SyncAll(_) | Ask::Lose(_) => {}
    }
    m
}

/// What the question touches, with this answer.
pub(crate) fn marks(model: &Names, leads: &Leads, ask: &Ask, told: Option<&Told>) -> Marks {
    let mut m = touched(model, leads, ask, told);
    let failed = matches!(told, Some(Told::Not(_)));
    if matches!(told, Some(Told::Not(wire::Errno::ESTALE))) {
        // The directory is gone, and stays so.
        let gone: Vec<Obj> =
            m.reads.iter().filter_map(|r| if let Mark::Life(o) = r { Some(*o) } else { None }).collect();
        m.writes.extend(gone.iter().map(|o| Mark::Life(*o)));
        m.reads.extend(gone.iter().map(|o| Mark::Links(*o)));
    } else if failed {
        // It changes nothing.
        let (writes, adds) = (std::mem::take(&mut m.writes), std::mem::take(&mut m.adds));
        m.reads.extend(writes);
        m.reads.extend(adds);
    }
    if !model.losing.is_empty() {
        // A name turns out to be there, or not.
        let shown: Vec<Obj> = match ask {
            Ask::Look(key)
            | Ask::Unlink(key)
            | Ask::Rmdir(key)
            | Ask::Make { at: key, .. }
            | Ask::Link(_, key) => leads.of(*key),
            Ask::Rename { from, to, .. } => leads.of(*from).into_iter().chain(leads.of(*to)).collect(),
            _ => vec![],
        };
        m.adds.extend(shown.into_iter().map(Mark::Links));
        let into_itself = matches!(told, Some(Told::Not(wire::Errno::EINVAL)));
        if m.writes.contains(&Mark::Shape) || into_itself && m.reads.contains(&Mark::Shape) {
            // So does where directories lie.
            for (key, obj) in leads.to_dirs(model) {
                m.reads.push(Mark::Entry(key));
                m.adds.push(Mark::Links(obj));
            }
        }
    }
    m
}

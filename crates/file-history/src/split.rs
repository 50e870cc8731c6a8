//! Takes a history apart: questions about names, and questions about each object.

use crate::emit::Emitter;
use crate::inode::{self, Inode, Inodes};
use crate::makers;
use crate::marks::{Leads, marks};
use crate::names::{self, Names, Obj, Object, S_IFDIR, S_IFMT};
use crate::{Excuses, Loss, Record, Violation};
use ids::{Fid, SetId};
use linearizability::Call;
use std::collections::{BTreeMap, BTreeSet};
use wire::{Body, Name, Op};

/// A question about names, before it is known what it touches.
pub(crate) struct Question<A, T> {
    pub(crate) record: usize,
    pub(crate) ask: A,
    pub(crate) begun: u64,
    pub(crate) answer: Option<(T, u64)>,
    /// The position of one that comes earlier.
    pub(crate) after: Option<usize>,
}

/// The history of all names.
pub(crate) struct NamesPart {
    pub(crate) model: Names,
    pub(crate) calls: Vec<Call<names::Call, names::Told>>,
}

/// The history of objects that are looked at together.
pub(crate) struct Part {
    pub(crate) model: Inodes,
    pub(crate) initial: Vec<Inode>,
    pub(crate) calls: Vec<Call<inode::Call, inode::Told>>,
    objects: Vec<Fid>,
}

impl Part {
    pub(crate) fn legend(&self) -> String {
        format!("the content or the attributes of {:?}", self.objects)
    }
}

/// A history in its parts.
pub(crate) struct Histories {
    pub(crate) names: NamesPart,
    pub(crate) parts: Vec<Part>,
    pub(crate) excused: usize,
    pub(crate) unanswered: usize,
    table: Table,
}

impl Histories {
    pub(crate) fn legend(&self) -> String {
        let objects = self.names.model.objects.iter().enumerate();
        let objects: Vec<String> =
            objects.map(|(i, o)| format!("{i}={}", o.fid.map_or("?".into(), |f| f.to_string()))).collect();
        let names = self.table.names.iter().enumerate().map(|(i, n)| format!("{i}={n:?}"));
        let names: Vec<String> = names.collect();
        format!("the names (objects {}; names {})", objects.join(" "), names.join(" "))
    }
}

/// What the whole history says of objects and names.
pub(crate) struct Table {
    pub(crate) objects: Vec<Object>,
    by_fid: BTreeMap<Fid, Obj>,
    pub(crate) names: Vec<Name>,
    by_name: BTreeMap<Name, usize>,
    pub(crate) clients: BTreeMap<u32, u128>,
    /// How each object was made, if somebody was told.
    pub(crate) made: BTreeMap<Obj, usize>,
    /// Somewhere permission bits are inherited: what a new object gets is not known.
    pub(crate) inherits: bool,
    pub(crate) has_acls: bool,
    pub(crate) losing: BTreeSet<SetId>,
    /// Objects of which somebody was told that they are gone.
    pub(crate) gone: BTreeSet<Obj>,
}

impl Table {
    fn learn(records: &[Record], losses: &[Loss], root: Fid) -> Table {
        let mut table = Table {
            objects: Vec::new(),
            by_fid: BTreeMap::new(),
            names: Vec::new(),
            by_name: BTreeMap::new(),
            clients: BTreeMap::new(),
            made: BTreeMap::new(),
            inherits: false,
            has_acls: false,
            losing: losses.iter().map(|l| l.set).collect(),
            gone: BTreeSet::new(),
        };
        let root = table.object(root);
        table.objects[root].root = true;
        table.objects[root].kind = Some(S_IFDIR);
        let mut seen = BTreeSet::new();
        for (n, r) in records.iter().enumerate() {
            let bit = 1u128 << (table.clients.len() % 128);
            table.clients.entry(r.client).or_insert(bit);
            table.asked(r);
            if let Some((_, Ok((body, _)))) = &r.answer {
                for (fid, kind) in shown(body) {
                    let obj = table.object(fid);
                    table.objects[obj].kind.get_or_insert(kind & S_IFMT);
                    if matches!(r.op, Op::Create { .. }) {
                        table.made.entry(obj).or_insert(n);
                    }
                    seen.insert(obj);
                }
            }
        }
        for obj in seen {
            let orphan = !table.objects[obj].root && !table.made.contains_key(&obj);
            table.objects[obj].orphan = orphan;
        }
        table
    }

    /// Learns from a question.
    fn asked(&mut self, r: &Record) {
        const S_ISGID: u32 = 0o2000;
        match &r.op {
            Op::Create { mode, .. } => self.inherits |= mode & S_ISGID != 0,
            Op::SetAttr { set, .. } => self.inherits |= set.mode.is_some_and(|m| m & S_ISGID != 0),
            Op::SetXattr { name, .. } => self.has_acls |= name.as_bytes().starts_with(b"system.posix_acl"),
            _ => {}
        }
        if let Some((_, Err(wire::Errno::ESTALE | wire::Errno::ENOENT))) = r.answer
            && let Some(fid) = result_fid(&r.op)
        {
            let obj = self.object(fid);
            self.gone.insert(obj);
        }
    }

    pub(crate) fn object(&mut self, fid: Fid) -> Obj {
        let next = self.objects.len();
        let obj = *self.by_fid.entry(fid).or_insert(next);
        if obj == next {
            let (set, moved) = (fid.set, false);
            let object = Object { fid: Some(fid), set, moved, kind: None, orphan: false, root: false };
            self.objects.push(object);
        }
        obj
    }

    /// An object that nobody may ever see.
    pub(crate) fn unseen(&mut self, set: SetId, kind: u32) -> Obj {
        let (moved, kind) = (false, Some(kind));
        self.objects.push(Object { fid: None, set, moved, kind, orphan: false, root: false });
        self.objects.len() - 1
    }

    pub(crate) fn name(&mut self, name: &Name) -> usize {
        let next = self.names.len();
        let n = *self.by_name.entry(name.clone()).or_insert(next);
        if n == next {
            self.names.push(name.clone());
        }
        n
    }

    /// The object as it is made. `None`: not known.
    fn initial(&self, records: &[Record], obj: Obj) -> Inode {
        let made = self.made.get(&obj).and_then(|n| records.get(*n));
        match made.map(|r| &r.op) {
            Some(Op::Create { node, mode, umask, uid, gid, .. }) if !self.inherits => {
                let link = matches!(node, wire::op::Node::Symlink { .. });
                let mode = (!link && !self.has_acls).then_some(mode & 0o7777 & !umask);
                Inode::new(mode, Some(*uid), Some(*gid))
            }
            Some(Op::Create { uid, .. }) => Inode::new(None, Some(*uid), None),
            _ => Inode::new(None, None, None),
        }
    }
}

/// The one object that a question is about, if it goes by its identity.
fn result_fid(op: &Op) -> Option<Fid> {
    match op {
        Op::GetAttr { fid }
        | Op::SetAttr { fid, .. }
        | Op::ReadLink { fid }
        | Op::Open { fid }
        | Op::Read { fid, .. }
        | Op::Write { fid, .. }
        | Op::Fsync { fid }
        | Op::ReadDir { fid, .. }
        | Op::GetXattr { fid, .. }
        | Op::ListXattr { fid }
        | Op::SetXattr { fid, .. }
        | Op::RemoveXattr { fid, .. }
        | Op::Fallocate { fid, .. }
        | Op::Lseek { fid, .. }
        | Op::Link { fid, .. }
        | Op::LinkIn { fid, .. } => Some(*fid),
        _ => None,
    }
}

/// The objects that an answer shows, with their kinds.
fn shown(body: &Body) -> Vec<(Fid, u32)> {
    match body {
        Body::Attr { attr } | Body::Written { attr, .. } => vec![(attr.fid, attr.mode)],
        Body::Elsewhere { fid, kind, .. } => vec![(*fid, *kind)],
        Body::Page { entries, .. } => entries.iter().map(|e| (e.fid, e.kind)).collect(),
        Body::Attrs { attrs } => attrs.iter().map(|attr| (attr.fid, attr.mode)).collect(),
        _ => vec![],
    }
}

/// Takes a history apart.
///
/// # Errors
/// An answer that is wrong whatever the state is.
pub(crate) fn split(
    records: &[Record],
    losses: &[Loss],
    excuses: &Excuses,
    root: (Fid, SetId),
    vouches: &[bool],
) -> Result<Histories, Violation> {
    let table = Table::learn(records, losses, root.0);
    let mut emitter = Emitter::new(records, losses, excuses, table);
    for n in 0..records.len() {
        emitter.record(n, vouches.get(n).copied().unwrap_or_default())?;
    }
    emitter.events();
    emitter.listings()?;
    let Emitter { table, mut names, inodes, excused, unanswered, .. } = emitter;
    makers::fill(&table.objects, &mut names);
    let parts = parts((records, losses, excuses), &table, inodes);
    let mut model = Names { objects: table.objects.clone(), losing: table.losing.clone() };
    for object in &mut model.objects {
        object.moved = object.fid.is_some_and(|fid| excuses.moved.contains_key(&fid));
    }
    let leads = Leads::learn(names.iter().map(|q| (&q.ask, q.answer.as_ref().map(|(told, _)| told))));
    let calls = names
        .into_iter()
        .map(|q| {
            let m = marks(&model, &leads, &q.ask, q.answer.as_ref().map(|(told, _)| told));
            let input =
                names::Call { ask: q.ask, reads: m.reads, writes: m.writes, adds: m.adds, record: q.record };
            Call { input, begun: q.begun, answer: q.answer, after: q.after }
        })
        .collect();
    Ok(Histories { names: NamesPart { model, calls }, parts, excused, unanswered, table })
}

/// A loss, as a question about objects.
fn lost(loss: &Loss, record: usize) -> Call<inode::Call, inode::Told> {
    let input = inode::Call { ask: inode::Ask::Lose, of: 0, record };
    Call { input, begun: loss.from, answer: Some((inode::Told::Done, loss.until)), after: None }
}

/// Groups objects between which data was copied.
fn parts(
    (records, losses, excuses): (&[Record], &[Loss], &Excuses),
    table: &Table,
    questions: Vec<Question<(Obj, inode::Ask), inode::Told>>,
) -> Vec<Part> {
    let mut group: Vec<Obj> = (0..table.objects.len()).collect();
    fn leader(group: &[Obj], mut obj: Obj) -> Obj {
        while group[obj] != obj {
            obj = group[obj];
        }
        obj
    }
    for q in &questions {
        if let (obj, inode::Ask::Copy { from, .. }) = &q.ask {
            let (a, b) = (leader(&group, *obj), leader(&group, *from));
            group[a] = b;
        }
    }
    let mut members: BTreeMap<Obj, Vec<Obj>> = BTreeMap::new();
    let busy: BTreeSet<Obj> = questions.iter().map(|q| q.ask.0).collect();
    let sources = questions.iter().filter_map(|q| match q.ask.1 {
        inode::Ask::Copy { from, .. } => Some(from),
        _ => None,
    });
    for obj in sources.chain(busy).collect::<BTreeSet<Obj>>() {
        members.entry(leader(&group, obj)).or_default().push(obj);
    }
    let mut place: BTreeMap<Obj, (usize, usize)> = BTreeMap::new();
    let mut parts = Vec::new();
    for objects in members.values() {
        objects.iter().enumerate().for_each(|(i, o)| {
            place.insert(*o, (parts.len(), i));
        });
        let may_take = |loss: &Loss| {
            objects.iter().any(|o| match table.objects[*o].fid {
                Some(fid) => excuses.may_take(fid, loss),
                None => table.objects[*o].set == loss.set,
            })
        };
        let losses: Vec<&Loss> = losses.iter().filter(|loss| may_take(loss)).collect();
        let initial = |o: &Obj| {
            let mut inode = table.initial(records, *o);
            inode.parted = table.objects[*o].fid.is_some_and(|fid| excuses.parted.contains_key(&fid));
            inode
        };
        let mut part = Part {
            model: Inodes { tracked: !losses.is_empty() },
            initial: objects.iter().map(initial).collect(),
            calls: Vec::new(),
            objects: objects.iter().filter_map(|o| table.objects[*o].fid).collect(),
        };
        part.calls.extend(losses.into_iter().map(|loss| lost(loss, records.len())));
        parts.push(part);
    }
    let mut moved: Vec<usize> = Vec::with_capacity(questions.len());
    for q in questions {
        let (obj, mut ask) = q.ask;
        let (part, of) = place[&obj];
        if let inode::Ask::Copy { from, .. } = &mut ask {
            *from = place[from].1;
        }
        moved.push(parts[part].calls.len());
        let after = q.after.map(|a| moved[a]);
        let input = inode::Call { ask, of, record: q.record };
        parts[part].calls.push(Call { input, begun: q.begun, answer: q.answer, after });
    }
    parts
}

//! A brick that was away becomes like the one that went on, whatever happened on either and while changes go on.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;
use brick::{Arriving, Brick, Healing, ReadOutcome};
use common::*;
use ids::{Epoch, Fid, Lsn, OpId, SessionId};
use namespace::{Context, Decision, decide};
use std::collections::VecDeque;
use wire::op::{Node, SetAttr, SetTime};
use wire::peer::{PeerBody, Stamp};
use wire::{Change, Op};

struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }
}

/// The objects that operations pick from.
struct World {
    dirs: Vec<Fid>,
    files: Vec<Fid>,
    rng: Rng,
}

impl World {
    fn pick(&mut self, dirs: bool) -> Fid {
        let list = if dirs { &self.dirs } else { &self.files };
        let n = list.len() as u64;
        let i = usize::try_from(self.rng.below(n)).unwrap();
        list[i]
    }

    fn op(&mut self) -> (Op, Vec<u8>) {
        let n = |r: &mut Rng| name(&format!("n{}", r.below(6)));
        let parent = self.pick(true);
        let first = n(&mut self.rng);
        match self.rng.below(12) {
            0..=2 => (create(parent, &first.to_string(), Node::File, 0o644), vec![]),
            3 => (create(parent, &first.to_string(), Node::Dir, 0o755), vec![]),
            4 => {
                let target = wire::codec::Blob(b"somewhere".to_vec());
                (create(parent, &first.to_string(), Node::Symlink { target }, 0o777), vec![])
            }
            5 => (Op::Unlink { parent, name: first }, vec![]),
            6 => (Op::Rmdir { parent, name: first }, vec![]),
            7 | 8 => {
                let (to_parent, to_name) = (self.pick(true), n(&mut self.rng));
                let flags = u32::try_from(self.rng.below(3)).unwrap();
                (Op::Rename { parent, name: first, to_parent, to_name, flags }, vec![])
            }
            9 => (Op::Link { fid: self.pick(false), parent, name: first }, vec![]),
            10 => {
                let data =
                    vec![u8::try_from(self.rng.below(256)).unwrap(); 1 + self.rng.below(5000) as usize];
                let offset = self.rng.below(20000);
                (Op::Write { fid: self.pick(false), offset, append: false, kill_suid: false }, data)
            }
            _ => {
                let size = (self.rng.below(2) == 0).then(|| self.rng.below(20000));
                let mode = Some(0o600 + u32::try_from(self.rng.below(64)).unwrap());
                let mtime = Some(SetTime::At { time: time(self.rng.below(1000)) });
                let set = SetAttr { mode, uid: None, gid: None, size, atime: None, mtime, kill_suid: false };
                (Op::SetAttr { fid: self.pick(false), set }, vec![])
            }
        }
    }

    fn learn(&mut self, change: &Change) {
        if let Change::Create { fid, node, .. } = change {
            match node {
                Node::Dir => self.dirs.push(*fid),
                Node::File => self.files.push(*fid),
                _ => {}
            }
        }
    }
}

fn decided(b: &mut Brick, files: &[Fid], epoch: Epoch, op: &Op, payload: &[u8]) -> Option<(Stamp, Change)> {
    let lsn = b.last().lsn.next();
    let cx = Context {
        set: SET,
        epoch,
        lsn,
        now: time(lsn.0 + u64::from(epoch.0) * 7),
        placed: None,
        payload,
        is_open: &|f| f.lsn.0.is_multiple_of(5) && files.contains(&f),
    };
    match decide(op, b, &cx) {
        Ok(Decision::Change(c, _)) if b.validate(&c).is_ok() => Some((Stamp { epoch, lsn }, c)),
        _ => None,
    }
}

const OP: OpId = OpId { session: SessionId(1), seq: 1 };

enum Said {
    Change(Stamp, Change, Vec<u8>),
    Answer(PeerBody, Vec<u8>),
}

fn answer(p: &mut Brick, question: &PeerBody) -> (PeerBody, Vec<u8>) {
    match question {
        PeerBody::AskObject { fid } => {
            (PeerBody::Object { fid: *fid, object: p.object(*fid).unwrap() }, vec![])
        }
        PeerBody::AskEntries { fid, after } => match p.entries(*fid, *after, 300) {
            Ok((entries, targets, upto)) => {
                (PeerBody::Entries { fid: *fid, after: *after, upto, entries, targets }, vec![])
            }
            Err(_) => (PeerBody::Object { fid: *fid, object: None }, vec![]),
        },
        PeerBody::AskData { fid, offset, len } => {
            let data = match p.read(*fid, *offset, *len) {
                Ok(ReadOutcome::Data(d)) => d,
                Ok(ReadOutcome::NeedsBlocking(j)) => j.run().unwrap(),
                Err(_) => return (PeerBody::Object { fid: *fid, object: None }, vec![]),
            };
            let got = u32::try_from(data.len()).unwrap();
            (PeerBody::Data { fid: *fid, offset: *offset, len: got, end: got < *len }, data)
        }
        _ => unreachable!(),
    }
}

fn run(seed: u64, full: bool) {
    let dir = temp();
    let mut p = new_brick(dir.path(), 1);
    let mut j = new_brick(dir.path(), 2);
    let mut w = World { dirs: vec![ROOT], files: vec![], rng: Rng(seed) };
    let (first, data) = (create(ROOT, "first", Node::File, 0o644), vec![]);
    let mut both = vec![(first, data)];
    for _ in 0..w.rng.below(60) + 1 {
        for (op, data) in std::mem::take(&mut both) {
            if let Some((s, c)) = decided(&mut p, &w.files, Epoch(1), &op, &data) {
                w.learn(&c);
                p.apply(s.clone(), OP, None, &c, &data).unwrap();
                j.apply(s, OP, None, &c, &data).unwrap();
            }
        }
        both.push(w.op());
    }
    let common = p.last();
    // The one that goes away has changes that nobody else saw; the other goes on.
    for _ in 0..w.rng.below(4) {
        let (op, data) = w.op();
        if let Some((s, c)) = decided(&mut j, &w.files, Epoch(1), &op, &data) {
            j.apply(s, OP, None, &c, &data).unwrap();
        }
    }
    let step = |w: &mut World, p: &mut Brick| {
        let (op, data) = w.op();
        let (s, c) = decided(p, &w.files, Epoch(2), &op, &data)?;
        w.learn(&c);
        p.apply(s.clone(), OP, None, &c, &data).unwrap();
        Some((s, c, data))
    };
    for _ in 0..w.rng.below(60) {
        step(&mut w, &mut p);
    }
    let common = if full { Stamp { epoch: Epoch(0), lsn: Lsn(0) } } else { common };
    let mut healing = Healing::begin(&mut j, &common, full).unwrap();
    if !full {
        let missed: Vec<_> = p.iterate(common.lsn.next()).map(Result::unwrap).collect();
        for r in missed {
            let (stamp, change) = (&r.stamp, &r.change);
            healing.apply(&mut j, Arriving { stamp, op: OP, about: None, change, payload: b"" }).unwrap();
        }
    }
    let placed = p.placed().unwrap();
    healing.go_live(&mut j, &p.last(), &placed).unwrap();
    // Questions and what is said are each in order, with any delay between.
    let (mut asked, mut said) = (VecDeque::new(), VecDeque::new());
    let mut live = w.rng.below(120);
    let mut rounds = 0;
    loop {
        rounds += 1;
        assert!(rounds < 100_000, "seed {seed}: healing does not end");
        match w.rng.below(4) {
            0 if live > 0 => {
                live -= 1;
                if let Some((s, c, data)) = step(&mut w, &mut p) {
                    said.push_back(Said::Change(s, c, data));
                }
            }
            1 => {
                if let Some(question) = asked.pop_front() {
                    let (body, data) = answer(&mut p, &question);
                    said.push_back(Said::Answer(body, data));
                }
            }
            2 => match said.pop_front() {
                Some(Said::Change(s, change, payload)) => {
                    let a = Arriving { stamp: &s, op: OP, about: None, change: &change, payload: &payload };
                    healing.apply(&mut j, a).unwrap();
                }
                Some(Said::Answer(body, data)) => {
                    healing
                        .take(&mut j, &body, &data)
                        .unwrap_or_else(|e| panic!("seed {seed}: {e} at {body:?}"));
                }
                None => {}
            },
            _ => asked.extend(healing.ask()),
        }
        if live == 0 && asked.is_empty() && said.is_empty() && healing.is_done() {
            break;
        }
    }
    j.end_heal().unwrap();
    p.flush_attrs().unwrap();
    j.flush_attrs().unwrap();
    assert_eq!(p.last(), j.last(), "seed {seed}");
    let (a, b) = (tree(&dir.path().join("b1")), tree(&dir.path().join("b2")));
    let only = |x: &std::collections::BTreeMap<std::path::PathBuf, Seen>,
                y: &std::collections::BTreeMap<std::path::PathBuf, Seen>| {
        x.keys().filter(|k| !y.contains_key(*k)).cloned().collect::<Vec<_>>()
    };
    assert_eq!((only(&a, &b), only(&b, &a)), (vec![], vec![]), "seed {seed}: only there, only here");
    for (path, seen) in &a {
        let here = b.get(path).unwrap();
        assert!(seen.content == here.content, "seed {seed}: the data of {} differs", path.display());
        let bare = |s: &Seen| Seen { content: vec![], ..s.clone() };
        assert_eq!(bare(seen), bare(here), "seed {seed}: {}", path.display());
    }
    assert_eq!(
        a.len(),
        b.len(),
        "seed {seed}: {:?}",
        b.keys().filter(|k| !a.contains_key(*k)).collect::<Vec<_>>()
    );
}

#[test]
fn what_was_missed_is_healed_while_changes_go_on() {
    for seed in 1..=150 {
        run(seed, false);
    }
}

#[test]
fn a_full_comparison_heals_all() {
    for seed in 1000..1080 {
        run(seed, true);
    }
}

//! Random operations, and a brick that heals from another one in steps that a test takes.

use super::*;
use brick::{Arriving, Brick, HealSession, ReadOutcome, Sums};
use ids::{Epoch, Fid, Lsn, OpId, SessionId};
use namespace::{Context, Decision, decide};
use std::collections::BTreeMap;
use wire::limits::{SMALL_FILE, SUM_BYTES};
use wire::op::{Node, SetAttr, SetTime};
use wire::peer::{PeerBody, Sent, Stamp};
use wire::{Change, Errno, Op};

pub struct Rng(pub u64);

impl Rng {
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }
}

/// The objects that operations pick from.
pub struct World {
    pub dirs: Vec<Fid>,
    pub files: Vec<Fid>,
    pub rng: Rng,
}

impl World {
    pub fn pick(&mut self, dirs: bool) -> Fid {
        let list = if dirs { &self.dirs } else { &self.files };
        let n = list.len() as u64;
        let i = usize::try_from(self.rng.below(n)).unwrap();
        list[i]
    }

    pub fn op(&mut self) -> (Op, Vec<u8>) {
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
                // Some far out: files with holes, of several pieces.
                let far = if self.rng.below(12) == 0 { 3 << 20 } else { 20000 };
                let offset = self.rng.below(far);
                (Op::Write { fid: self.pick(false), offset, append: false, kill_suid: false }, data)
            }
            _ => {
                let size = (self.rng.below(2) == 0).then(|| self.rng.below(20000));
                let mode = Some(0o600 + u32::try_from(self.rng.below(64)).unwrap());
                let mtime = Some(SetTime::At { time: time(self.rng.below(1000)) });
                let set = SetAttr { mode, size, mtime, ..set_attr() };
                (Op::SetAttr { fid: self.pick(false), set }, vec![])
            }
        }
    }

    pub fn learn(&mut self, change: &Change) {
        if let Change::Create { fid, node, .. } = change {
            match node {
                Node::Dir => self.dirs.push(*fid),
                Node::File => self.files.push(*fid),
                _ => {}
            }
        }
    }
}

pub fn decided(
    b: &mut Brick,
    files: &[Fid],
    epoch: Epoch,
    op: &Op,
    payload: &[u8],
) -> Option<(Stamp, Change)> {
    let lsn = b.last().lsn.next();
    let cx = Context {
        set: SET,
        epoch,
        lsn,
        now: time(lsn.0 + u64::from(epoch.0) * 7),
        placed: None,
        payload,
        is_open: &|f| f.lsn.0.is_multiple_of(5) && files.contains(&f),
        op: OP,
        holder: &|_| None,
        agreed: &[],
        incoming: None,
        holds_names: &|_| false,
        is_arriving: &|_| false,
        tx: OpId::default(),
        is_copied: &|_, _| false,
        is_given: &|_, _, _| false,
        has_taken: &|_, _| false,
        above: &BTreeMap::new(),
    };
    match decide(op, b, &cx) {
        Ok(Decision::Change(c, _)) if b.validate(&c).is_ok() => Some((Stamp { epoch, lsn }, c)),
        _ => None,
    }
}

pub const OP: OpId = OpId { session: SessionId(1), seq: 1 };

pub enum Said {
    Change(Stamp, Change, Vec<u8>),
    Answer(PeerBody, Vec<u8>),
}

pub fn read(p: &mut Brick, fid: Fid, offset: u64, len: u32) -> Option<Vec<u8>> {
    match p.read(fid, offset, len) {
        Ok(ReadOutcome::Data(d)) => Some(d.to_vec()),
        Ok(ReadOutcome::NeedsBlocking(j)) => Some(j.run().unwrap().to_vec()),
        Err(_) => None,
    }
}

pub fn nothing(fid: Fid, at: Lsn) -> (PeerBody, Vec<u8>) {
    (PeerBody::Object { fid, at, object: None, data: Sent::Nothing }, vec![])
}

pub fn answer(p: &mut Brick, question: &PeerBody) -> (PeerBody, Vec<u8>) {
    let at = p.last().lsn;
    match question {
        PeerBody::AskObject { fid, data, have } => {
            let object = p.object(*fid).unwrap();
            let small = object
                .as_ref()
                .is_some_and(|o| o.attr.mode & 0o170_000 == 0o100_000 && o.attr.size <= SMALL_FILE.into());
            let content = if *data && small { read(p, *fid, 0, SMALL_FILE) } else { None };
            let (data, payload) = match content {
                Some(c) if *have == Some(brick::sum(&c)) => (Sent::Same, vec![]),
                Some(c) => (Sent::Payload, c),
                None => (Sent::Nothing, vec![]),
            };
            (PeerBody::Object { fid: *fid, at, object, data }, payload)
        }
        PeerBody::AskEntries { fid, after } => match p.entries(*fid, *after, 300) {
            Ok((entries, targets, upto)) => {
                (PeerBody::Entries { fid: *fid, at, after: *after, upto, entries, targets }, vec![])
            }
            Err(_) => nothing(*fid, at),
        },
        PeerBody::AskData { fid, offset, len } => {
            match p.hole(*fid, *offset, Brick::HOLE) {
                Ok(Some((len, end))) => {
                    return (PeerBody::Hole { fid: *fid, at, offset: *offset, len, end }, vec![]);
                }
                Ok(None) => {}
                Err(_) => return nothing(*fid, at),
            }
            let wanted = p.data_before_hole(*fid, *offset, *len).unwrap();
            let data = read(p, *fid, *offset, wanted).unwrap();
            let got = u32::try_from(data.len()).unwrap();
            (PeerBody::Data { fid: *fid, at, offset: *offset, len: got, end: got < wanted }, data)
        }
        PeerBody::AskSums { fid, offset, len, ask } => match p.hole(*fid, *offset, SUM_BYTES.into()) {
            Ok(Some((len, end))) => (PeerBody::Hole { fid: *fid, at, offset: *offset, len, end }, vec![]),
            Ok(None) => {
                let s = p.sums(*fid, *offset, *len).unwrap().run().unwrap();
                let (fid, offset) = (*fid, *offset);
                (PeerBody::Sums { fid, offset, len: s.len, ask: *ask, end: s.end, sums: s.sums }, vec![])
            }
            Err(_) => nothing(*fid, at),
        },
        _ => unreachable!(),
    }
}

/// What the joining brick does with an answer.
pub fn take(healing: &mut HealSession, j: &mut Brick, body: &PeerBody, data: &[u8]) {
    try_take(healing, j, body, data).unwrap();
}

/// Like [`take`], on a disk that may fail.
pub fn try_take(healing: &mut HealSession, j: &mut Brick, body: &PeerBody, data: &[u8]) -> Result<(), Errno> {
    match body {
        PeerBody::Sums { fid, offset, len, ask, end, sums } => {
            if !healing.awaits(*fid, *ask) {
                return Ok(());
            }
            let there = Sums { sums: sums.clone(), len: *len, end: *end };
            let here = j.sums(*fid, *offset, *len).and_then(brick::SumsJob::run);
            healing.compare(j, (*fid, *offset), &there, here)
        }
        _ => healing.take(j, body, data),
    }
}

/// Everything is healed.
pub fn end(j: &mut Brick) {
    j.begin_end().unwrap().run().unwrap();
    j.end_heal().unwrap();
}

/// Up to where the journals agree.
pub fn agreed(p: &Brick, j: &Brick) -> Lsn {
    let mut at = j.last().lsn;
    while at > Lsn(0) && p.stamp_at(at).unwrap() != j.stamp_at(at).unwrap() {
        at = Lsn(at.0 - 1);
    }
    at
}

/// What the primary says first to a brick that comes back.
pub fn accept_join(p: &mut Brick, j: &mut Brick, common: &Stamp, full: bool) -> HealSession {
    try_accept_join(p, j, common, full).unwrap()
}

/// Like [`accept_join`], on a disk that may fail.
pub fn try_accept_join(
    p: &mut Brick,
    j: &mut Brick,
    common: &Stamp,
    full: bool,
) -> Result<HealSession, Errno> {
    let agree = agreed(p, j);
    // Who compares everything gets the newest part of the journal.
    let from = if full { Lsn(p.last().lsn.0 / 2) } else { agree };
    let start = p.stamp_at(from).unwrap().unwrap();
    let mut healing = HealSession::begin(j, (common, &start), agree, full)?;
    assert_eq!(j.last(), start);
    for r in p.iterate(start.lsn.next()).map(Result::unwrap).collect::<Vec<_>>() {
        let (stamp, change) = (&r.stamp, &r.change);
        healing.apply(j, Arriving { stamp, op: OP, result_fid: None, change, payload: b"" })?;
    }
    let mut placed = p.begin_placed().run().unwrap();
    placed.extend(j.begin_placed().run().unwrap());
    healing.on_caught_up(j, &p.last(), placed)?;
    Ok(healing)
}

/// Asks and takes until nothing is stale.
pub fn heal_all(p: &mut Brick, j: &mut Brick, healing: &mut HealSession) {
    while let Some(question) = healing.ask(j) {
        let (body, data) = answer(p, &question);
        take(healing, j, &body, &data);
    }
    while healing.look_at_absent(j).unwrap() {}
    assert!(healing.is_done(j));
    end(j);
}

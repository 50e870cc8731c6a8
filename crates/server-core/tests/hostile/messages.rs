//! Messages made of frozen samples.

use bytes::Bytes;
use ids::{BrickId, Epoch, Fid, Lsn, OpId, SessionId};
use std::path::PathBuf;
use wire::peer::{PeerBody, PeerMessage, Stamp};
use wire::{Body, Call, Change, Fail, Op, Wire};

/// What a message may refer to.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) epoch: Epoch,
    pub(crate) last: Lsn,
    pub(crate) fids: Vec<Fid>,
}

/// A source of messages, the same for each seed.
pub(crate) struct Messages {
    state: u64,
    ops: Vec<Vec<u8>>,
    bodies: Vec<Vec<u8>>,
    answers: Vec<Vec<u8>>,
    changes: Vec<Vec<u8>>,
}

/// Bytes of all samples of a type.
fn samples(kind: &str) -> Vec<Vec<u8>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../wire/testdata/v2").join(kind);
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|f| f.unwrap().path()).collect();
    files.sort();
    let bytes = |file: &PathBuf| {
        let text = std::fs::read_to_string(file).unwrap();
        let (hex, _) = text.strip_prefix("bytes:\n").unwrap().split_once("\nvalue:\n").unwrap();
        let digits: Vec<u32> = hex.chars().filter_map(|c| c.to_digit(16)).collect();
        digits.chunks(2).map(|two| u8::try_from(two[0] * 16 + two[1]).unwrap()).collect()
    };
    files.iter().map(bytes).collect()
}

impl Messages {
    pub(crate) fn new(seed: u64) -> Messages {
        Messages {
            state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            ops: samples("Op"),
            bodies: samples("PeerBody"),
            answers: samples("Body"),
            changes: samples("Change"),
        }
    }

    /// xorshift64*
    fn next(&mut self) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(n.max(1)).unwrap()).unwrap()
    }

    /// True once in `n` times.
    pub(crate) fn chance(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// A number at an edge, or one near those that are in use.
    fn edge(&mut self, known: &Known) -> u64 {
        let near = known.last.0.wrapping_add(self.next() % 5).wrapping_sub(2);
        let all =
            [0, 1, near, near, near, u64::MAX, u64::MAX - 1, 1 << 63, (1 << 63) - 1, 1 << 32, 1 << 20, 4096];
        all[self.below(all.len())]
    }

    /// Bytes that may stand for something: a number of two sizes, or a file that is there.
    fn patch(&mut self, known: &Known) -> Vec<u8> {
        match self.below(4) {
            0 => self.edge(known).to_bytes(),
            1 => {
                let n = self.edge(known);
                let n = if n == u64::MAX { u32::MAX } else { u32::try_from(n & 0xffff_ffff).unwrap() };
                n.to_bytes()
            }
            _ => Wire::to_bytes(&known.fids[self.below(known.fids.len())]),
        }
    }

    /// One of the samples with some places changed, if it still can be read.
    fn mutated<T: Wire>(&mut self, samples: &[Vec<u8>], known: &Known) -> T {
        loop {
            let mut bytes = samples[self.below(samples.len())].clone();
            let patches = 1 + self.below(4);
            for _ in 0..patches {
                let patch = self.patch(known);
                if bytes.len() > patch.len() {
                    // A field's place is not known: those that are right are found soon enough.
                    let at = 1 + self.below(bytes.len() - patch.len());
                    bytes[at..at + patch.len()].copy_from_slice(&patch);
                }
            }
            if let Ok(value) = T::from_bytes(&bytes) {
                return value;
            }
        }
    }

    fn change(&mut self, known: &Known) -> Change {
        let changes = std::mem::take(&mut self.changes);
        let change = self.mutated(&changes, known);
        self.changes = changes;
        change
    }

    fn epoch(&mut self, known: &Known) -> Epoch {
        match self.below(12) {
            0 => Epoch(u32::MAX),
            1 => Epoch(known.epoch.0 + 1),
            2 => Epoch(0),
            _ => known.epoch,
        }
    }

    /// A request of a client or of another set.
    pub(crate) fn call(&mut self, known: &Known) -> Call {
        let ops = std::mem::take(&mut self.ops);
        let op: Op = self.mutated(&ops, known);
        self.ops = ops;
        let seq = if self.chance(4) { self.edge(known) } else { self.next() >> 40 };
        let session = SessionId(self.next() % 3);
        let finished = if self.chance(8) { self.edge(known) } else { 0 };
        Call { set: crate::pool::SET, epoch: self.epoch(known), id: OpId { session, seq }, finished, op }
    }

    /// A message of another brick.
    pub(crate) fn peer(&mut self, known: &Known) -> PeerMessage {
        let bodies = std::mem::take(&mut self.bodies);
        let body = match self.below(4) {
            // The next change, as it is expected, but for what it changes.
            0 => {
                let lsn = Lsn(if self.chance(8) { self.edge(known) } else { known.last.0.saturating_add(1) });
                let stamp = Stamp { epoch: self.epoch(known), lsn };
                let commit = Lsn(if self.chance(8) { self.edge(known) } else { known.last.0 });
                let op = OpId { session: SessionId(1), seq: self.next() >> 40 };
                let result_fid = Some(Fid { set: crate::pool::SET, epoch: stamp.epoch, lsn });
                let change = self.change(known);
                if self.chance(3) {
                    PeerBody::CatchUp { stamp, op, result_fid, change }
                } else {
                    PeerBody::Replicate { stamp, commit, op, result_fid, change }
                }
            }
            _ => self.mutated(&bodies, known),
        };
        self.bodies = bodies;
        let (from, to) = if self.chance(20) {
            (BrickId(u32::MAX), crate::pool::MINE)
        } else {
            (crate::pool::THEIRS, crate::pool::MINE)
        };
        PeerMessage { set: crate::pool::SET, from, to, epoch: self.epoch(known), body }
    }

    /// An answer of another set.
    pub(crate) fn answer(&mut self, known: &Known) -> Result<Body, Fail> {
        if self.chance(3) {
            let errno = i32::try_from(self.below(140)).unwrap() - 5;
            return Err(Fail::Errno { errno });
        }
        let answers = std::mem::take(&mut self.answers);
        let body = self.mutated(&answers, known);
        self.answers = answers;
        Ok(body)
    }

    pub(crate) fn payload(&mut self) -> Bytes {
        let sizes = [0, 0, 0, 1, 100, 4096, 70_000, 2 << 20];
        vec![7; sizes[self.below(sizes.len())]].into()
    }
}

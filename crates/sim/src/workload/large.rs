//! What clients do where files grow large and are striped.

use super::{Object, Workload, nothing, xattr};
use crate::rng::Prng;
use crate::stripes::UNIT;
use bytes::Bytes;
use ids::{SetId, Time};
use wire::Op;
use wire::op::{SetAttr, SetTime};

/// Units that files reach, about.
const UNITS: usize = 5;
/// fallocate(2).
const PUNCH_HOLE: u32 = 3;
/// lseek(2).
const SEEK_DATA: u32 = 3;

impl Workload {
    /// Something with a file. To some files clients append, in others they write where they like, and to some they do both.
    pub(super) fn on_large_file(&mut self, rng: &mut Prng, (fid, home): Object) -> (SetId, Op, Bytes) {
        let offset = place(rng);
        let some = |rng: &mut Prng, most| 1 + u32::try_from(rng.below(most)).unwrap_or(0);
        let op = match rng.below(32) {
            0..4 => Op::Read { fid, offset, len: some(rng, 300) },
            4..6 => Op::Read { fid, offset, len: some(rng, 150_000) },
            6 => Op::Read { fid, offset: 0, len: 1 << 20 },
            7 => Op::GetAttr { fid },
            8 => Op::Lseek { fid, offset, whence: SEEK_DATA + u32::from(rng.chance(500)) },
            9..18 => {
                let most = if rng.chance(700) { 200 } else { 2 * UNIT as usize };
                let len = some(rng, most) as usize;
                self.byte = self.byte % 250 + 1;
                let append = match fid.lsn.0 % 3 {
                    0 => true,
                    1 => false,
                    _ => rng.chance(500),
                };
                let offset = if append { 0 } else { offset };
                let data = vec![self.byte; len];
                return (home, Op::Write { fid, offset, append, kill_suid: false }, data.into());
            }
            18..20 => Op::SetAttr { fid, set: SetAttr { size: Some(offset), ..nothing() } },
            20 => Op::SetAttr { fid, set: SetAttr { size: Some(rng.below(300) as u64), ..nothing() } },
            21..25 => Op::Fsync { fid },
            25 => {
                let len = some(rng, 100_000).into();
                Op::Fallocate { fid, mode: 0, offset, len }
            }
            26 => {
                // Within a unit: holes in several are not punched at once.
                let left = UNIT - offset % UNIT;
                let len = u64::from(some(rng, 3000)).min(left);
                Op::Fallocate { fid, mode: PUNCH_HOLE, offset, len }
            }
            27 => return self.with_attributes(rng, (fid, home)),
            28..31 => Op::Open { fid },
            _ => Op::SyncFs,
        };
        (home, op, Bytes::new())
    }

    fn with_attributes(&self, rng: &mut Prng, (fid, home): Object) -> (SetId, Op, Bytes) {
        let op = match rng.below(4) {
            0 => {
                let data = format!("v{}", rng.below(1_000_000)).into_bytes();
                return (home, Op::SetXattr { fid, name: xattr(rng), flags: 0 }, data.into());
            }
            1 => Op::ListXattr { fid },
            2 => {
                let time = Time { sec: 1000 + rng.below(1000) as i64, nsec: 5 };
                Op::SetAttr { fid, set: SetAttr { mtime: Some(SetTime::At { time }), ..nothing() } }
            }
            _ => match rng.pick(&self.files).copied() {
                Some((to, there)) if there == home && to != fid => {
                    let len = 1 + rng.below(10_000) as u64;
                    Op::CopyRange { from: fid, from_offset: place(rng), to, to_offset: place(rng), len }
                }
                _ => Op::GetAttr { fid },
            },
        };
        (home, op, Bytes::new())
    }
}

/// A position, often near the border of a unit.
fn place(rng: &mut Prng) -> u64 {
    let unit = rng.below(UNITS) as u64 * UNIT;
    match rng.below(6) {
        0..2 => unit,
        2..4 => unit + rng.below(300) as u64,
        4 => unit + UNIT - 1 - rng.below(150) as u64,
        _ => rng.below(300) as u64,
    }
}

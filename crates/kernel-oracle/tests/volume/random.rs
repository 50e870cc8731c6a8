//! Random sequences of operations: each answer is compared.

use crate::rig::{ROOT, Rig};
use kernel_oracle::{Known, Oracle, draw};
use std::collections::{BTreeMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use wire::Op;

/// Operations of a usual run, and of one seed.
const USUAL: u64 = 20_000;
const OF_A_SEED: u64 = 500;
/// Operations that are shown before the one that differs.
const SHOWN: usize = 25;

/// Random numbers from a seed (splitmix64).
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

/// How often each operation was done, and how often it was refused.
type Counts = BTreeMap<&'static str, (u64, u64)>;

/// One seed: its operations, all compared, or what differs.
fn run(seed: u64, ops: u64, counts: &mut Counts) -> Result<(), String> {
    let mut rng = Rng(seed);
    let (mut rig, mut oracle, mut known) = (Rig::new(), Oracle::new(ROOT).unwrap(), Known::new(ROOT));
    let mut past = VecDeque::new();
    for n in 0..ops {
        match rng.below(250) {
            0 => rig = rig.restart(),
            1..=10 => rig.rest(),
            _ => {}
        }
        let (op, payload) = draw(&mut |n| rng.below(n), &known);
        let ours = rig.ask(&op, &payload);
        let said = ours.as_ref().map(|(body, _)| body);
        past.push_back(format!("{n}: {op:?} of {} bytes: {said:?}", payload.len()));
        if past.len() > SHOWN {
            past.pop_front();
        }
        let count = counts.entry(op.name()).or_default();
        if ours.is_ok() {
            count.0 += 1
        } else {
            count.1 += 1
        }
        if let Err(why) = oracle.check(&op, &payload, &ours) {
            let past: Vec<String> = past.into();
            return Err(format!("{}\nORACLE_SEED={seed}: {why}", past.join("\n")));
        }
        known.learn(&op, &ours);
    }
    check_all(&mut rig, &mut oracle)
}

/// Everything that can be reached at the end.
fn check_all(rig: &mut Rig, oracle: &mut Oracle) -> Result<(), String> {
    let mut dirs = vec![ROOT];
    let mut ask = |op: &Op| {
        let ours = rig.ask(op, b"");
        oracle.check(op, b"", &ours).map(|()| ours)
    };
    while let Some(fid) = dirs.pop() {
        drop(ask(&Op::GetAttr { fid })?);
        let listed = ask(&Op::ReadDir { fid, cookie: 0, plus: true })?;
        let Ok((wire::Body::Page { entries, end: true }, _)) = listed else {
            return Err(format!("{fid} is listed as {listed:?}"));
        };
        for e in entries {
            drop(ask(&Op::ListXattr { fid: e.fid })?);
            match e.kind {
                0o040_000 => dirs.push(e.fid),
                0o100_000 => drop(ask(&Op::Read { fid: e.fid, offset: 0, len: 1 << 20 })?),
                0o120_000 => drop(ask(&Op::ReadLink { fid: e.fid })?),
                _ => {}
            }
        }
    }
    Ok(())
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap())
}

#[test]
fn random_operations_are_answered_as_by_the_kernel() {
    let mut counts = Counts::new();
    if let Some(seed) = number("ORACLE_SEED") {
        return run(seed, OF_A_SEED, &mut counts).unwrap_or_else(|why| panic!("{why}"));
    }
    let ops = number("ORACLE_OPS").unwrap_or(USUAL);
    let first = RandomState::new().hash_one(0) >> 8;
    println!("{} seeds from {first}", ops.div_ceil(OF_A_SEED));
    for seed in first..first + ops.div_ceil(OF_A_SEED) {
        run(seed, OF_A_SEED, &mut counts).unwrap_or_else(|why| panic!("{why}"));
    }
    println!("done and refused: {counts:?}");
    // What never succeeds, or is never refused, was not compared.
    let whole = ops >= USUAL;
    for (name, (done, refused)) in &counts {
        let never_refused = matches!(*name, "statfs" | "syncfs" | "release" | "fsync" | "getattrs");
        let both = *done > 0 && (*refused > 0 || never_refused);
        assert!(both || !whole, "{name}: {done} done, {refused} refused");
    }
    assert!(counts.len() >= 25 || !whole, "not all operations were drawn: {counts:?}");
}

//! Renames of directories that give each other up where disks are slow (docs/design/0019).
//!
//! Of two directories each of which is to come beneath the other one, each rename meets the mark of the other one above its target
//! when its own mark is on disk at last. It gives up and begins again, as does the other one later, for ever. No set knows of both.
//! So a directory whose rename came to nothing for such a mark is left alone for a while, by chance longer or not at all.

use alloc::collections::BTreeMap;
use core::time::Duration;
use ids::{Fid, OpId};
use wire::Name;

/// A rename that took less than that has not held up others for long.
const SLOW: Duration = Duration::from_secs(1);
/// How long a directory is left alone, at most.
const LONGEST: Duration = Duration::from_secs(60);
/// How many are remembered.
const MOST: usize = 64;

/// Entries whose directories are left alone, and until when.
#[derive(Debug, Default)]
pub(crate) struct Pauses {
    until: BTreeMap<(Fid, Name), Duration>,
}

impl Pauses {
    /// The rename `tx` of what the entry leads to came to nothing, and took so long. Names of transactions differ by chance.
    pub(crate) fn note(&mut self, now: Duration, (dir, name): (Fid, &Name), tx: OpId, took: Duration) {
        self.until.retain(|_, until| *until > now);
        if took < SLOW || self.until.len() >= MOST {
            return;
        }
        let mixed = (tx.session.0 ^ tx.seq).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let pause = took.saturating_mul(u32::try_from(mixed >> 62).unwrap_or(0)).min(LONGEST);
        self.until.insert((dir, name.clone()), now.saturating_add(pause));
    }

    /// Whether it is left alone still.
    pub(crate) fn hold(&self, now: Duration, dir: Fid, name: &Name) -> bool {
        !self.until.is_empty() && self.until.get(&(dir, name.clone())).is_some_and(|until| now < *until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ids::SessionId;

    #[test]
    fn a_directory_is_left_alone_by_chance() {
        let (second, dir) = (Duration::from_secs, Fid::default());
        let name = |n: u8| Name::new(alloc::format!("{n}").as_bytes()).unwrap();
        let tx = |seq| OpId { session: SessionId(7), seq };
        let held = |n, took, after| {
            let mut pauses = Pauses::default();
            pauses.note(second(100), (dir, &name(1)), tx(n), took);
            assert!(!pauses.hold(second(100), dir, &name(2)), "another one");
            pauses.hold(second(100) + after, dir, &name(1))
        };
        let count = |took, after| (0..100).filter(|n| held(*n, took, after)).count();
        assert_eq!(count(SLOW / 2, Duration::ZERO), 0);
        assert!((60..90).contains(&count(second(10), Duration::ZERO)));
        assert!((10..40).contains(&count(second(10), second(29))));
        assert_eq!((count(second(10), second(30)), count(second(100), LONGEST)), (0, 0));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut pauses = Pauses::default();
        for n in 0..1000_u64 {
            let name = Name::new(alloc::format!("{n}").as_bytes()).unwrap();
            let tx = OpId { session: SessionId(7), seq: n };
            pauses.note(Duration::from_secs(n), (Fid::default(), &name), tx, SLOW);
            assert!(pauses.until.len() <= MOST);
        }
        assert!(!pauses.until.is_empty());
    }
}

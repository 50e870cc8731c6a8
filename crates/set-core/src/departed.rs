//! How many files and directories have moved from here to other sets, and how fast.

use core::time::Duration;

/// Milliseconds over which a rate is worked out.
const OVER: u64 = 3000;

/// How much has moved since this brick became primary.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Departed {
    /// Files.
    pub files: u64,
    /// Those of them that have several names.
    pub linked: u64,
    /// Their lengths.
    pub bytes: u64,
    /// Files that stayed: in use, changed meanwhile, or refused by the other set.
    pub left: u64,
    /// Directories that other sets answer for by now.
    pub directories: u64,
}

/// How fast files move, over the last seconds.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Rate {
    /// When it was last worked out, and what had moved by then.
    sampled: Option<(Duration, Departed)>,
    files: u64,
    bytes: u64,
}

impl Rate {
    /// Files and bytes a second.
    pub(crate) fn get(&self) -> (u64, u64) {
        (self.files, self.bytes)
    }

    /// To be called once a second.
    pub(crate) fn sample(&mut self, now: Duration, departed: Departed) {
        let Some((at, before)) = self.sampled else {
            self.sampled = Some((now, departed));
            return;
        };
        let ms = u64::try_from(now.saturating_sub(at).as_millis()).unwrap_or(u64::MAX);
        if ms < OVER {
            return;
        }
        let rate = |now: u64, before: u64| now.saturating_sub(before).saturating_mul(1000) / ms;
        (self.files, self.bytes) = (rate(departed.files, before.files), rate(departed.bytes, before.bytes));
        self.sampled = Some((now, departed));
    }
}

//! The healing of this brick: its progress, its speed, and whether the primary still answers.

use crate::walks::BothWalks;
use core::time::Duration;
use replica::healing::Progress;

/// A healing that hears nothing of what it waits for begins anew after this time.
const SILENT: Duration = Duration::from_secs(3);
/// Looks further apart than this: the brick's thread stood still.
const GAP: Duration = Duration::from_millis(500);

/// How far a healing is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HealReport {
    /// What is done and left.
    pub progress: Progress,
    /// What is healed goes to disk.
    pub finishing: bool,
    /// How long it has taken.
    pub taken: Duration,
    /// Objects and bytes a second.
    pub rate: (u64, u64),
}

/// A healing under way on this brick.
#[derive(Debug)]
pub(crate) struct Healing {
    pub(crate) inner: replica::healing::HealSession,
    pub(crate) finishing: bool,
    /// What the primary does not have is looked at again.
    pub(crate) looking: bool,
    pub(crate) walks: BothWalks,
    /// The primary was told that all is healed.
    ended: bool,
    heard: Duration,
    /// When it was last looked at whether the primary is silent.
    looked: Duration,
    /// Checksums being worked out here, directories being read, a walk over all of them, and [`Healing::looking`].
    working: u32,
    begun: Duration,
    /// When the rate was last worked out, and what was done by then.
    sampled: (Duration, u64, u64),
    rate: (u64, u64),
}

impl Healing {
    pub(crate) fn new(now: Duration, inner: replica::healing::HealSession) -> Healing {
        Healing {
            walks: BothWalks::new(inner.is_full()),
            inner,
            finishing: false,
            looking: false,
            ended: false,
            heard: now,
            looked: now,
            working: 0,
            begun: now,
            sampled: (now, 0, 0),
            rate: (0, 0),
        }
    }

    /// Whether the stale set is gone: nothing more is healed in this one.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// The stale set is gone.
    pub(crate) fn end(&mut self) {
        self.ended = true;
    }

    /// The primary sent what it waits for.
    pub(crate) fn hear(&mut self, now: Duration) {
        self.heard = now;
    }

    /// Work begins here on which the healing waits: for checksums, or names.
    pub(crate) fn begin_work(&mut self) {
        self.working += 1;
    }

    /// It is done.
    pub(crate) fn end_work(&mut self, now: Duration) {
        self.working -= 1;
        self.hear(now);
    }

    /// Whether the primary has been silent for too long, looked at every now and then. The time does not count in which this
    /// brick is busy itself: `syncing` for the primary, with its last sync or with checksums, or because its thread stood still.
    pub(crate) fn has_waited(&mut self, now: Duration, syncing: bool) -> bool {
        let stood_still = now > self.looked + GAP;
        self.looked = now;
        if syncing || stood_still || self.working > 0 || (self.finishing && !self.ended) {
            self.heard = now;
        }
        now >= self.heard + SILENT
    }

    /// Once a second: how fast it is.
    pub(crate) fn sample(&mut self, now: Duration) {
        let p = self.inner.progress();
        let (at, done, bytes) = self.sampled;
        let ms = u64::try_from(now.saturating_sub(at).as_millis()).unwrap_or(u64::MAX).max(1);
        let rate = |n: u64| n.saturating_mul(1000) / ms;
        self.rate = (rate(p.done.saturating_sub(done)), rate(p.bytes.saturating_sub(bytes)));
        self.sampled = (now, p.done, p.bytes);
    }

    /// How long it has taken.
    pub(crate) fn taken(&self, now: Duration) -> Duration {
        now.saturating_sub(self.begun)
    }

    pub(crate) fn report(&self, now: Duration) -> HealReport {
        let (progress, finishing) = (self.inner.progress(), self.finishing);
        HealReport { progress, finishing, taken: self.taken(now), rate: self.rate }
    }
}

//! The daemon's clocks.
//!
//! Leases are counted on one that runs through suspension of the machine and never jumps; file times come from the wall.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Time since the machine started, suspension included.
pub(crate) fn now() -> Duration {
    let t = clock_gettime(ClockId::Boottime);
    Duration::new(u64::try_from(t.tv_sec).unwrap_or(0), u32::try_from(t.tv_nsec).unwrap_or(0))
}

/// Time since 1970.
pub(crate) fn unix_time() -> Duration {
    let t = wall();
    Duration::new(u64::try_from(t.sec).unwrap_or(0), t.nsec)
}

/// Seconds since 1970.
pub(crate) fn unix_now() -> u64 {
    unix_time().as_secs()
}

/// The time for files.
pub(crate) fn wall() -> ids::Time {
    let t = clock_gettime(ClockId::Realtime);
    ids::Time { sec: t.tv_sec, nsec: u32::try_from(t.tv_nsec).unwrap_or(0) }
}

//! Pools of real servers on loopback addresses, and what tests need around them.
//!
//! Each pool has addresses, a port and a folder of its own, so tests run side by side, but for those that look at
//! the clock ([`alone`]). Whatever a pool started is ended
//! and unmounted when it is dropped, also by a panic; nothing else is ever touched. Waiting is polling with a deadline.

mod disk;
pub(crate) mod files;
mod mounted;
mod network;
mod plain;
mod pool;
mod process;
mod turn;
pub(crate) mod web;

pub(crate) use disk::Disk;
pub(crate) use mounted::Mounted;
pub(crate) use network::Network;
pub(crate) use pool::{Pool, Server};
pub(crate) use process::{
    Output, mortar, mortar_at_a_terminal, mortar_elsewhere, own_mounts, run, spawn, tool,
};
pub(crate) use turn::{Alone, alone};

use std::time::{Duration, Instant};

/// Long enough for a loaded machine, short enough to notice.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(30);

/// Polls until there is something.
pub(crate) fn eventually<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    eventually_within(TEST_TIMEOUT, what, look)
}

/// Likewise, of what takes longer.
pub(crate) fn eventually_within<T>(limit: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let found = poll(limit, || look().ok_or(()));
    found.unwrap_or_else(|()| panic!("{what}: not within {} s", limit.as_secs()))
}

/// Polls until there is no complaint.
pub(crate) fn eventually_ok(what: &str, look: impl FnMut() -> Result<(), String>) {
    eventually_ok_within(TEST_TIMEOUT, what, look);
}

/// Likewise, of what takes longer.
pub(crate) fn eventually_ok_within(limit: Duration, what: &str, look: impl FnMut() -> Result<(), String>) {
    poll(limit, look).unwrap_or_else(|last| panic!("{what}: not within {} s: {last}", limit.as_secs()));
}

/// Looks again and again, at first soon. Most looks are commands: they take time of the processors from what they wait for.
fn poll<T, E>(limit: Duration, mut look: impl FnMut() -> Result<T, E>) -> Result<T, E> {
    let (begun, mut pause) = (Instant::now(), Duration::from_millis(10));
    loop {
        let found = look();
        if found.is_ok() || begun.elapsed() > limit {
            return found;
        }
        std::thread::sleep(pause);
        pause = (pause * 3 / 2).min(Duration::from_millis(80));
    }
}

/// Whether something is mounted exactly there.
pub(crate) fn is_mounted(dir: &std::path::Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    mounts.lines().any(|l| l.split(' ').nth(1) == dir.to_str())
}

/// Whether faults last as long as they may: with FAULTS_LONG in the environment.
pub(crate) fn is_long() -> bool {
    std::env::var_os("FAULTS_LONG").is_some()
}

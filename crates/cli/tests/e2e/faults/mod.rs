//! Faults under load: a writer that records what it was told, a fault, and then the proof that nothing of it is lost and
//! that the bricks of each set are the same.
//!
//! Those that measure pauses run alone. `FAULTS_LONG=1` freezes for 60 s instead of 6.

pub(crate) mod disks;
mod failover;
mod histories;
mod links;
mod processes;
mod verify;
pub(crate) mod wiped;
mod writer;

pub(crate) use verify::all_in_sync;

use crate::harness::{Pool, eventually};
use std::time::Duration;

/// How long something stays broken.
fn a_while() -> Duration {
    if crate::harness::is_long() { Duration::from_secs(60) } else { Duration::from_secs(6) }
}

/// The longest pauses allowed.
const KILLED: Duration = Duration::from_millis(2000);
const SECONDARY_KILLED: Duration = Duration::from_millis(500);
const SILENT: Duration = Duration::from_millis(5000);

/// Three sets on three servers: each server has a primary and a secondary.
const MIXED: [(usize, &str); 6] = [(0, "b1"), (1, "b1"), (1, "b2"), (2, "b2"), (2, "b3"), (0, "b3")];

/// The server that leads the pool's store.
fn leader(pool: &Pool) -> usize {
    eventually("the pool has a leader", || {
        let status = pool.cli("peer status --json");
        let status: serde_json::Value = serde_json::from_str(&status.stdout).ok()?;
        let leader = status["leader"].as_u64()?;
        let address = status["peers"].as_array()?.iter().find(|p| p["id"] == leader)?["address"].as_str()?;
        pool.servers.iter().position(|s| s.address == address)
    })
}

/// The server of a set's primary; sets count from 0.
fn primary(pool: &Pool, replica: usize, set: usize) -> usize {
    eventually("the set has a primary", || {
        let status = pool.cli("volume status v --json");
        let status: serde_json::Value = serde_json::from_str(&status.stdout).ok()?;
        let bricks = status[0]["bricks"].as_array()?.chunks(replica).nth(set)?;
        let host = bricks.iter().find(|b| b["role"] == "primary")?["server"].as_str()?.to_owned();
        pool.servers.iter().position(|s| s.host == host)
    })
}

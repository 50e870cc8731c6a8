//! Watches the shards: a disk that hangs stops its shard's thread, while the control plane renews the server's lease.
//!
//! A shard that has done nothing for a lease's length, and whose own leases are over by then, gets no more of them. That is
//! to its sets what the loss of the lease is to all sets of a server: they answer nothing, also if the thread goes on at
//! this moment, so others may lead. The shard's bricks leave every view that another open brick can carry on. When the
//! thread goes on, the shard gets leases again as soon as it knows of these views, and its bricks heal.

use super::Control;
use super::arbitrate::arbitrate;
use super::status::join_all;
use crate::clock;
use crate::limits::WATCHDOG_WAIT;
use crate::pulse::Pulse;
use crate::shared::lock;
use cluster::{Set, State, Status};
use ids::{BrickId, SetId};
use server_core::ArbitrationRun;
use std::sync::Arc;
use std::time::Duration;

/// How often a shard is looked at.
const LOOK: Duration = Duration::from_millis(100);
/// Looks further apart than this: this process did not run, and its shards no more than the watchdog.
const GAP: Duration = Duration::from_secs(1);
/// Bricks that nobody could stand in for are looked at again after this.
const AGAIN: Duration = Duration::from_millis(500);

/// What a brick of such a shard is shown with.
const HANGS: &str = "its disk, or that of another brick of this server, does not answer";

/// Starts the watch of a shard, for the life of the process.
pub(super) fn start(control: &Arc<Control>, index: usize, pulse: Arc<Pulse>) {
    tokio::spawn(watch(control.clone(), index, pulse));
}

/// Since when a shard has not beaten.
struct Still {
    beats: u64,
    since: Duration,
    looked: Duration,
}

impl Still {
    fn new(now: Duration, beats: u64) -> Still {
        Still { beats, since: now, looked: now }
    }

    /// Another look. How long it has done nothing, in time that this process ran.
    fn look(&mut self, now: Duration, beats: u64) -> Duration {
        if beats != self.beats || now > self.looked + GAP {
            *self = Still::new(now, beats);
        }
        self.looked = now;
        now - self.since
    }
}

async fn watch(control: Arc<Control>, index: usize, pulse: Arc<Pulse>) {
    let mut generation = control.generation.subscribe();
    let mut still = Still::new(clock::now(), pulse.beats());
    loop {
        tokio::time::sleep(LOOK).await;
        if generation.has_changed().unwrap_or(false) {
            // Versions of another pool's state mean nothing in this one.
            generation.mark_unchanged();
            pulse.give(0);
        }
        let rests = still.look(clock::now(), pulse.beats());
        // A shard that never beat has not begun.
        if still.beats == 0 || rests <= control.state().lease_length() {
            continue;
        }
        if pulse.withhold(still.beats, clock::now()) {
            tracing::warn!("shard {index} hangs: its sets go on elsewhere");
            replace(&control, index, &pulse, still.beats).await;
            tracing::warn!("shard {index} goes on");
            still = Still::new(clock::now(), pulse.beats());
        }
    }
}

/// Takes the bricks of a shard that gets no leases out of their views, until it goes on.
async fn replace(control: &Control, index: usize, pulse: &Pulse, beats: u64) {
    while pulse.beats() == beats {
        let state = control.state();
        let of_shard = bricks(control, &state, index);
        show(control, of_shard.iter().map(|(_, brick)| *brick));
        // What was asked for is decided when this returns.
        let leave = |set: SetId, brick| arbitrate(control, set, brick, ArbitrationRun::of_hang(set, brick));
        join_all(of_shard.iter().map(|(set, brick)| leave(set.id, *brick))).await;
        tokio::time::sleep(AGAIN).await;
    }
    let state = control.state();
    for (_, brick) in bricks(control, &state, index) {
        let mut errors = lock(&control.shared.brick_errors);
        if errors.get(&brick).is_some_and(|why| why == HANGS) {
            errors.remove(&brick);
        }
    }
    // Everything that was asked for above is agreed on or refused.
    loop {
        match control.store().linearizable_state(WATCHDOG_WAIT).await {
            Ok(state) => return pulse.give(state.version),
            Err(e) => tracing::debug!("shard {index} waits for its leases: {e}"),
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Says in the status of bricks why they are offline.
fn show(control: &Control, bricks: impl Iterator<Item = BrickId>) {
    let mut errors = lock(&control.shared.brick_errors);
    for brick in bricks {
        errors.entry(brick).or_insert_with(|| HANGS.to_owned());
    }
}

/// The sets of a shard that are to be served, with this server's bricks.
fn bricks<'a>(control: &Control, state: &'a State, index: usize) -> Vec<(&'a Set, BrickId)> {
    let started = |s: &Set| state.volumes.get(&s.volume).is_some_and(|v| v.status == Status::Started);
    let of_shard = state.bricks_of(control.shared.me());
    let of_shard = of_shard.filter(|(s, _)| started(s) && control.shared.shard_index(s.id) == Some(index));
    of_shard.map(|(s, b)| (s, b.id)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_without_this_process_does_not_count() {
        let at = Duration::from_millis;
        let mut still = Still::new(at(0), 4);
        assert_eq!(still.look(at(100), 4), at(100));
        assert_eq!(still.look(at(900), 4), at(900));
        assert_eq!(still.look(at(8_000), 4), at(0), "all stood still");
        assert_eq!(still.look(at(8_100), 4), at(100));
        assert_eq!(still.look(at(8_200), 6), at(0), "it goes on");
    }
}

//! The threads that serve sets: made when a set needs one. Which one that is decides [`server_core::Threads`].

use super::status::join_all;
use super::{Control, watchdog};
use crate::shard;
use crate::shared::lock;
use cluster::State;
use ids::{BrickId, SetId};
use server_core::threads::{self, Disk, FRONT};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// What handshakes say: connections are asked for by `set % SLOTS`, which is the set's number, so each goes to the thread
/// of its set.
pub(super) const SLOTS: u16 = u16::MAX;

/// A disk that does not say within this time where it is mounted is not known.
const LOOK: Duration = Duration::from_secs(1);
/// A connection for a set that is about to get its thread waits for it so often, and so long each time.
const WAITS: u32 = 400;
const WAIT: Duration = Duration::from_millis(5);

/// Starts a shard, unless it was started before or the server stops.
///
/// # Errors
/// One line: there can be no more threads.
pub(super) fn start(control: &Arc<Control>, index: usize) -> Result<(), String> {
    let mut threads = lock(&control.threads);
    let Some(threads) = threads.as_mut() else { return Ok(()) };
    let Some((pulse, inbox)) = control.shared.start_shard(index) else { return Ok(()) };
    let thread = shard::start(index, control.shared.clone(), pulse.clone(), inbox);
    threads.push(thread.map_err(|e| format!("start a thread: {e}"))?);
    watchdog::start(control, index, pulse);
    Ok(())
}

/// Gives each set that this server has a brick of a thread.
pub(super) async fn place(control: &Arc<Control>, state: &State) {
    let mut wanted = server_core::bricks_to_open(state, control.shared.me());
    wanted.retain(|set, _| control.shared.shard_index(*set).is_none());
    let disks = join_all(
        wanted.into_iter().map(|(set, brick)| async move { (set, disk(control, state, brick).await) }),
    );
    let disks = disks.await;
    control.shared.placed().forget(|set| !state.sets.contains_key(&set));
    for (set, disk) in disks {
        // Nobody sees the place before there is a thread.
        let mut placed = control.shared.placed();
        if let Err(e) = start(control, placed.place(set, &disk)) {
            tracing::error!("{} is not served: {e}", state.named(set));
        }
    }
}

/// The disk that a brick is on, as far as it can be told at once.
async fn disk(control: &Control, state: &State, brick: BrickId) -> Disk {
    let Some((_, known)) = state.brick(brick) else { return Disk::Unknown(brick) };
    let found = control.looks.at(PathBuf::from(&known.path), LOOK, brick::mount_point).await;
    let found = found.and_then(Result::ok);
    let found = found.and_then(|mount| mount.into_os_string().into_string().ok());
    threads::disk(brick, found.as_deref(), &known.mount)
}

/// The shard for connections that were asked for by this number: that of the set, or the front one if no such set is
/// served here.
pub(super) async fn of_slot(control: &Control, slot: u16) -> usize {
    let set = SetId(slot.into());
    for _ in 0..WAITS {
        if let Some(index) = control.shared.shard_index(set) {
            return index;
        }
        if !server_core::bricks_to_open(&control.state(), control.shared.me()).contains_key(&set) {
            break;
        }
        tokio::time::sleep(WAIT).await;
    }
    FRONT
}

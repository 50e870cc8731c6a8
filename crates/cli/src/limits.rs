//! How long this crate waits for what: one place, so that they can be compared.

use std::time::Duration;

/// For the pool of the demonstration to be ready.
pub(crate) const POOL_READY_WAIT: Duration = Duration::from_secs(30);

/// For a process of the demonstration to end, before it is killed.
pub(crate) const CHILD_END_WAIT: Duration = Duration::from_secs(8);

/// For the demonstration to end in order.
pub(crate) const CLEAN_END_WAIT: Duration = Duration::from_secs(15);

/// For the bricks of the demonstration to be in sync.
pub(crate) const IN_SYNC_WAIT: Duration = Duration::from_secs(20);

/// For a server that is being probed to answer.
pub(crate) const PROBE_WAIT: Duration = Duration::from_secs(5);

/// Between two tries of that.
pub(crate) const PROBE_AGAIN: Duration = Duration::from_millis(200);

/// For a server to close a brick whose volume was stopped.
pub(crate) const BRICK_CLOSE_WAIT: Duration = Duration::from_secs(3);

/// Between two looks at that.
pub(crate) const BRICK_CLOSE_LOOK: Duration = Duration::from_millis(50);

/// For a server of this machine to give another key to a mount.
pub(crate) const KEY_WAIT: Duration = Duration::from_secs(2);

/// For a server of this machine to say who it is.
pub(crate) const LOCAL_WAIT: Duration = Duration::from_millis(500);

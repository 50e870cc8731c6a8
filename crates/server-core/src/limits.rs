//! How long this crate waits for what: one place, so that they can be compared.

use std::time::Duration;

/// For one answer of another set.
pub(crate) const ASK_WAIT: Duration = Duration::from_secs(5);

/// The same for a sync, which a slow disk makes long. A server that is gone is noticed by its connection.
pub(crate) const SYNC_WAIT: Duration = Duration::from_secs(60);

/// A disk that did its work so short a time before somebody asked for it is not looked at again.
pub(crate) const DISK_FRESH: Duration = Duration::from_secs(1);

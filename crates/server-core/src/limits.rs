//! How long this crate waits for what: one place, so that they can be compared.

use std::time::Duration;

/// For one answer of another set.
pub(crate) const ASK_WAIT: Duration = Duration::from_secs(5);

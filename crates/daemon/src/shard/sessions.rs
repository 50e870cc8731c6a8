//! One connection of a session, as those know it who serve what came on it. Which ones are given up is decided by
//! [`server_core::Sessions`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Notify;

/// One connection of a session.
#[derive(Clone, Debug, Default)]
pub(crate) struct Connection(Arc<Fate>);

#[derive(Debug, Default)]
struct Fate {
    given_up: AtomicBool,
    end: Notify,
}

impl Connection {
    /// Its session has given it up.
    pub(super) fn give_up(&self) {
        self.0.given_up.store(true, Ordering::Release);
        self.0.end.notify_one();
    }

    /// Whether its session has given it up: nothing that came on it may be begun.
    pub(crate) fn is_given_up(&self) -> bool {
        self.0.given_up.load(Ordering::Acquire)
    }

    /// Returns when its session has given it up.
    pub(super) async fn given_up(&self) {
        self.0.end.notified().await;
    }
}

//! What a server says of its own bricks, for the arbitration (see [`cluster::arbitration`]).

use cluster::arbitration::{Evidence, Holding};
use replica::Role;
use std::time::Duration;

/// What is known of a brick that is not open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unopened {
    /// It cannot be opened, since then.
    Refused(Duration),
    /// It was opened, and waits until the pool has said where it stands.
    Waits(Evidence),
}

impl Unopened {
    /// It could not be opened now. `before`: what was known of it; only the first failure counts.
    pub fn refused(before: Option<Unopened>, now: Duration) -> Unopened {
        match before {
            Some(Unopened::Refused(since)) => Unopened::Refused(since),
            Some(Unopened::Waits(_)) | None => Unopened::Refused(now),
        }
    }

    /// What is said of it.
    pub fn evidence(self, now: Duration) -> Evidence {
        match self {
            Unopened::Waits(evidence) => evidence,
            Unopened::Refused(since) => {
                let millis = now.saturating_sub(since).as_millis();
                Evidence::Refused { millis: u64::try_from(millis).unwrap_or(u64::MAX) }
            }
        }
    }
}

/// What is said of an open brick. One that failed says nothing: it is opened anew. One that is not certain of what it holds
/// serves nothing, and acts for itself.
pub fn evidence_of_open(role: Role, uncertain: bool, holding: Holding) -> Evidence {
    match role {
        Role::Failed => Evidence::Silent,
        _ if uncertain => Evidence::Uncertain(holding),
        _ => Evidence::Whole(holding),
    }
}

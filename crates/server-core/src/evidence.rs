//! What a server says of its own bricks, for the arbitration (see [`cluster::arbitration`]).

use crate::limits::DISK_FRESH;
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

/// What a server knows of a brick that is open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenBrick {
    /// What it is in its set.
    pub role: Role,
    /// Something of what it holds is stale.
    pub uncertain: bool,
    /// What it holds.
    pub holding: Holding,
    /// When its disk last did all that was asked of it, by the clock of `asked` below.
    pub disk_answered: Option<Duration>,
}

impl OpenBrick {
    /// What is said of it to somebody who asked at that time; `None`: its disk has to be looked at first, as another brick
    /// is about to leave for this one, and a dead disk is not seen in memory. Silence is the answer until the disk has done
    /// something.
    ///
    /// One that failed says nothing: it is opened anew. One that is not certain of what it holds serves nothing, and acts
    /// for itself.
    pub fn evidence(self, asked: Duration) -> Option<Evidence> {
        match self.role {
            Role::Failed => Some(Evidence::Silent),
            _ if self.uncertain => Some(Evidence::Uncertain(self.holding)),
            _ => {
                let answers = self.disk_answered.is_some_and(|at| at + DISK_FRESH >= asked);
                answers.then_some(Evidence::Whole(self.holding))
            }
        }
    }
}

//! Memory of this process that others may use: by what they send, and by answers that they do not take.

use crate::TransportError;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The part of an account that somebody may use and still have the rest of the common memory.
const FEW: usize = 16;
/// How often who waits looks whether he uses little by now.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Memory that all accounts share.
///
/// When it is used up, those who use little or none of it have the rest of it to themselves: many who hold a lot do not keep
/// out somebody who asks for one thing after the other.
#[derive(Debug)]
pub struct Common {
    room: Arc<Semaphore>,
    rest: Arc<Semaphore>,
}

impl Common {
    /// So many bytes, with a rest of them for those who use little.
    pub fn new(bytes: usize, rest: usize) -> Arc<Common> {
        let most = bytes.min(Semaphore::MAX_PERMITS);
        let rest = rest.min(most);
        Arc::new(Common { room: Arc::new(Semaphore::new(most - rest)), rest: Arc::new(Semaphore::new(rest)) })
    }
}

/// What one account may use, of its own and of what all share.
#[derive(Clone, Debug)]
pub struct Account {
    own: Arc<Semaphore>,
    most: usize,
    common: Option<Arc<Common>>,
}

/// What somebody has until this is dropped.
#[derive(Debug)]
pub struct Reserved {
    _own: OwnedSemaphorePermit,
    _common: Option<OwnedSemaphorePermit>,
}

impl From<OwnedSemaphorePermit> for Reserved {
    fn from(permit: OwnedSemaphorePermit) -> Reserved {
        Reserved { _own: permit, _common: None }
    }
}

impl Account {
    /// An account of so many bytes; without `common` they are there in any case.
    pub fn new(most: usize, common: Option<Arc<Common>>) -> Account {
        Account { own: Arc::new(Semaphore::new(most)), most, common }
    }

    /// Bytes that are left of its own.
    pub fn left(&self) -> usize {
        self.own.available_permits()
    }

    /// Waits for so many bytes, which are no more than the account has.
    ///
    /// # Errors
    /// Never, as long as the account is there.
    pub async fn reserve(&self, bytes: usize) -> Result<Reserved, TransportError> {
        let n = u32::try_from(bytes).unwrap_or(u32::MAX);
        let own = taken(&self.own, n).await?;
        let common = match &self.common {
            None => None,
            Some(common) => Some(self.take(common, n).await?),
        };
        Ok(Reserved { _own: own, _common: common })
    }

    async fn take(&self, common: &Common, n: u32) -> Result<OwnedSemaphorePermit, TransportError> {
        if let Ok(permit) = common.room.clone().try_acquire_many_owned(n) {
            return Ok(permit);
        }
        loop {
            // With what is asked for now.
            let used = self.most.saturating_sub(self.left());
            let is_modest = used <= self.most / FEW || used <= n as usize;
            tokio::select! {
                permit = taken(&common.room, n) => return permit,
                permit = taken(&common.rest, n), if is_modest => return permit,
                () = tokio::time::sleep(LOOK_AGAIN), if !is_modest => {}
            }
        }
    }
}

async fn taken(of: &Arc<Semaphore>, n: u32) -> Result<OwnedSemaphorePermit, TransportError> {
    if let Ok(permit) = of.clone().try_acquire_many_owned(n) {
        return Ok(permit);
    }
    of.clone().acquire_many_owned(n).await.map_err(|_| TransportError::Closed)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn soon(account: &Account, bytes: usize) -> Option<Reserved> {
        tokio::time::timeout(Duration::from_millis(20), account.reserve(bytes)).await.ok()?.ok()
    }

    #[tokio::test]
    async fn all_together_have_a_bound_and_newcomers_a_rest() {
        let common = Common::new(100, 20);
        let [greedy, other, newcomer, late] = [(); 4].map(|()| Account::new(60, Some(common.clone())));
        let held = [soon(&greedy, 60).await.unwrap(), soon(&other, 20).await.unwrap()];
        assert!(soon(&greedy, 1).await.is_none(), "its own is used up");
        assert!(soon(&other, 10).await.is_none(), "the rest is not for those who have something");
        let first = soon(&newcomer, 15).await.expect("he has nothing yet");
        assert!(soon(&newcomer, 5).await.is_none());
        assert!(soon(&late, 10).await.is_none(), "the rest is used up, too");
        drop(first);
        soon(&late, 10).await.expect("what was given back");
        drop(held);
        soon(&other, 60).await.expect("all that it may have");
        assert_eq!([greedy, other, newcomer, late].map(|a| a.left()), [60; 4], "all was given back");
        assert_eq!((common.room.available_permits(), common.rest.available_permits()), (80, 20));
    }

    #[tokio::test]
    async fn an_account_without_the_others_waits_for_nobody() {
        let common = Common::new(10, 0);
        let _all = soon(&Account::new(10, Some(common)), 10).await.unwrap();
        soon(&Account::new(10, None), 10).await.unwrap();
    }
}

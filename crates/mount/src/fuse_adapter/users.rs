//! The users that the client's key is for: servers let nobody else in, so nobody else is asked for.
//!
//! The kernel says who calls. What it writes back from its cache it says for nobody, and what is done through a file that was
//! handed on is done with the right of whoever opened it: so the user of a handle is the one who opened it.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};

use client::Client;
use fuse::{Errno, Request};

use super::{FuseAdapter, Reply};
use crate::caller;

/// Who may be asked for, and who opened what is open.
pub(super) struct Users {
    listed: BTreeSet<u32>,
    openers: Mutex<HashMap<u64, u32>>,
}

impl Users {
    pub(super) fn new(listed: &[u32]) -> Users {
        Users { listed: listed.iter().copied().collect(), openers: Mutex::default() }
    }

    /// This thread's calls are for this user from now on.
    ///
    /// # Errors
    /// `EACCES` for one whom servers do not let in.
    pub(super) fn enter(&self, uid: u32) -> Result<(), Errno> {
        let is_listed = self.listed.contains(&uid);
        client::user::act_as(if is_listed { uid } else { 0 });
        if is_listed { Ok(()) } else { Err(Errno::EACCES) }
    }

    /// This thread's calls are for whoever opened this handle; for this user if nobody did or there is none.
    ///
    /// # Errors
    /// As [`Users::enter`].
    pub(super) fn enter_through(&self, handle: Option<u64>, uid: u32) -> Result<(), Errno> {
        let opener = handle.and_then(|handle| self.openers().get(&handle).copied());
        self.enter(opener.unwrap_or(uid))
    }

    /// One of them.
    fn first(&self) -> u32 {
        self.listed.first().copied().unwrap_or_default()
    }

    pub(super) fn opened(&self, handle: u64, uid: u32) {
        self.openers().insert(handle, uid);
    }

    pub(super) fn closed(&self, handle: u64) {
        self.openers().remove(&handle);
    }

    fn openers(&self) -> std::sync::MutexGuard<'_, HashMap<u64, u32>> {
        self.openers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FuseAdapter {
    /// The client, for work on behalf of whoever asks.
    pub(super) fn client(&self, req: &Request<'_>) -> Reply<&Client> {
        caller::enter(req.pid);
        if let Some(users) = &self.users {
            users.enter(req.uid)?;
        }
        Ok(&self.client)
    }

    /// The client, for what it does for no certain user.
    pub(super) fn client_of_nobody(&self, req: &Request<'_>) -> &Client {
        caller::enter(req.pid);
        client::user::act_as(0);
        &self.client
    }

    /// The client, for what each user of this machine sees: the mount's own directory.
    pub(super) fn client_of_anyone(&self, req: &Request<'_>) -> &Client {
        let client = self.client_of_nobody(req);
        if let Some(users) = &self.users {
            client::user::act_as(users.first());
        }
        client
    }

    /// The client, on behalf of whoever opened the handle, if there is one.
    pub(super) fn of_opener(&self, req: &Request<'_>, handle: Option<u64>) -> Reply<&Client> {
        caller::enter(req.pid);
        if let Some(users) = &self.users {
            users.enter_through(handle, req.uid)?;
        }
        Ok(&self.client)
    }

    /// The same for what is not done if a lock through the handle is lost.
    pub(super) fn through(&self, req: &Request<'_>, handle: Option<u64>) -> Reply<&Client> {
        let client = self.of_opener(req, handle)?;
        handle.map_or(Ok(()), |handle| self.locks.check(handle))?;
        Ok(client)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_its_openers() {
        let users = Users::new(&[7, 8]);
        assert_eq!([0, 7, 9].map(|uid| users.enter(uid).is_ok()), [false, true, false]);
        users.opened(1, 7);
        assert!(users.enter_through(Some(1), 0).is_ok(), "written back by the kernel, which names nobody");
        assert_eq!(users.enter_through(Some(2), 0), Err(Errno::EACCES));
        users.closed(1);
        assert_eq!(users.enter_through(Some(1), 0), Err(Errno::EACCES));
        assert!(users.enter_through(Some(1), 8).is_ok() && users.enter_through(None, 8).is_ok());
    }
}

//! Asking for the right to grant locks on the files of the volume.

use std::time::Duration;

use client_core::call::RetryPolicy;
use client_core::operation::Operation;
use wire::op::LockClaim;
use wire::{Call, Errno, Op};

pub use client_core::lock_right::LockRight;

use crate::call::Client;
use crate::layer::Request;
use crate::payload::Payload;

impl Client {
    /// Asks for the right, in one of the session's terms. The request is not sent any more after `timeout`.
    ///
    /// # Errors
    /// `ENOLCK` if another mount has the right, or has had it since; `ETIMEDOUT`, and those of [`Client::call`].
    pub fn hold_locks(&self, term: u64, claim: LockClaim, timeout: Duration) -> Result<(), Errno> {
        self.ask_for_locks(Op::HoldLocks { term, claim }, timeout)
    }

    /// Gives the right up.
    ///
    /// # Errors
    /// Those of [`Client::call`].
    pub fn drop_locks(&self, term: u64, timeout: Duration) -> Result<(), Errno> {
        self.ask_for_locks(Op::DropLocks { term }, timeout)
    }

    /// How long calls wait for a set that does not serve; `None`: for ever.
    pub fn soft(&self) -> Option<Duration> {
        self.core.options.soft
    }

    fn ask_for_locks(&self, op: Op, timeout: Duration) -> Result<(), Errno> {
        let set = self.root().home;
        let (state, epoch) = self.core.find(set)?;
        let policy = RetryPolicy { soft: Some(timeout), ..self.core.retry_policy() };
        let operation = Operation::begin(&op, epoch, policy, || state.state());
        let call = Call::unsent(set, op);
        let mut request = Request { call, payload: &[], into: &mut Payload::new() };
        self.core.to_the_end(operation, &state, &mut request).0.map(drop)
    }
}

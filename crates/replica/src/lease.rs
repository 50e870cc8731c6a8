//! The lease of this server. Without it no answer is sent; a brick is removed from the view only while the lease is renewed
//! steadily.

use crate::io::{ChangeBody, Output, Ticket};
use crate::limits::{ACK_TIMEOUT, LEASE_GAP};
use crate::replica::{Out, Replica};
use core::time::Duration;

impl<B: ChangeBody> Replica<B> {
    /// Whether answers may leave at this moment.
    pub fn lease_holds(&self, now: Duration) -> bool {
        now < self.lease
    }

    pub(crate) fn on_lease(&mut self, now: Duration, until: Duration, out: &mut Out<B>) {
        if until > self.lease {
            let (last, since) = self.renewed;
            self.renewed = (now, if now > last + LEASE_GAP { now } else { since });
            self.lease = until;
        }
        if self.lease_holds(now) {
            out.extend(core::mem::take(&mut self.held).into_iter().map(Output::Complete));
        }
    }

    /// Whether this server has been in touch with the pool's leader, without a gap, for so long that bricks which were silent
    /// all that time are away and not this server.
    pub(crate) fn is_connected(&self, now: Duration) -> bool {
        let (last, since) = self.renewed;
        now <= last + LEASE_GAP && now >= since + ACK_TIMEOUT
    }

    /// Lets the answer leave, now or when the lease is renewed.
    pub(crate) fn release(&mut self, now: Duration, ticket: Ticket, out: &mut Out<B>) {
        if self.lease_holds(now) {
            out.push(Output::Complete(ticket));
        } else {
            self.held.push(ticket);
        }
    }
}

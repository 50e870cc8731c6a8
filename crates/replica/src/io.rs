//! What goes into a [`crate::Replica`] and what comes out: every cause and every effect, as plain data.

use crate::results::Outcome;
use crate::view::View;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::time::Duration;
use ids::{BrickId, Epoch, Fid, Lsn, OpId};
use wire::peer::Stamp;

/// The driver's name for something that waits for an answer.
pub type Ticket = u64;

/// The content of a change as the driver holds it; cheap to clone.
pub trait ChangeBody: Clone {
    /// The objects it touches.
    fn touched(&self) -> Vec<Fid>;
    /// Bytes it holds, about.
    fn size(&self) -> usize;
    /// How much it does, for a change whose answer is that number.
    fn amount(&self) -> u64 {
        0
    }
}

/// A change with its place in the order.
#[derive(Clone, Debug)]
pub struct LogEntry<B> {
    /// Its position and the epoch that gave it.
    pub stamp: Stamp,
    /// The client operation it came from.
    pub op: OpId,
    /// The object that the answer is about.
    pub result_fid: Option<Fid>,
    /// What changes.
    pub body: B,
}

/// Something happened.
#[derive(Clone, Debug)]
pub enum Input<B> {
    /// The pool store agreed on a view.
    View(View),
    /// This server's lease holds until then.
    Lease(Duration),
    /// A request was decided into a change ([`crate::Replica::admit`] let it in at this same instant).
    Decided {
        /// Who waits.
        ticket: Ticket,
        /// The client's name for it.
        op: OpId,
        /// The object that the answer is about.
        result_fid: Option<Fid>,
        /// What changes.
        body: B,
    },
    /// An answer that shows the present state of these objects wants to leave.
    ReadReply {
        /// Who waits.
        ticket: Ticket,
        /// What the answer shows.
        objects: Vec<Fid>,
    },
    /// An answer that shows the outcome of the change at `lsn` wants to leave (a resend).
    Await {
        /// Who waits.
        ticket: Ticket,
        /// The change.
        lsn: Lsn,
    },
    /// `fid`, or everything, is to be made durable on all in-sync bricks.
    Sync {
        /// Who waits.
        ticket: Ticket,
        /// The object.
        fid: Option<Fid>,
    },
    /// [`Output::Apply`] was done.
    Applied {
        /// Which.
        lsn: Lsn,
    },
    /// [`Output::Apply`] could not be done, and left nothing behind in this brick's journal.
    ApplyFailed {
        /// Which.
        lsn: Lsn,
        /// Why.
        errno: i32,
    },
    /// [`Output::Apply`] was done only in part, by a primary that is alone (see [`crate::Replica::alone_has`]): another change
    /// stands in its place in this brick's journal, and says so.
    AppliedInPart {
        /// Which.
        lsn: Lsn,
        /// Why.
        errno: i32,
        /// What stands in its place.
        body: B,
    },
    /// This brick's disk is in a state in which it takes no further change.
    Broken,
    /// [`Output::Sync`] ended. Failures of syncs that the driver ran of its own accord are told too, with any token.
    Synced {
        /// Its token.
        token: SyncToken,
        /// 0 or why it failed.
        errno: i32,
    },
    /// Everything up to here is on this brick's disk; so much room is left.
    Durable {
        /// Up to where.
        lsn: Lsn,
        /// Bytes free for users.
        available: u64,
    },
    /// A change from the primary.
    Replicate {
        /// Who sent it.
        from: BrickId,
        /// In which epoch.
        epoch: Epoch,
        /// All in-sync bricks have everything up to there.
        commit: Lsn,
        /// The change.
        entry: LogEntry<B>,
    },
    /// Any other message of a peer.
    Peer {
        /// Who sent it.
        from: BrickId,
        /// In which epoch.
        epoch: Epoch,
        /// What it says.
        message: Message,
    },
    /// [`Output::AdoptHistory`] was done: this brick's journal ends here now.
    HistoryAdopted {
        /// The last change in it.
        last: Stamp,
    },
    /// This brick's journal was cut to what it has in common with the primary's, or begins anew: from here on the primary's
    /// changes follow.
    Joined {
        /// The id of the join that was accepted.
        join_id: u64,
        /// Where the journal ends now.
        start: Stamp,
        /// It begins anew: nothing is known of what was before.
        full: bool,
    },
    /// Nothing of this brick is stale any more.
    Healed,
    /// A brick asks to join; afterwards [`crate::Replica::may_join`] says whether it may.
    Joining {
        /// Who.
        brick: BrickId,
        /// The id of this join: messages with other ids do not count any more.
        join_id: u64,
    },
    /// A brick that joins was sent all that it missed up to now: from here on it gets every change.
    JoinerCaughtUp(BrickId),
    /// The connection to a peer was made (again): what it may have missed goes out again.
    LinkUp(BrickId),
    /// The peer's server is known to be gone (its port refuses connections).
    LinkDead(BrickId),
    /// Time passed.
    Tick,
}

/// Messages between peers other than changes; the wire's [`wire::peer::PeerBody`] without [`LogEntry`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    /// See [`wire::peer::PeerBody::Ack`].
    Ack {
        /// Applied up to here.
        lsn: Lsn,
        /// On disk up to here.
        durable: Lsn,
        /// Bytes free.
        available: u64,
    },
    /// See [`wire::peer::PeerBody::Failed`].
    Failed {
        /// Why.
        errno: i32,
    },
    /// See [`wire::peer::PeerBody::Sync`].
    Sync {
        /// The primary's name for it.
        ticket: u64,
        /// Only after these changes.
        lsn: Lsn,
        /// The object, or everything.
        fid: Option<Fid>,
    },
    /// See [`wire::peer::PeerBody::Synced`].
    Synced {
        /// The primary's name for it.
        ticket: u64,
        /// 0 or why it failed.
        errno: i32,
    },
    /// See [`wire::peer::PeerBody::StateQuery`].
    StateQuery,
    /// See [`wire::peer::PeerBody::StateReport`].
    StateReport {
        /// The last change in the journal.
        last: Stamp,
        /// On disk up to here.
        durable: Lsn,
        /// It can send the changes after this one.
        kept: Lsn,
    },
    /// See [`wire::peer::PeerBody::SendTail`].
    SendTail {
        /// After which change.
        after: Stamp,
    },
    /// See [`wire::peer::PeerBody::Committed`].
    Committed {
        /// Up to where.
        lsn: Lsn,
    },
    /// See [`wire::peer::PeerBody::Healed`].
    Healed {
        /// The id of the join that it ends.
        join_id: u64,
        /// Applied up to here.
        lsn: Lsn,
    },
}

/// For whom a sync runs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum SyncToken {
    /// For a client of this primary.
    Local(Ticket),
    /// For the primary of that epoch. Tickets of another process of it may be the same numbers.
    Peer(BrickId, u64, Epoch),
}

/// A view this brick wants the pool store to agree on, if the epoch is still `expect`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Proposal {
    /// The epoch it replaces.
    pub expect: Epoch,
    /// The new primary.
    pub primary: Option<BrickId>,
    /// The bricks in sync from then on.
    pub in_sync: BTreeSet<BrickId>,
    /// The one among them that was not in sync before and has everything now.
    pub healed: Option<BrickId>,
    /// Nobody came through whole: what was acknowledged until then is there only if it was synced.
    pub lost: bool,
    /// For the log and `volume status`.
    pub reason: &'static str,
}

/// Do this.
#[derive(Clone, Debug)]
pub enum Output<B> {
    /// Journal the change and apply it to the brick, then say [`Input::Applied`]. In the order given. The ticket is that of
    /// the request whose decision it is ([`Input::Decided`]), on the primary.
    Apply(LogEntry<B>, Option<Ticket>),
    /// Send the change to a peer.
    Replicate {
        /// To whom.
        to: BrickId,
        /// In which epoch.
        epoch: Epoch,
        /// The present commit position.
        commit: Lsn,
        /// The change.
        entry: LogEntry<B>,
    },
    /// Send another message to a peer.
    Send {
        /// To whom.
        to: BrickId,
        /// In which epoch.
        epoch: Epoch,
        /// What.
        message: Message,
    },
    /// Make an object or everything durable on this brick, then say [`Input::Synced`].
    Sync {
        /// For whom.
        token: SyncToken,
        /// What.
        fid: Option<Fid>,
    },
    /// The answer of this ticket may leave.
    Complete(Ticket),
    /// The request failed here with this errno, and changed nothing.
    Fail(Ticket, i32),
    /// This brick cannot answer any more: tell the client to look for the present primary.
    Redirect(Ticket),
    /// Ask the pool store for a new view.
    Propose(Proposal),
    /// This brick is not certain of the end of its journal, and nobody else has the set's data: what it still has becomes
    /// the set's history. Cut the journal to what is certain, keep in mind which objects the cut changes touched, and say
    /// [`Input::HistoryAdopted`].
    AdoptHistory,
    /// This brick has left the common history: stop using it until it is healed.
    Diverged,
}

/// May a request come in?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admission {
    /// Decide it now and say [`Input::Decided`] or [`Input::ReadReply`] before any other input.
    Go,
    /// It was done before, by the change at this lsn: answer from the present state after [`Input::Await`].
    Done(Outcome),
    /// This brick does not serve the set in that epoch.
    WrongView(Epoch),
    /// Not now.
    Busy,
    /// Too few bricks in sync for changes.
    BelowQuorum,
}

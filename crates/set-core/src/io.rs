//! What goes into a [`crate::SetCore`] and what comes out: every cause and every effect, as plain data.

use crate::file_move::FileMove;
use crate::rebalance_settings::RebalanceSettings;
use crate::stripes::StripeSettings;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use bytes::Bytes;
use core::time::Duration;
use ids::{BrickId, Fid, Lsn, OpId, ServerId, SessionId, SetId, Time};
use namespace::placement::SetRoom;
use replica::healing::Sums;
use replica::{Proposal, View};
use wire::peer::PeerMessage;
use wire::{Body, Call, Errno, Fail, Op, Reply, User};

/// When a step is taken.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Time from any fixed start, never going back.
    pub now: Duration,
    /// The time for files.
    pub wall: Time,
    /// Until when this server may answer; `None` if it does not know the views that the lease was given with.
    pub lease: Option<Duration>,
}

/// What the core asks about the world at the moment of a step.
pub trait Outside {
    /// Bytes that wait for the connection to a server.
    fn queued(&self, server: ServerId) -> usize;
    /// When a client last asked something of the thread that serves this set.
    fn last_call(&self) -> Duration;
    /// Room of a set of the pool, as its primary last said.
    fn room(&self, set: SetId) -> Option<SetRoom>;
    /// A name for a request to another set that nobody else has or will have.
    fn next_id(&self) -> OpId;
}

/// Where an answer goes: given back unchanged in [`Output::Reply`].
pub trait ReplyTo {
    /// Whether the session has given up the connection that the request came on, and asks on another one.
    fn is_given_up(&self) -> bool;
}

/// A request of a client, or of another set's primary.
#[derive(Clone, Debug)]
pub struct Request<R> {
    /// What is asked.
    pub call: Call,
    /// Data that came with it.
    pub payload: Bytes,
    /// Where the answer goes.
    pub to: R,
    /// Who asks.
    pub session: SessionId,
    /// The user whose permissions count; `None`: the client has checked them.
    pub user: Option<User>,
    /// Only what lies beneath this directory may be asked for; `None`: anything.
    pub beneath: Option<Fid>,
}

/// The set's configuration, as the pool has agreed on it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// What people know the set by, for lines of the log.
    pub name: String,
    /// Who leads and who is in sync.
    pub view: View,
    /// The set's bricks and their servers.
    pub members: BTreeMap<BrickId, ServerId>,
    /// Percent of a brick that stays free.
    pub min_free_percent: u64,
    /// Nothing may be changed.
    pub read_only: bool,
    /// How often everything is brought to disk.
    pub sync_interval: Duration,
    /// The volume's sets, and whether each is led.
    pub sets: Vec<(SetId, bool)>,
    /// Whether files of a set that is fuller than others move there.
    pub rebalance: RebalanceSettings,
    /// A new file that grows to so many bytes is placed by room. `None`: it stays with its directory.
    pub large: Option<u64>,
    /// Such files become striped instead. `None`: none does.
    pub stripes: Option<StripeSettings>,
    /// How far all servers of the pool go.
    pub level: u32,
}

impl Settings {
    /// Before the pool has said anything but a view.
    pub(crate) fn unknown(set: SetId, view: View) -> Settings {
        Settings {
            name: format!("set {set}"),
            view,
            members: BTreeMap::new(),
            min_free_percent: 1,
            read_only: false,
            sync_interval: Duration::from_secs(5),
            sets: Vec::new(),
            rebalance: RebalanceSettings::default(),
            large: None,
            stripes: None,
            level: 0,
        }
    }
}

/// What work on the brick has led to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Done {
    /// Everything up to there, or the objects, are on disk.
    Synced(Lsn),
    /// Data that was read.
    Data(Bytes),
    /// Checksums.
    Sums(Sums),
    /// What was healed is on disk.
    Ended,
    /// Names of a directory are in memory.
    Listed,
    /// What a comparison from the root does not meet.
    Placed(Vec<Fid>),
    /// What lies in one of Mortar's own folders.
    Hidden(Vec<Fid>),
}

/// Something happened.
#[derive(Clone, Debug)]
pub enum Input<R> {
    /// A client asks.
    Request(Request<R>),
    /// Another brick of the set says something.
    Peer(PeerMessage, Bytes),
    /// The pool changed.
    Settings(Settings),
    /// A connection to a server was made (`true`), or its port refuses connections.
    Link(ServerId, bool),
    /// A session is gone for good.
    SessionEnded(SessionId),
    /// A short time has passed.
    Tick,
    /// A second has passed.
    Maintenance,
    /// Whether the disk answers is to be found out: [`crate::Report::disk_answered`] tells.
    LookAtDisk,
    /// A file is to live on another set.
    Move(FileMove),
    /// Another set is to answer for this directory, if it can.
    Give(Fid, SetId),
    /// The time of [`crate::SetCore::next_wake`] has come.
    Wake,
    /// The work of [`Output::Start`] with that ticket has ended.
    Worked(u64, Result<Done, Errno>),
    /// The answer to [`Output::Ask`] with that ticket.
    Answered(u64, Result<Body, Fail>),
}

/// Do this.
#[derive(Debug)]
pub enum Output<W, R> {
    /// Answer a request.
    Reply {
        /// Where to.
        to: R,
        /// The answer.
        reply: Reply,
        /// Data that goes with it.
        payload: Bytes,
        /// For how long it may be kept, in milliseconds.
        grant: u16,
    },
    /// Send a message to another brick of the set.
    Send {
        /// The server that has the brick.
        server: ServerId,
        /// The message.
        message: PeerMessage,
        /// Data that goes with it.
        payload: Bytes,
    },
    /// Do this work where it may wait, then say [`Input::Worked`].
    Start {
        /// The ticket.
        id: u64,
        /// What to do.
        work: W,
    },
    /// Ask the primary of another set, then say [`Input::Answered`].
    Ask {
        /// The ticket.
        id: u64,
        /// The set.
        set: SetId,
        /// What.
        op: Op,
        /// The request's name, if it has one; else any new one.
        name: Option<OpId>,
        /// Data that goes with it.
        payload: Bytes,
    },
    /// Ask the pool's store for a new view.
    Propose(Proposal),
    /// The set's room.
    Room(SetRoom),
    /// A directory was placed on that set.
    Promised(SetId),
}

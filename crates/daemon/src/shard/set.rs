//! One brick in its set: joins the decisions (crate `replica`), the rules (crate `namespace`) and the disk (crate `brick`).

use super::content::Content;
use super::grants::Grants;
use super::heal::Healing;
use super::opens::Opens;
use super::pending::Pending;
use super::serve::{ReplyTo, Waiter};
use super::silence::Silence;
use super::source::Questions;
use super::{BrickReport, Shard};
use crate::clock;
use crate::shared::{Counters, Standing, Wish, lock};
use brick::Brick;
use bytes::Bytes;
use cluster::State;
use cluster::arbitration::{Evidence, Holding};
use ids::{BrickId, Epoch, Fid, Lsn, ServerId, SessionId, SetId, VolumeId};
use namespace::placement::SetRoom;
use namespace::transaction::{Transactions, TreeLock};
use replica::{Entry, Input, Message, Output, Replica, Role, Ticket, View};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::{spawn_blocking, spawn_local};
use wire::peer::{PeerBody, PeerMessage, Stamp};
use wire::{Errno, Fail, Frame, Kind, Reply, Wire};

/// Syncs that are done together at most: each keeps a descriptor open meanwhile.
const SYNC_ROUND: usize = 64;
/// Rounds of syncs under way at once, at most: one with much data does not hold up all others.
const SYNC_ROUNDS: usize = 8;

/// What is needed to open a brick, gathered on the shard and used on a blocking thread.
pub(crate) struct OpenSet {
    set: SetId,
    brick: BrickId,
    volume: VolumeId,
    path: String,
    floor: Epoch,
    identity: disk_format::Identity,
    /// The set has other bricks.
    accompanied: bool,
    /// Where its file system was mounted when it was last opened; empty: not known.
    mount: String,
    /// An empty directory may be made the brick again: others hold what belongs into it.
    refill: bool,
    access: cluster::Access,
    options: brick::Options,
}

/// A brick that was opened.
pub(crate) struct Opened {
    set: SetId,
    id: BrickId,
    volume: VolumeId,
    floor: Epoch,
    brick: Brick,
    results: replica::Results,
    pending: Pending,
    history: BTreeMap<Epoch, Lsn>,
    access: cluster::Access,
    accompanied: bool,
    moved: Option<String>,
}

impl OpenSet {
    /// `knows_all`: the state is as new as this server's lease, so that no newer view can name the brick.
    pub(crate) fn new(
        set: SetId,
        brick: BrickId,
        state: &State,
        pool: [u8; 16],
        knows_all: bool,
    ) -> Option<OpenSet> {
        let info = state.sets.get(&set)?;
        let volume = state.volumes.get(&info.volume)?;
        let b = info.brick(brick)?;
        Some(OpenSet {
            set,
            brick,
            volume: volume.id,
            path: b.path.clone(),
            floor: info.view.epoch,
            access: cluster::Access::of(volume),
            accompanied: info.bricks.len() > 1,
            mount: b.mount.clone(),
            refill: knows_all && info.view.primary.is_some() && !info.view.in_sync.contains(&brick),
            identity: crate::control::bricks::identity(pool, volume, info, b),
            options: crate::control::bricks::options(volume),
        })
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Opens the brick. One that lost its identity file gets it back; where there is nothing any more a new one begins, to
    /// be filled from the set.
    fn open_or_refill(&self) -> Result<Brick, String> {
        let path = std::path::Path::new(&self.path);
        let open = || Brick::open(path, &self.identity, self.options.clone());
        match open() {
            Err(brick::OpenError::Sealed { .. } | brick::OpenError::NotBrick { .. })
                if brick::restore_identity(path, &self.identity)? =>
            {
                open().map_err(|e| e.to_string())
            }
            Err(brick::OpenError::NotBrick { .. }) if self.refill => {
                self.check_place(path)?;
                brick::format(path, &self.identity).map_err(|e| {
                    format!("it has no .mortar/identity and cannot be made a brick again: {e}; empty it, and it is filled again")
                })?;
                tracing::warn!("{}: there was nothing: brick {} is filled again", self.path, self.brick);
                let mut brick = open().map_err(|e| e.to_string())?;
                brick.begin_heal(Lsn(0), &[], Lsn(0)).map_err(|e| format!("{}: {e}", self.path))?;
                Ok(brick)
            }
            other => other.map_err(|e| e.to_string()),
        }
    }

    /// An empty directory is the brick without its files only where the brick was: else its disk is missing.
    fn check_place(&self, path: &std::path::Path) -> Result<(), String> {
        if self.mount.is_empty() {
            return Ok(());
        }
        let there = brick::mount_point(path).map_err(|e| {
            format!(
                "{}: {e}: mount its file system, or make the directory if the brick is lost and is to be filled again",
                self.path
            )
        })?;
        if there != std::path::Path::new(&self.mount) {
            return Err(format!(
                "{}: it is empty, and its file system is not the one at {} where the brick was: mount that one; if the \
                 brick is lost, mount another one there, and it is filled again",
                self.path, self.mount
            ));
        }
        Ok(())
    }

    /// Opens the brick: reads its journal, which takes a while.
    pub(crate) fn run(self) -> Result<Opened, String> {
        let brick = self.open_or_refill()?;
        // What lies beyond may not have been done.
        let sure = if brick.found().rebooted { brick.durable().lsn } else { brick.last().lsn };
        let mut results = replica::Results::default();
        let mut pending = Pending::default();
        let mut history = BTreeMap::new();
        for record in brick.iterate(brick.journal_start()) {
            let record = record.map_err(|e| e.to_string())?;
            if record.stamp.lsn <= sure {
                let (lsn, about, amount) = (record.stamp.lsn, record.about, record.change.amount());
                results.record(record.op, replica::Outcome { lsn, about, amount });
            }
            pending.note(record.op, &record.change);
            history.insert(record.stamp.epoch, record.stamp.lsn);
        }
        let last = brick.last();
        if last.lsn > Lsn(0) {
            history.insert(last.epoch, last.lsn);
        }
        let (set, id, volume, floor) = (self.set, self.brick, self.volume, self.floor);
        let access = self.access;
        let found = brick::mount_point(std::path::Path::new(&self.path)).ok();
        let found = found.and_then(|m| m.into_os_string().into_string().ok());
        let moved = found.filter(|m| *m != self.mount);
        let accompanied = self.accompanied;
        Ok(Opened { set, id, volume, floor, brick, results, pending, history, access, accompanied, moved })
    }
}

impl Opened {
    /// Where its file system is mounted, if the pool does not know.
    pub(crate) fn moved(&self) -> Option<&str> {
        self.moved.as_deref()
    }

    /// What it can say of itself, unless it holds everything that it acknowledged: a power cut may have taken changes from
    /// it, or something is in doubt.
    pub(crate) fn doubts(&self) -> Option<Evidence> {
        let (found, last) = (self.brick.found(), self.brick.last());
        let holding = Holding { epoch: last.epoch, last: last.lsn, durable: self.brick.durable().lsn };
        // The mark of doubt outlives the process that found the loss: a second restart does not bring memory back.
        if found.rebooted || self.brick.doubt().is_some() {
            Some(Evidence::LostMemory(holding))
        } else if self.is_uncertain() {
            Some(Evidence::Uncertain(holding))
        } else {
            None
        }
    }

    fn is_uncertain(&self) -> bool {
        let found = self.brick.found();
        self.brick.doubt().is_some() || found.incomplete.is_some() && !found.rebooted
    }

    /// The pool has said where a brick stands that lost changes.
    ///
    /// The last one goes on with what it has. Nothing tells the others what of the changes beyond its durable position is
    /// in its tree: its journal begins anew, in an epoch that is in no other's, so that they compare everything with it.
    pub(crate) fn stand(mut self, standing: Standing) -> Result<Opened, String> {
        self.floor = standing.epoch;
        if standing.last {
            let shown = self.brick.path().display().to_string();
            if self.accompanied {
                let start = Stamp { epoch: standing.epoch.next(), lsn: self.brick.last().lsn.next() };
                self.history = BTreeMap::from([(start.epoch, start.lsn)]);
                self.brick.reset_journal(start).map_err(|e| e.to_string())?;
            }
            let ended = self.brick.begin_end().and_then(|job| job.run()).and_then(|_| self.brick.end_heal());
            ended.map_err(|e| format!("{shown}: {e}"))?;
            tracing::warn!(
                "{shown}: changes that were not synced may be lost in a power cut; the set goes on from here"
            );
        }
        Ok(self)
    }
}

/// A set's state on its shard. Borrowed only between two awaits.
pub(crate) struct SetDriver {
    pub(super) set: SetId,
    pub(super) me: BrickId,
    pub(super) brick: Brick,
    pub(super) replica: Replica<Content>,
    pub(super) waiters: HashMap<Ticket, Waiter>,
    next_ticket: Ticket,
    /// The answer to build once the change just decided is applied.
    pub(super) deciding: Option<(Ticket, super::serve::Asked)>,
    pub(super) opens: Opens,
    pub(super) grants: Grants,
    /// Directories that wait for the end of a transaction.
    pub(super) pending: Pending,
    /// When this brick became primary: nameless files wait for their holders until some time after.
    pub(super) primary_since: Option<Duration>,
    /// The newest epoch in which it led.
    led_in: Epoch,
    /// There are more nameless files to drop than were dropped in one go.
    pub(super) more_unclaimed: bool,
    /// Transactions that wait for another set.
    pub(super) transactions: Transactions,
    /// In the root's set: who may change the tree's shape across sets.
    pub(super) tree_lock: TreeLock,
    /// Directories that were moved to other directories by this set: what was seen above one before may no longer hold.
    pub(super) moves: u64,
    pub(super) spread: usize,
    pub(super) min_free: u64,
    min_free_percent: u64,
    access: cluster::Access,
    pub(super) read_only: bool,
    pub(super) counters: Arc<Counters>,
    pub(super) volume_sets: Vec<SetId>,
    members: BTreeMap<BrickId, ServerId>,
    arbiters: BTreeSet<BrickId>,
    sync_interval: Duration,
    last_sync: Duration,
    synced_to: Lsn,
    syncing: bool,
    /// Syncs that wait for a round, and the rounds under way.
    to_sync: Vec<(replica::SyncToken, Option<Fid>)>,
    sync_rounds: usize,
    lease: Duration,
    pub(super) healing: Option<Healing>,
    /// Healings begun: what was begun for an earlier one is void.
    pub(super) healings: u64,
    /// Its attempts to join.
    pub(super) attempts: replica::Attempts,
    /// On the primary: each joining brick's attempt that was welcomed last, for the same reason.
    pub(super) welcomes: BTreeMap<BrickId, u64>,
    /// What is in doubt here was told to whom it concerns.
    pub(super) told: bool,
    pub(super) questions: Questions,
    /// Since when a joining brick's queue is full and has not shrunk, and how much is in it.
    pub(super) lagging: Option<(Duration, usize)>,
    pub(super) asked_to_join: Duration,
    silence: Silence,
}

/// A shared handle to a set on its shard.
#[derive(Clone)]
pub(crate) struct SetHandle {
    pub(super) shard: Weak<Shard>,
    pub(super) driver: Rc<RefCell<SetDriver>>,
}

impl SetHandle {
    pub(crate) fn new(shard: &Rc<Shard>, opened: Opened) -> SetHandle {
        let last = opened.brick.last();
        let durable = opened.brick.durable().lsn;
        // After a power cut the pool has said where the brick stands (see `Opened::stand`).
        let unsure = opened.is_uncertain();
        let mut replica = Replica::new(opened.id, opened.floor, last, durable, opened.results);
        replica.set_history(opened.history);
        if unsure {
            replica.set_unsure(false);
        }
        let driver = SetDriver {
            set: opened.set,
            me: opened.id,
            brick: opened.brick,
            replica,
            waiters: HashMap::new(),
            next_ticket: 1,
            deciding: None,
            opens: Opens::default(),
            grants: Grants::default(),
            pending: opened.pending,
            primary_since: None,
            led_in: Epoch(0),
            more_unclaimed: false,
            transactions: Transactions::default(),
            tree_lock: TreeLock::default(),
            moves: 0,
            spread: opened.set.0 as usize,
            min_free: 0,
            min_free_percent: 1,
            access: opened.access,
            read_only: false,
            counters: shard.shared.counters(opened.volume),
            volume_sets: Vec::new(),
            members: BTreeMap::new(),
            arbiters: BTreeSet::new(),
            sync_interval: Duration::from_secs(5),
            last_sync: clock::now(),
            synced_to: Lsn(0),
            syncing: false,
            to_sync: Vec::new(),
            sync_rounds: 0,
            lease: Duration::ZERO,
            healing: None,
            healings: 0,
            attempts: replica::Attempts::default(),
            welcomes: BTreeMap::new(),
            told: false,
            questions: Questions::default(),
            lagging: None,
            asked_to_join: Duration::ZERO,
            silence: Silence::default(),
        };
        SetHandle { shard: Rc::downgrade(shard), driver: Rc::new(RefCell::new(driver)) }
    }

    /// Gives the state machine an input and does what it says.
    pub(super) fn step(&self, d: &mut SetDriver, input: Input<Content>) {
        let Some(shard) = self.shard.upgrade() else { return };
        let mut inputs = VecDeque::from([input]);
        let mut outputs = Vec::new();
        while let Some(input) = inputs.pop_front() {
            let now = clock::now();
            // A lease counts only with the views that held when it was given.
            if let Some(lease) = shard.lease()
                && lease != d.lease
            {
                d.lease = lease;
                d.replica.step(now, Input::Lease(lease), &mut outputs);
            }
            d.replica.step(now, input, &mut outputs);
            if !matches!(d.replica.role(), Role::Idle | Role::Healing) {
                d.healing = None;
            }
            for output in outputs.drain(..) {
                self.perform(&shard, d, output, &mut inputs);
            }
        }
    }

    fn perform(
        &self,
        shard: &Rc<Shard>,
        d: &mut SetDriver,
        output: Output<Content>,
        inputs: &mut VecDeque<Input<Content>>,
    ) {
        match output {
            Output::Apply(entry) => inputs.push_back(d.apply(&entry)),
            Output::Replicate { to, epoch, commit, entry } => d.replicate(shard, to, epoch, commit, entry),
            Output::Send { to, epoch, message } => {
                let body = match message {
                    Message::Ack { lsn, durable, available } => PeerBody::Ack { lsn, durable, available },
                    Message::Failed { errno } => PeerBody::Failed { lsn: d.replica.last().lsn, errno },
                    Message::Sync { ticket, lsn, fid } => PeerBody::Sync { ticket, lsn, fid },
                    Message::Synced { ticket, errno } => PeerBody::Synced { ticket, errno },
                    Message::WhereAreYou => PeerBody::WhereAreYou,
                    Message::HereIAm { last, durable, kept } => PeerBody::HereIAm { last, durable, kept },
                    Message::SendTail { after } => PeerBody::SendTail { after },
                    Message::Committed { lsn } => PeerBody::Committed { lsn },
                    Message::Healed { number, lsn } => PeerBody::Healed { number, lsn },
                };
                d.send(shard, to, epoch, body, Bytes::new());
            }
            Output::Sync { token, fid } => self.sync(d, token, fid),
            Output::Release(ticket) => {
                if let Some(waiter) = d.waiters.remove(&ticket) {
                    waiter.answer();
                }
            }
            Output::Refuse(ticket, errno) => {
                d.deciding = None;
                if let Some(waiter) = d.waiters.remove(&ticket) {
                    waiter.answer_with(Reply::errno(errno));
                }
            }
            Output::Forget(ticket) => {
                let epoch = d.replica.view().epoch;
                if let Some(waiter) = d.waiters.remove(&ticket) {
                    waiter.answer_with(Reply(Err(Fail::WrongView { epoch })));
                }
            }
            Output::Propose(proposal) => {
                tracing::info!("set {}: propose {:?}: {}", d.set, proposal.in_sync, proposal.reason);
                let healed = proposal.healed.into_iter().collect();
                let _gone = shard.shared.wishes.send(Wish::View(d.set, proposal, healed));
            }
            Output::Settle => match replica::healing::settle(&mut d.brick) {
                Ok(last) => {
                    tracing::warn!("set {}: brick {} goes on alone from {}", d.set, d.me, last.lsn);
                    inputs.push_back(Input::Settled { last });
                }
                Err(e) => tracing::error!("set {}: brick {} cannot go on alone: {e}", d.set, d.me),
            },
            Output::Diverged => tracing::error!("set {}: brick {} left the common history", d.set, d.me),
        }
    }

    /// Makes something durable on a thread that may wait for the disk. What is asked for while
    /// all rounds are busy is done together, in the next one.
    fn sync(&self, d: &mut SetDriver, token: replica::SyncToken, fid: Option<Fid>) {
        d.to_sync.push((token, fid));
        if d.sync_rounds < SYNC_ROUNDS {
            d.sync_rounds += 1;
            let this = self.clone();
            spawn_local(async move { while this.sync_some().await {} });
        }
    }

    /// One round of syncs; false if nothing waits for one.
    async fn sync_some(&self) -> bool {
        let (tokens, job) = {
            let mut guard = self.driver.borrow_mut();
            let d = &mut *guard;
            let round = d.to_sync.len().min(SYNC_ROUND);
            let wanted: Vec<_> = d.to_sync.drain(..round).collect();
            if wanted.is_empty() {
                d.sync_rounds -= 1;
                return false;
            }
            let mut objects: Vec<Fid> = wanted.iter().filter_map(|(_, fid)| *fid).collect();
            objects.sort();
            objects.dedup();
            let whole = wanted.iter().any(|(_, fid)| fid.is_none());
            let job = if whole { d.brick.begin_sync(None) } else { d.brick.begin_sync_of(&objects) };
            (wanted.into_iter().map(|(token, _)| token).collect::<Vec<_>>(), job)
        };
        let result = match job {
            Ok(job) => spawn_blocking(move || job.run()).await.unwrap_or(Err(Errno::EIO)),
            Err(e) => Err(e),
        };
        let errno = result.err().map_or(0, |e| e.0);
        let mut d = self.driver.borrow_mut();
        if errno != 0 {
            d.doubt_unsynced();
        }
        for token in tokens {
            self.step(&mut d, Input::Synced { token, errno });
        }
        true
    }

    /// A message from another brick of the set.
    pub(crate) fn on_peer(&self, m: PeerMessage, payload: Bytes) {
        let mut d = self.driver.borrow_mut();
        if m.to != d.me || !d.members.contains_key(&m.from) {
            tracing::debug!("set {}: message from brick {} to brick {} is not for here", m.set, m.from, m.to);
            return;
        }
        let (from, epoch) = (m.from, m.epoch);
        d.silence.heard(clock::now(), from);
        let message = match m.body {
            PeerBody::Replicate { stamp, commit, op, about, change } => {
                let entry = Entry { stamp, op, about, body: Content::new(change, payload) };
                return self.step(&mut d, Input::Replicate { from, epoch, commit, entry });
            }
            PeerBody::Missed { stamp, op, about, change } => {
                let entry = Entry { stamp, op, about, body: Content::new(change, payload) };
                d.healing.iter_mut().for_each(Healing::hear);
                return self.step(&mut d, Input::Replicate { from, epoch, commit: Lsn(0), entry });
            }
            PeerBody::Ack { lsn, durable, available } => Message::Ack { lsn, durable, available },
            PeerBody::Failed { lsn: _, errno } => Message::Failed { errno },
            PeerBody::Sync { ticket, lsn, fid } => Message::Sync { ticket, lsn, fid },
            PeerBody::Synced { ticket, errno } => Message::Synced { ticket, errno },
            PeerBody::WhereAreYou => Message::WhereAreYou,
            PeerBody::HereIAm { last, durable, kept } => Message::HereIAm { last, durable, kept },
            PeerBody::SendTail { after } => Message::SendTail { after },
            PeerBody::Committed { lsn } => Message::Committed { lsn },
            PeerBody::Healed { number, lsn } => Message::Healed { number, lsn },
            body => return self.on_heal_message(&mut d, from, epoch, body, payload),
        };
        self.step(&mut d, Input::Peer { from, epoch, message });
    }

    /// The pool changed: the set's view, members and options may have.
    pub(crate) fn on_state(&self, state: &State) {
        let mut d = self.driver.borrow_mut();
        let Some(set) = state.sets.get(&d.set) else { return };
        let Some(volume) = state.volumes.get(&set.volume) else { return };
        d.members = set.bricks.iter().map(|b| (b.id, b.server)).collect();
        d.arbiters = set.bricks.iter().filter(|b| b.arbiter).map(|b| b.id).collect();
        d.min_free_percent = volume.typed_options().min_free_disk.into();
        d.access = cluster::Access::of(volume);
        d.read_only = volume.typed_options().read_only;
        d.sync_interval = volume.typed_options().sync_interval;
        d.volume_sets = volume.sets.clone();
        let view = View {
            epoch: set.view.epoch,
            primary: set.view.primary,
            in_sync: set.view.in_sync.clone(),
            arbiters: d.arbiters.clone(),
            lost_before: set.lost_before,
            quorum: crate::control::bricks::quorum(volume),
        };
        self.step(&mut d, Input::View(view));
        let leads = d.replica.role() == Role::Primary || d.replica.role() == Role::Reconciling;
        let epoch = d.replica.view().epoch;
        if leads {
            let now = clock::now();
            d.tree_lock.enter(now, epoch);
            // In an epoch that was left out here another brick may have led.
            if d.primary_since.is_none() || epoch > d.led_in.next() {
                d.primary_since = Some(now);
                d.opens.begin(now, epoch);
            }
            d.led_in = epoch;
        } else {
            d.primary_since = None;
            d.opens.clear();
            d.grants = Grants::default();
        }
    }

    /// A link to a server came up, or its port refuses connections.
    pub(crate) fn link_changed(&self, server: ServerId, up: bool) {
        let mut d = self.driver.borrow_mut();
        let bricks: Vec<BrickId> = d.members.iter().filter(|(_, s)| **s == server).map(|(b, _)| *b).collect();
        for brick in bricks {
            self.step(&mut d, if up { Input::LinkUp(brick) } else { Input::LinkDead(brick) });
        }
    }

    /// Timers.
    pub(crate) fn tick(&self) {
        let mut d = self.driver.borrow_mut();
        self.step(&mut d, Input::Tick);
        let waits = d.replica.role() == Role::Primary && !d.waiters.is_empty();
        let me = d.me;
        let others = d.replica.view().in_sync.iter().copied().filter(|b| *b != me).collect();
        for brick in d.silence.tick(clock::now(), waits.then_some(others)) {
            self.step(&mut d, Input::LinkDead(brick));
        }
        if let Some(e) = d.brick.take_late_failure() {
            d.doubt_unsynced();
            self.step(&mut d, Input::Synced { token: replica::SyncToken::Local(0), errno: e.0 });
        }
        if d.more_unclaimed {
            self.drop_unclaimed(&mut d);
        }
        self.tick_heal(&mut d);
        self.watch_joiners(&mut d);
        let due = clock::now() >= d.last_sync + d.sync_interval;
        if due && !d.syncing && d.replica.last().lsn > d.synced_to {
            self.sync_all(&mut d);
        }
    }

    /// Brings the whole brick to disk now and then, so that its durable position moves on.
    fn sync_all(&self, d: &mut SetDriver) {
        d.last_sync = clock::now();
        let job = match d.brick.begin_sync(None) {
            Ok(job) => job,
            Err(e) => return tracing::error!("set {}: sync: {e}", d.set),
        };
        d.syncing = true;
        let this = self.clone();
        spawn_local(async move {
            let result = spawn_blocking(move || job.run()).await.unwrap_or(Err(Errno::EIO));
            let mut d = this.driver.borrow_mut();
            d.syncing = false;
            match result {
                Ok(lsn) => {
                    d.synced_to = lsn;
                    let available = d.available();
                    this.step(&mut d, Input::Durable { lsn, available });
                }
                Err(e) => {
                    tracing::error!("set {}: sync: {e}", d.set);
                    d.doubt_unsynced();
                    this.step(&mut d, Input::Synced { token: replica::SyncToken::Local(0), errno: e.0 });
                }
            }
        });
    }

    /// Once a second: lazily kept attributes go to disk, room is measured, unclaimed files go.
    pub(crate) fn keep_house(&self) {
        let mut d = self.driver.borrow_mut();
        if let Err(e) = d.brick.flush_attrs() {
            tracing::error!("set {}: write attributes: {e}", d.set);
        }
        if let Ok(room) = d.brick.room() {
            d.min_free = room.total / 100 * d.min_free_percent;
            let (lsn, available) = (d.replica.durable(), room.available);
            self.step(&mut d, Input::Durable { lsn, available });
            if d.replica.role() == Role::Primary {
                let available = d.replica.available().min(room.available).saturating_sub(d.min_free);
                let room = SetRoom {
                    set: d.set,
                    available,
                    total: room.total,
                    promised: 0,
                    writable: d.replica.view().has_quorum() && !d.read_only,
                };
                if let Some(shard) = self.shard.upgrade() {
                    lock(&shard.shared.rooms).insert(d.set, room);
                }
            }
        }
        if let Some(h) = &mut d.healing {
            h.sample();
        }
        self.drop_unclaimed(&mut d);
        drop(d);
        self.resolve_pending();
    }

    /// A session is gone for good: what it held open is free.
    pub(crate) fn session_ended(&self, session: SessionId) {
        let mut d = self.driver.borrow_mut();
        for fid in d.opens.end(session) {
            self.drop_orphan(&mut d, fid);
        }
    }

    /// Whether somebody at that address may use the volume; other servers may.
    pub(crate) fn permits(&self, from: Option<std::net::IpAddr>) -> bool {
        from.is_none_or(|address| self.driver.borrow().access.permits(address))
    }

    /// Whether the brick could not go on and has to be opened anew.
    pub(crate) fn has_failed(&self) -> bool {
        self.driver.borrow().replica.role() == Role::Failed
    }

    pub(crate) fn report(&self) -> BrickReport {
        let mut d = self.driver.borrow_mut();
        let room = d.brick.room().ok();
        BrickReport {
            brick: d.me,
            role: d.replica.role(),
            epoch: d.replica.view().epoch,
            lsn: d.replica.last().lsn,
            durable: d.replica.durable(),
            free: room.as_ref().map_or(0, |r| r.available),
            total: room.as_ref().map_or(0, |r| r.total),
            heal: d.healing.as_ref().map(Healing::progress),
            last_epoch: d.replica.last().epoch,
            unsure: d.replica.is_unsure(),
        }
    }

    /// Ends service: nobody is answered, everything goes to disk.
    pub(crate) async fn close(&self) {
        let job = {
            let mut d = self.driver.borrow_mut();
            let epoch = d.replica.view().epoch;
            for (_, waiter) in d.waiters.drain() {
                waiter.answer_with(Reply(Err(Fail::WrongView { epoch })));
            }
            d.brick.begin_sync(None)
        };
        let synced = match job {
            // Most of the work, where it holds nobody up.
            Ok(job) => spawn_blocking(move || job.run()).await.unwrap_or(Err(Errno::EIO)).map(drop),
            Err(e) => Err(e),
        };
        let mut d = self.driver.borrow_mut();
        if let Err(e) = synced.and_then(|()| d.brick.shut()) {
            tracing::error!("close the brick of set {}: {e}", d.set);
        }
    }
}

impl SetDriver {
    /// A sync failed: what the kernel could not write it has dropped, and no later sync says so.
    pub(super) fn doubt_unsynced(&mut self) {
        if !self.replica.is_only()
            && let Err(e) = self.brick.doubt_unsynced()
        {
            tracing::error!("set {}: note what is in doubt: {e}", self.set);
        }
    }

    pub(super) fn ticket(&mut self, waiter: Waiter) -> Ticket {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.waiters.insert(ticket, waiter);
        ticket
    }

    pub(super) fn available(&mut self) -> u64 {
        self.brick.room().map_or(0, |r| r.available)
    }

    fn apply(&mut self, entry: &Entry<Content>) -> Input<Content> {
        let lsn = entry.stamp.lsn;
        let applied = match &self.healing {
            Some(h) if !h.has_ended() => self.apply_healing(entry),
            // What the primary has of the objects is only to be had by healing.
            _ if entry.body.change.is_doubt() && !self.leads() => self.must_heal(&entry.body.change),
            Some(_) => self.apply_healing(entry),
            None => self.apply_now(entry),
        };
        match applied {
            Ok(()) => {
                self.pending.note(entry.op, &entry.body.change);
                self.note_move(&entry.body.change);
                if let Some((ticket, asked)) = self.deciding.take() {
                    self.fill_answer(ticket, &asked, entry.about);
                    self.add_directories(ticket, &entry.body.change);
                }
                Input::Applied { lsn }
            }
            Err(e) => {
                tracing::error!("set {}: change {lsn} could not be applied: {e}", self.set);
                if self.brick.is_partial() {
                    return self.end_partial(lsn, e);
                }
                // It may have been a sync within.
                if e == Errno::EIO {
                    self.doubt_unsynced();
                }
                Input::ApplyFailed { lsn, errno: e.0 }
            }
        }
    }

    /// A change was done only in part. Whoever alone has it goes on with what is there of it; with others it is theirs, and
    /// this brick has to be healed.
    fn end_partial(&mut self, lsn: Lsn, error: Errno) -> Input<Content> {
        if self.replica.alone_has(lsn) {
            return match self.brick.record_partial() {
                Ok(change) => {
                    let body = Content::new(change, Bytes::new());
                    Input::AppliedInPart { lsn, errno: error.0, body }
                }
                Err(e) => {
                    tracing::error!("set {}: note that change {lsn} was done in part: {e}", self.set);
                    Input::Broken
                }
            };
        }
        if let Err(e) = self.brick.abandon_partial() {
            tracing::error!("set {}: note what is in doubt: {e}", self.set);
        }
        // It may have been a sync within.
        if error == Errno::EIO {
            self.doubt_unsynced();
        }
        Input::ApplyFailed { lsn, errno: error.0 }
    }

    fn must_heal(&mut self, change: &wire::Change) -> Result<(), Errno> {
        let last = self.brick.last().lsn;
        self.brick.begin_heal(last, &change.touched(), last)?;
        Err(Errno::ESTALE)
    }

    fn leads(&self) -> bool {
        matches!(self.replica.role(), Role::Primary | Role::Reconciling)
    }

    pub(super) fn apply_now(&mut self, entry: &Entry<Content>) -> Result<(), Errno> {
        let c = &entry.body;
        self.brick.apply(entry.stamp.clone(), entry.op, entry.about, &c.change, &c.payload)
    }

    pub(super) fn send(&self, shard: &Shard, to: BrickId, epoch: Epoch, body: PeerBody, payload: Bytes) {
        let Some(server) = self.members.get(&to) else { return };
        let message = PeerMessage { set: self.set, from: self.me, to, epoch, body };
        shard.links.send(*server, Frame::with_payload(Kind::Peer, 0, message.to_bytes(), payload));
    }

    /// Bricks that get every change and are not in sync yet.
    pub(super) fn joiners(&self) -> impl Iterator<Item = BrickId> + '_ {
        self.members.keys().copied().filter(|b| self.replica.is_joiner(*b))
    }

    /// Bytes for a brick that wait for its server's connection.
    pub(super) fn queued(&self, shard: &Shard, to: BrickId) -> usize {
        self.members.get(&to).map_or(0, |server| shard.links.queued(*server))
    }

    fn replicate(&self, shard: &Shard, to: BrickId, epoch: Epoch, commit: Lsn, entry: Entry<Content>) {
        let payload = if self.arbiters.contains(&to) { Bytes::new() } else { entry.body.payload.clone() };
        let change = (*entry.body.change).clone();
        let (stamp, op, about) = (entry.stamp, entry.op, entry.about);
        self.send(shard, to, epoch, PeerBody::Replicate { stamp, commit, op, about, change }, payload);
    }

    /// Whether another brick in sync holds the data.
    pub(super) fn is_accompanied(&self) -> bool {
        let in_sync = &self.replica.view().in_sync;
        in_sync.iter().any(|b| *b != self.me && !self.arbiters.contains(b))
    }

    /// Answers a request that no change and no state stands behind.
    pub(super) fn refuse(to: &ReplyTo, fail: Fail) {
        to.send(Reply(Err(fail)), Bytes::new());
    }
}

//! Maintenance: work that is done at regular times, and when the state of the pool changes.

use crate::brick::LocalBrick;
use crate::core::{Cx, Later, SetCore};
use crate::departed::Departed;
use crate::grants::Grants;
use crate::healing::{HealReport, Healing};
use crate::io::{Output, ReplyTo, Settings};
use crate::pieces::Pieces;
use core::time::Duration;
use ids::{BrickId, Epoch, Fid, Lsn, SessionId};
use namespace::placement::SetRoom;
use replica::{Input, Role, SyncToken};
use wire::Fail;
use wire::peer::Stamp;
use wire::reply::Room;

/// Clients are active if one asked something within this time: what is told to others once a second.
pub(crate) const RECENT: Duration = Duration::from_secs(1);

/// How one brick does.
#[derive(Clone, Debug)]
pub struct Report {
    /// The brick.
    pub brick: BrickId,
    /// What it is in its set.
    pub role: Role,
    /// The epoch it acts in.
    pub epoch: Epoch,
    /// Its newest change.
    pub lsn: Lsn,
    /// The epoch of that change.
    pub last_epoch: Epoch,
    /// What is on its disk.
    pub durable: Lsn,
    /// When everything was last brought to disk; `None`: not since the brick was opened.
    pub disk_answered: Option<Duration>,
    /// Bytes free for users, and in all.
    pub room: Option<(u64, u64)>,
    /// How far its healing is.
    pub heal: Option<HealReport>,
    /// Something of what it holds is stale.
    pub uncertain: bool,
    /// Files and directories that wait for the end of a transaction with another set, or may do so.
    pub marked: usize,
    /// Files and directories that have moved to other sets.
    pub departed: Departed,
    /// Files and bytes of them a second.
    pub departing: (u64, u64),
    /// The last file that could not move though nobody used it, and why, unless one has moved since.
    pub problem: Option<(Fid, Fail)>,
    /// Files and directories that are on their way there.
    pub on_their_way: usize,
    /// The last time that all files were gone through none could move.
    pub none_can_move: bool,
    /// What waits.
    pub queues: Queues,
}

/// What waits in a set, and what is held in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Queues {
    /// Requests that wait for their change, or for a sync.
    pub waiting: usize,
    /// Work that runs where it may wait for a disk.
    pub disk: usize,
    /// Questions to other sets.
    pub asked: usize,
    /// Files that sessions hold open.
    pub open_files: usize,
}

impl<B: LocalBrick, R: ReplyTo> SetCore<B, R> {
    /// How the brick does.
    pub fn report(&mut self, now: Duration) -> Report {
        let (last, room) = (self.last(), self.brick.room().ok());
        Report {
            brick: self.me,
            role: self.replica.role(),
            epoch: self.replica.view().epoch,
            lsn: last.lsn,
            last_epoch: last.epoch,
            durable: self.replica.durable(),
            disk_answered: self.periodic.answered(),
            room: room.map(|r| (r.available, r.total)),
            heal: self.target.healing.as_ref().map(|h| h.report(now)),
            uncertain: self.replica.is_uncertain(),
            marked: self.pending.marked_files() + self.pending.marked_dirs(),
            departed: self.departures.departed,
            departing: self.departures.rate.get(),
            problem: self.departures.problem.clone(),
            on_their_way: self.departures.on_their_way() + self.hand_over.on_their_way(),
            none_can_move: self.departures.rebalance.idle,
            queues: Queues {
                waiting: self.waiters.len(),
                disk: self.works.len(),
                asked: self.asks.len(),
                open_files: self.opens.files(),
            },
        }
    }

    /// Whether this brick is its set's primary.
    pub fn is_leading(&self) -> bool {
        self.is_primary()
    }

    /// How many sessions hold each file open.
    pub fn opens(&self) -> impl Iterator<Item = (Fid, usize)> {
        self.opens.by_file()
    }

    /// How many files each session holds open here.
    pub fn open_files(&self) -> impl Iterator<Item = (SessionId, usize)> {
        self.opens.by_session()
    }

    /// A session is gone for good.
    pub(crate) fn end_session(&mut self, session: SessionId) {
        self.beneath.end(session);
        let free = self.opens.end(session);
        self.later.extend(free.into_iter().map(Later::DropOrphan));
    }

    /// The pool changed: the set's view, members and options may have.
    pub(crate) fn on_settings(&mut self, cx: &mut Cx<'_, B, R>, settings: Settings) {
        let view = settings.view.clone();
        let before = core::mem::replace(&mut self.settings, settings);
        self.on_rebalance_settings(before.rebalance);
        let new_view = view.epoch > self.replica.view().epoch;
        self.feed(cx, Input::View(view));
        if new_view {
            // The primary may remember the room of this brick from before it was closed.
            self.measure_room(cx);
        }
        // One that was joining may have been removed: its link tells nothing of it any more, and nobody waits for it.
        for brick in before.members.into_keys() {
            if !self.settings.members.contains_key(&brick) {
                self.catch_ups.forget(brick);
                self.feed(cx, Input::LinkUp(brick));
            }
        }
        // Whoever waited for an entry was told, and homes ask.
        self.joints.clear();
        if !self.leads() {
            self.primary_since = None;
            self.opens.clear();
            self.beneath.forget_all();
            self.departures.clear();
            self.hand_over.clear();
            self.clear_placing(cx);
            self.clear_striping(cx);
            self.pieces = Pieces::default();
            self.grants = Grants::default();
            return;
        }
        let (now, epoch) = (cx.at.now, self.replica.view().epoch);
        self.tree.lock.enter(now, epoch);
        // In an epoch that was left out here another brick may have led.
        if self.primary_since.is_none() || epoch > self.led_in.next() {
            self.primary_since = Some(now);
            self.opens.begin(now, epoch);
            // Where nothing has been done there are no files to lock.
            self.lock_right.begin(now, self.brick.last().lsn == Lsn(0));
            self.brick.marked_files().into_iter().for_each(|fid| self.pending.look_for(fid));
            // Before a listing shows a name that is about to go.
            self.look_for_marks(now);
        }
        self.led_in = epoch;
    }

    /// A short time has passed.
    pub(crate) fn tick(&mut self, cx: &mut Cx<'_, B, R>) {
        let now = cx.at.now;
        self.feed(cx, Input::Tick);
        let waits = self.is_primary() && !self.waiters.is_empty();
        let me = self.me;
        let others = self.replica.view().in_sync.iter().copied().filter(|b| *b != me).collect();
        for brick in self.failure_detector.tick(now, waits.then_some(others)) {
            self.feed(cx, Input::LinkDead(brick));
        }
        if let Some(e) = self.brick.take_late_failure() {
            self.mark_unsynced_stale();
            self.feed(cx, Input::Synced { token: SyncToken::Local(0), errno: e.0 });
        }
        if self.orphans.are_more() {
            self.drop_unclaimed(cx);
        }
        self.tick_heal(cx);
        self.watch_joiners(cx);
        let (newest, wanted) = (self.last().lsn, self.brick.wants_sync());
        let due = self.periodic.is_due(now, self.settings.sync_interval, newest, wanted);
        if due && !self.writing_again {
            self.sync_all(cx);
        }
    }

    /// A second has passed: lazily kept attributes go to disk, room is measured, unclaimed files go.
    pub(crate) fn maintain(&mut self, cx: &mut Cx<'_, B, R>) {
        self.flush_now_and_then(cx);
        let now = cx.at.now;
        if let Some(room) = self.measure_room(cx) {
            self.min_free = room.total / 100 * self.settings.min_free_percent;
            if self.is_primary() {
                let available = self.replica.available().min(room.available).saturating_sub(self.min_free);
                // How busy it is measures whoever carries it on.
                cx.out.push(Output::Room(SetRoom {
                    asked: now < cx.outside.last_call() + RECENT,
                    writable: self.replica.view().has_quorum()
                        && !self.settings.read_only
                        && !self.settings.rebalance.drains,
                    renames: self.tree.renames_in(self.replica.view().epoch),
                    ..SetRoom::new(self.set, available, room.total)
                }));
            }
        }
        self.target.healing.iter_mut().for_each(|h: &mut Healing| h.sample(now));
        self.departures.sample(now);
        self.walks.clear_unused(now, self.is_primary().then_some(self.replica.view().epoch));
        self.drop_unclaimed(cx);
        self.resolve_pending(cx);
        self.resolve_files(cx);
        self.look_at_giving(cx);
        self.balance_load(cx);
        self.rebalance_on(cx);
        self.look_at_paths(cx);
    }

    /// Looks how much room there is on this brick, and tells the primary.
    fn measure_room(&mut self, cx: &mut Cx<'_, B, R>) -> Option<Room> {
        let room = self.brick.room().ok()?;
        let (lsn, available) = (self.replica.durable(), room.available);
        self.feed(cx, Input::Durable { lsn, available });
        Some(room)
    }

    /// Bytes free for users on this brick.
    pub(crate) fn available(&mut self) -> u64 {
        self.brick.room().map_or(0, |r| r.available)
    }

    /// Whether another brick in sync holds the data.
    pub(crate) fn is_accompanied(&self) -> bool {
        let view = self.replica.view();
        view.in_sync.iter().any(|b| *b != self.me && !view.arbiters.contains(b))
    }

    pub(crate) fn leads(&self) -> bool {
        matches!(self.replica.role(), Role::Primary | Role::Reconciling)
    }

    pub(crate) fn is_primary(&self) -> bool {
        self.replica.role() == Role::Primary
    }

    /// The newest change in the journal.
    pub(crate) fn last(&self) -> Stamp {
        self.replica.last()
    }
}

//! The replication state of one brick: its fields, its inputs, and what primary and secondary have in common.

use crate::io::{ChangeBody, Input, LogEntry, Message, Output, SyncToken, Ticket};
use crate::new_view::Early;
use crate::peer_state::PeerState;
use crate::primary::Syncing;
use crate::reconcile::{Fetch, Report};
use crate::results::Results;
use crate::view::View;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::time::Duration;
use ids::{BrickId, Epoch, Fid, Lsn};
use wire::peer::Stamp;

/// What the brick is in its set now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Not in sync, or no view known yet: serves nothing.
    Idle,
    /// In sync, follows the primary.
    Secondary,
    /// Named primary, finding out where the others stand.
    Reconciling,
    /// Orders changes and answers clients.
    Primary,
    /// Not in sync yet: gets every change from the primary, and heals what it missed.
    Healing,
    /// Could not apply a change: takes no part until it is opened anew.
    Failed,
}

/// See the crate's words. `B` is the content of a change as the driver holds it.
#[derive(Clone, Debug)]
pub struct Replica<B> {
    pub(crate) me: BrickId,
    pub(crate) view: View,
    pub(crate) role: Role,
    /// The newest change in this brick's journal.
    pub(crate) last: Stamp,
    pub(crate) applied: Lsn,
    pub(crate) commit: Lsn,
    /// The stamp at `commit` (or older, on a secondary): where `last` falls back to if a change is refused.
    pub(crate) base: Stamp,
    pub(crate) durable: Lsn,
    pub(crate) available: u64,
    pub(crate) lease: Duration,
    /// When the lease was last renewed, and since when it is renewed without a gap of [`LEASE_GAP`](crate::limits::LEASE_GAP).
    pub(crate) renewed: (Duration, Duration),
    pub(crate) results: Results,
    /// On the primary: the changes after `commit`. On others: those that may not be on all bricks in sync, as far as this
    /// one knows; whoever leads next may lack them.
    pub(crate) window: VecDeque<LogEntry<B>>,
    pub(crate) window_bytes: usize,
    /// Objects with changes after `commit`: the newest of them.
    pub(crate) pending: BTreeMap<Fid, Lsn>,
    /// Answers that may leave when all up to the lsn is committed.
    pub(crate) waiting: BTreeMap<Lsn, Vec<Ticket>>,
    /// Answers that may leave when the lease is renewed.
    pub(crate) held: Vec<Ticket>,
    pub(crate) peers: BTreeMap<BrickId, PeerState>,
    /// On the primary: bricks that heal and get every change. One that has healed is among the peers as well, so that it
    /// misses nothing while the pool store agrees on its return.
    pub(crate) joiners: BTreeMap<BrickId, PeerState>,
    /// The last position of each epoch in this brick's journal.
    pub(crate) history: BTreeMap<Epoch, Lsn>,
    pub(crate) syncs: BTreeMap<Ticket, Syncing>,
    /// Those that are on the disks of all, by what has to be committed before they are answered.
    pub(crate) synced: BTreeSet<(Lsn, Ticket)>,
    /// Reconciling: where the others stand, and the tail that comes from one of them.
    pub(crate) reports: BTreeMap<BrickId, Report>,
    pub(crate) fetch: Option<Fetch<B>>,
    /// On a secondary: the primary of this epoch asked where it stands, and has not served before that.
    pub(crate) asked: bool,
    /// On the primary: the commit position that the others were told.
    pub(crate) told: Lsn,
    /// Until then changes wait, and are not refused, if the quorum is lacking.
    pub(crate) quorum_until: Duration,
    pub(crate) role_since: Duration,
    /// On a secondary: changes that came before their turn.
    pub(crate) gap: BTreeMap<Lsn, LogEntry<B>>,
    /// On a secondary: syncs that came before the changes they cover were applied.
    pub(crate) late_syncs: Vec<(BrickId, u64, Lsn, Option<Fid>)>,
    /// Syncs under way here that the primary asked for, in which epoch: one that it asks for again is not begun twice.
    pub(crate) peer_syncs: BTreeSet<(BrickId, Ticket, Epoch)>,
    /// Messages of epochs whose view is not known here yet.
    pub(crate) early: VecDeque<Early<B>>,
    pub(crate) proposed: Option<(Epoch, Duration)>,
    /// On a joining brick: the id of its accepted join. On the primary: the last join id of each joining brick.
    pub(crate) join_id: u64,
    pub(crate) join_ids: BTreeMap<BrickId, u64>,
    /// Joining bricks that the pool store was asked to let in, in this epoch. It may do so at any time until the epoch is
    /// over: what is answered meanwhile has to be on them as well.
    pub(crate) pending_adds: BTreeSet<BrickId>,
    /// On the primary: joining bricks were sent everything up to here.
    pub(crate) streamed_to: Lsn,
    /// A brick in `pending_adds` is gone: the epoch has to end.
    pub(crate) must_bump_epoch: bool,
    /// The tree may not be as the journal says: this brick takes part in nothing before that is repaired.
    pub(crate) uncertain: bool,
    /// And acknowledged changes may be missing in it.
    pub(crate) lost: bool,
    /// This brick led, is to leave, and has ended its service in this epoch: that one is to lead in its place.
    pub(crate) successor: Option<BrickId>,
    /// The newest epoch in which somebody else may have asked for a view with more bricks than this one.
    pub(crate) adopts_after: Option<Epoch>,
}

pub(crate) type Out<B> = Vec<Output<B>>;

impl<B: ChangeBody> Replica<B> {
    /// A brick whose journal ends at `last`, with the results of the operations in that journal.
    ///
    /// It acts only in views newer than `floor`, the epoch that held when its process started: messages that an earlier
    /// process of the same brick sent in `floor` may still be under way, and must not meet new ones of the same epoch.
    pub fn new(me: BrickId, floor: Epoch, last: Stamp, durable: Lsn, results: Results) -> Replica<B> {
        Replica {
            me,
            view: View { epoch: floor, ..View::default() },
            role: Role::Idle,
            applied: last.lsn,
            commit: last.lsn,
            base: last.clone(),
            last,
            durable,
            available: u64::MAX,
            lease: Duration::ZERO,
            renewed: (Duration::ZERO, Duration::ZERO),
            results,
            window: VecDeque::new(),
            window_bytes: 0,
            pending: BTreeMap::new(),
            waiting: BTreeMap::new(),
            held: Vec::new(),
            peers: BTreeMap::new(),
            joiners: BTreeMap::new(),
            history: BTreeMap::new(),
            syncs: BTreeMap::new(),
            synced: BTreeSet::new(),
            reports: BTreeMap::new(),
            fetch: None,
            asked: false,
            told: Lsn(0),
            quorum_until: Duration::ZERO,
            role_since: Duration::ZERO,
            gap: BTreeMap::new(),
            late_syncs: Vec::new(),
            peer_syncs: BTreeSet::new(),
            early: VecDeque::new(),
            proposed: None,
            join_id: 0,
            join_ids: BTreeMap::new(),
            pending_adds: BTreeSet::new(),
            streamed_to: Lsn(0),
            must_bump_epoch: false,
            uncertain: false,
            lost: false,
            successor: None,
            adopts_after: None,
        }
    }

    /// What the brick is now.
    pub fn role(&self) -> Role {
        self.role
    }

    /// The view it acts by.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// The newest change in its journal.
    pub fn last(&self) -> Stamp {
        self.last.clone()
    }

    /// Everything up to here is done on this brick.
    pub fn applied(&self) -> Lsn {
        self.applied
    }

    /// All in-sync bricks have everything up to here, as far as this one knows.
    pub fn commit(&self) -> Lsn {
        self.commit
    }

    /// Everything up to here is on this brick's disk.
    pub fn durable(&self) -> Lsn {
        self.durable
    }

    /// Whether a sync is under way here that the primary waits for. It may take as long as it likes: meanwhile the
    /// primary's silence says nothing.
    pub fn is_syncing(&self) -> bool {
        self.peer_syncs.iter().any(|(.., epoch)| *epoch == self.view.epoch)
    }

    /// The least room on an in-sync brick, in bytes.
    pub fn available(&self) -> u64 {
        // An arbiter holds no file data: its room says nothing.
        let holds = |(id, p): &(&BrickId, &PeerState)| p.acked > Lsn(0) && !self.view.arbiters.contains(id);
        self.peers.iter().filter(holds).map(|(_, p)| p.available).fold(self.available, u64::min)
    }

    /// The stamp that the next change will have.
    pub fn next(&self) -> Stamp {
        Stamp { epoch: self.view.epoch, lsn: self.last.lsn.next() }
    }

    /// Takes one input at time `now` (from any fixed start, never going back) and appends what is to be done.
    pub fn step(&mut self, now: Duration, input: Input<B>, out: &mut Out<B>) {
        match input {
            Input::View(view) => self.on_view(now, view, out),
            Input::Lease(until) => self.on_lease(now, until, out),
            Input::Decided { ticket, op, result_fid, body } => {
                self.on_decided(now, ticket, op, result_fid, body, out)
            }
            Input::ReadReply { ticket, objects } => {
                let lsn = objects.iter().filter_map(|f| self.pending.get(f)).max().copied();
                self.on_await(now, ticket, lsn.unwrap_or(Lsn(0)), out);
            }
            Input::Await { ticket, lsn } => self.on_await(now, ticket, lsn, out),
            Input::Sync { ticket, fid } => self.on_sync(now, ticket, fid, out),
            Input::Applied { lsn } => self.on_applied(now, lsn, out),
            Input::ApplyFailed { lsn, errno } => self.on_apply_failed(now, lsn, errno, out),
            Input::AppliedInPart { lsn, errno, body } => self.on_part(now, lsn, errno, body, out),
            Input::Broken => self.on_broken(now, out),
            Input::Synced { token, errno } => self.on_synced(now, token, errno, out),
            Input::Durable { lsn, available } => self.on_durable(lsn, available, out),
            Input::Replicate { from, epoch, commit, entry } => {
                if epoch > self.view.epoch {
                    self.keep_early(epoch, Input::Replicate { from, epoch, commit, entry });
                } else if epoch == self.view.epoch {
                    self.on_replicate(now, from, commit, entry, out);
                }
            }
            Input::Peer { from, epoch, message } => {
                if epoch > self.view.epoch {
                    self.keep_early(epoch, Input::Peer { from, epoch, message });
                } else if epoch == self.view.epoch {
                    self.on_message(now, from, message, out);
                }
            }
            Input::HistoryAdopted { last } => self.on_history_adopted(last),
            Input::Joined { join_id, start, full } => self.on_joined(join_id, start, full),
            Input::Healed => self.on_healed(out),
            Input::Joining { brick, join_id } => self.on_joining(now, brick, join_id, out),
            Input::JoinerCaughtUp(brick) => self.on_joiner_caught_up(brick),
            Input::LinkUp(peer) => {
                self.drop_joiner(now, peer, out);
                self.resend(now, peer, out);
            }
            Input::LinkDead(peer) => {
                if self.leads() && self.view.in_sync.contains(&peer) {
                    self.leave_out(now, &[peer], "its server is gone", out);
                }
            }
            Input::Tick => self.on_tick(now, out),
        }
        self.check();
    }

    pub(crate) fn leads(&self) -> bool {
        matches!(self.role, Role::Primary | Role::Reconciling)
    }

    fn on_await(&mut self, now: Duration, ticket: Ticket, lsn: Lsn, out: &mut Out<B>) {
        if self.role != Role::Primary {
            out.push(Output::Redirect(ticket));
        } else if lsn <= self.commit {
            self.release(now, ticket, out);
        } else {
            assert!(lsn <= self.last.lsn, "nobody waits for a change that is not ordered");
            self.waiting.entry(lsn).or_default().push(ticket);
        }
    }

    pub(crate) fn on_applied(&mut self, now: Duration, lsn: Lsn, out: &mut Out<B>) {
        if lsn <= self.applied || self.role == Role::Failed {
            return;
        }
        assert!(
            lsn == self.applied.next() && lsn <= self.last.lsn,
            "changes are applied in order, without gaps"
        );
        self.applied = lsn;
        match self.role {
            Role::Primary => {
                self.feed_joiners(lsn, out);
                self.advance(now, out);
            }
            Role::Reconciling => self.reconcile(now, out),
            Role::Secondary | Role::Healing => self.acknowledge(out),
            Role::Idle | Role::Failed => {}
        }
    }

    /// Whether nobody else has what this brick has.
    pub fn is_only(&self) -> bool {
        self.view.in_sync.len() == 1 && self.view.in_sync.contains(&self.me)
    }

    fn on_durable(&mut self, lsn: Lsn, available: u64, out: &mut Out<B>) {
        self.durable = self.durable.max(lsn);
        self.available = available;
        match self.role {
            Role::Secondary => self.acknowledge(out),
            Role::Healing => self.send_room(out),
            _ => {}
        }
    }

    fn on_synced(&mut self, now: Duration, token: SyncToken, errno: i32, out: &mut Out<B>) {
        if let SyncToken::Peer(to, ticket, epoch) = token {
            self.peer_syncs.remove(&(to, ticket, epoch));
        }
        if errno != 0 && !self.is_only() {
            if self.role == Role::Idle {
                // Before it acts in any view.
                self.uncertain = true;
                return;
            }
            return self.on_own_sync_failure(now, errno, out);
        }
        match token {
            SyncToken::Local(ticket) => self.on_sync_part(now, self.me, ticket, errno, out),
            // One of an older epoch is asked for again by a primary that still waits for it.
            SyncToken::Peer(to, ticket, epoch) if epoch == self.view.epoch => {
                self.send(to, Message::Synced { ticket, errno }, out);
            }
            SyncToken::Peer(..) => {}
        }
    }

    fn on_message(&mut self, now: Duration, from: BrickId, message: Message, out: &mut Out<B>) {
        match message {
            Message::Ack { lsn, durable, available } => self.on_ack(now, from, lsn, durable, available, out),
            Message::Failed { .. } => {
                if self.leads() && self.view.in_sync.contains(&from) {
                    self.propose_removal(now, &[from], "it could not apply a change", out);
                } else if self.leads() {
                    // It ends its healing: nothing has to wait for it.
                    self.drop_joiner(now, from, out);
                }
            }
            Message::Sync { ticket, lsn, fid } => self.on_peer_sync(from, ticket, lsn, fid, out),
            Message::Synced { ticket, errno } => self.on_sync_part(now, from, ticket, errno, out),
            Message::StateQuery => self.on_state_query(from, out),
            Message::StateReport { last, durable, kept } => {
                self.on_state_report(now, from, durable, Report { last, kept }, out);
            }
            Message::SendTail { after } => self.on_send_tail(from, &after, out),
            Message::Committed { lsn } => {
                let follows = matches!(self.role, Role::Secondary | Role::Healing);
                if follows && self.view.primary == Some(from) {
                    self.on_committed(lsn);
                }
            }
            Message::Healed { join_id, lsn } => self.on_joiner_healed(now, from, join_id, lsn, out),
        }
    }

    pub(crate) fn send(&self, to: BrickId, message: Message, out: &mut Out<B>) {
        out.push(Output::Send { to, epoch: self.view.epoch, message });
    }

    /// What must hold between any two steps.
    fn check(&self) {
        assert!(
            self.commit <= self.last.lsn && self.applied <= self.last.lsn,
            "nothing is ahead of the journal"
        );
        assert!(
            self.window.back().is_none_or(|e| e.stamp == self.last),
            "what is kept is the end of the journal"
        );
        if self.leads() {
            assert!(self.view.primary == Some(self.me), "only the view's primary leads");
            assert!(self.view.in_sync.contains(&self.me), "a primary is in sync");
        }
        if self.role == Role::Primary {
            let ahead = self.last.lsn.0 - self.commit.0;
            assert!(self.window.len() as u64 == ahead, "the window holds just what is not committed");
        } else {
            assert!(self.waiting.is_empty(), "only a primary answers");
        }
    }
}

//! Directories that live on another set than their parent: making and removing them, as transactions of two sets.
//!
//! The other set holds the intent, as a mark on the directory that names the transaction: a marked directory lives if and
//! only if its entry exists. mkdir: the other set makes the directory, marked; this set makes the entry (the moment it
//! counts); the mark is cleared. rmdir: the other set marks the directory, if it is empty; this set removes the entry; the
//! directory is removed. A crash anywhere leaves at worst a marked directory, whose primary asks for the entry and ends
//! the transaction ([`crate::resolve`]). What may be done when is decided in `namespace::transaction`; the protocol is
//! docs/design/0005.

use crate::beneath::AboveAsked;
use crate::brick::LocalBrick;
use crate::change::Ask;
use crate::core::{Cx, SetCore};
use crate::io::{Output, ReplyTo};
use crate::joint::Joint;
use crate::joint_ends::Participant;
use crate::leaving::Telling;
use crate::moves::{Held, Move, Walk};
use crate::paths::{PathAsked, PathTo};
use crate::relay::Relay;
use crate::request::AdmittedRequest;
use crate::resolve::Resolve;
use crate::resolve_files::FileResolve;
use crate::rights::{Permit, RightAsked};
use crate::steps::TransactionKind;
use crate::stub_marks::StubMark;
use crate::taken::TakenResolve;
use crate::waiters::{Address, AfterReply, ReplyShape, Waiter};
use alloc::boxed::Box;
use alloc::vec::Vec;
use bytes::Bytes;
use ids::{Fid, OpId, SetId};
use namespace::{Decision, Entry, Need, placement};
use replica::Admission;
use wire::limits::DEPTH_MAX;
use wire::op::Ancestor;
use wire::{Attr, Body, Change, Errno, Fail, Name, Op, Reply};

/// A transaction of this set with another one, and the entry that it is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Transaction {
    pub(crate) tx: OpId,
    pub(crate) parent: Fid,
    pub(crate) name: Name,
}

/// A client's request that waits for the other set's agreement.
#[derive(Debug)]
pub(crate) struct Pair<R> {
    id: OpId,
    pub(crate) op: Op,
    /// What its client may, unless it is trusted.
    permit: Option<Permit>,
    /// The other set.
    home: SetId,
    transaction: Transaction,
    /// The lock under which a rename goes on that needs it.
    held: Option<Held>,
    to: Address<R>,
}

/// What another set was asked for, and what waits for its answer.
#[derive(Debug)]
pub(crate) enum Asking<R> {
    /// To make a directory.
    MkdirPrepared(Pair<R>),
    /// To mark this directory for removal.
    RmdirPrepared(Pair<R>, Fid),
    /// To end a transaction that has committed. If that does not get there, that set will ask.
    TransactionEnded(SetId, Fid, TransactionKind),
    /// To have its directory at the path that it has now.
    PlaceTold(SetId, Fid),
    /// Whether the entry exists that a marked directory needs.
    EntryChecked(Resolve),
    /// This set, to have on disk where its directory is whose entry exists.
    KeptOnDisk(Resolve),
    /// To end a transaction as the entry says.
    Ended(Resolve),
    /// For the lock on the tree's shape.
    Locked(Move<R>),
    /// What lies above a directory.
    Lineage(Move<R>),
    /// What lies above a directory, for a request of a client whose key is for what lies beneath one.
    Beneath(Box<AboveAsked<R>>),
    /// Whether a client may do that set's part of what it asks for.
    Right(Box<RightAsked<R>>),
    /// For that lock, for a directory that is to move here from another set.
    JointLocked(Box<Joint<R>>, Held),
    /// What lies above the directory that it is to come to.
    JointLineage(Box<Joint<R>>, Walk),
    /// The set of an empty directory that is to give way to one that moves here.
    GivesWay(Box<Joint<R>>, (SetId, Fid)),
    /// The set of a directory that has moved here, to have on disk that it has left.
    LeftOnDisk(Participant),
    /// That set, to end the mark of the move.
    LeaveEnded(Participant),
    /// To release the lock. If that does not get there, the lock runs out.
    Unlocked,
    /// A home, to agree to a change of a file's names; and then to have that on disk.
    Agreed(Box<Joint<R>>, Need),
    /// The home of a stub's file, whether it is marked.
    StubConfirmed(StubMark<R>),
    /// The set from which a file is renamed, where that lives.
    SourceLooked(Box<Joint<R>>),
    /// The home of what was found there, whether it knows how to be asked for a mark.
    HomeKnows(Box<Joint<R>>, Need),
    AgreedOnDisk(Box<Joint<R>>),
    /// This set, to have the entry on disk.
    EnteredOnDisk(Box<Waiter<R>>, Vec<Participant>),
    /// Homes, one after the other, to end a transaction that has committed: this one, and those that are left.
    Told(Box<Waiter<R>>, Participant, Vec<Participant>),
    /// A home, to end a transaction about a file.
    FileEnded(SetId, Fid),
    /// How a transaction about a file of this set has ended.
    Outcome(FileResolve),
    /// Something of a file that moves to another set, by its number.
    Departing(u64),
    /// Which entries lead to the directory for which this set has a folder of names.
    Path(Box<PathAsked>),
    /// This set, to have the copy of it on disk.
    CopyOnDisk(Box<PathTo>),
    /// A piece's set, in the job of that number, about that piece.
    Piece(u64, usize),
    /// This set, in that job.
    Striping(u64),
    /// A file's set, whether the file has this piece; and to have on disk that it has not.
    PieceChecked(Fid),
    PieceGone(Fid),
    /// A set, about this file that has left for good; and who is next.
    Leaving(Fid, Telling),
    /// The next step of a directory that goes to another set, by its transaction.
    HandedOver(OpId),
    /// A set, to have on disk what it has of directories that go together.
    HandedOverOnDisk(u64),
    /// That set, to end this.
    TakingEnded(SetId, Fid),
    /// Whether a directory was given to this set.
    GivenChecked(TakenResolve),
    /// A set, what this one was asked about a directory.
    Relayed(Box<Relay<R>>),
}

impl<B: LocalBrick, R: ReplyTo> SetCore<B, R> {
    /// Asks the primary of another set.
    pub(crate) fn ask(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        asking: Asking<R>,
        set: SetId,
        op: Op,
        name: Option<OpId>,
    ) {
        let id = self.asks.issue(asking);
        cx.out.push(Output::Ask { id, set, op, name, payload: Bytes::new() });
    }

    /// Another set has answered.
    pub(crate) fn on_answered(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        asking: Asking<R>,
        answer: Result<Body, Fail>,
    ) {
        match asking {
            Asking::MkdirPrepared(pair) => self.on_mkdir_prepared(cx, pair, answer),
            Asking::RmdirPrepared(pair, fid) => self.on_rmdir_prepared(cx, pair, fid, answer),
            Asking::TransactionEnded(home, fid, _) => {
                if let Err(fail) = answer {
                    tracing::debug!("end the transaction about {fid} on set {home}: {fail:?}");
                }
            }
            Asking::PlaceTold(home, fid) => {
                if let Err(fail) = answer {
                    tracing::debug!("tell set {home} where {fid} is: {fail:?}");
                }
            }
            Asking::EntryChecked(resolve) => self.on_entry_checked(cx, resolve, answer),
            Asking::KeptOnDisk(resolve) => self.on_kept_on_disk(cx, resolve, answer),
            Asking::Ended(resolve) => self.on_ended(&resolve, answer),
            Asking::Locked(m) => self.on_locked(cx, m, answer),
            Asking::Lineage(m) => self.on_lineage(cx, m, answer),
            Asking::Beneath(asked) => self.on_above(cx, asked, answer),
            Asking::Right(asked) => self.on_right(cx, *asked, answer),
            Asking::Agreed(joint, need) => self.on_agreed(cx, joint, &need, answer),
            Asking::StubConfirmed(mark) => self.on_stub_confirmed(cx, mark, answer),
            Asking::SourceLooked(joint) => self.on_source_looked(cx, joint, answer),
            Asking::HomeKnows(joint, need) => self.on_home_knows(cx, joint, need, answer),
            Asking::AgreedOnDisk(joint) => self.on_agreed_on_disk(cx, joint, answer),
            Asking::EnteredOnDisk(waiter, parts) => self.on_entered_on_disk(cx, waiter, parts, answer),
            Asking::Told(waiter, told, parts) => self.on_told(cx, waiter, told, parts, answer),
            Asking::JointLocked(joint, held) => self.on_locked_for(cx, joint, held, answer),
            Asking::JointLineage(joint, walk) => self.on_lineage_for(cx, joint, walk, answer),
            Asking::GivesWay(joint, dir) => self.on_gives_way(cx, joint, dir, answer),
            Asking::LeftOnDisk(part) => self.on_left_on_disk(cx, part, answer),
            Asking::LeaveEnded(part) => self.on_leave_ended(cx, part, answer),
            Asking::FileEnded(home, fid) => self.on_file_ended(cx.at.now, (home, fid), &answer),
            Asking::Path(asked) => self.on_path(cx, asked, answer),
            Asking::CopyOnDisk(place) => self.on_copy_on_disk(cx, *place, &answer),
            Asking::Departing(number) => self.on_departing(cx, number, answer),
            Asking::Piece(job, n) => self.on_piece(cx, (job, n), answer),
            Asking::Striping(job) => self.on_striping(cx, job, answer),
            Asking::PieceChecked(fid) => self.on_piece_checked(cx, fid, answer),
            Asking::PieceGone(fid) => self.on_piece_gone(cx, fid, &answer),
            Asking::HandedOver(tx) => self.on_handed_over(cx, tx, answer),
            Asking::HandedOverOnDisk(group) => self.on_handed_over_on_disk(cx, group, &answer),
            Asking::TakingEnded(set, fid) => self.on_taking_ended(set, fid, &answer),
            Asking::GivenChecked(resolve) => self.on_given_checked(cx, resolve, answer),
            Asking::Relayed(relay) => self.on_relayed(cx, relay, answer),
            Asking::Leaving(fid, steps) => self.on_told_of_leaver(cx, fid, steps, answer),
            Asking::Outcome(resolve) => self.on_outcome(cx, resolve, answer),
            Asking::Unlocked => {
                if let Err(fail) = answer {
                    tracing::debug!("release the tree's lock: {fail:?}");
                }
            }
        }
    }

    /// The other set that a new directory under `parent` shall live on, if any.
    pub(crate) fn choose_home(&mut self, cx: &mut Cx<'_, B, R>, parent: Fid) -> Option<SetId> {
        if self.settings.sets.len() < 2 {
            return None;
        }
        let set = self.set;
        let sets = self.rooms(cx);
        let parent = self.parent_of_new(parent)?;
        let home = placement::choose(&parent, &sets, self.tree.spread)?;
        self.tree.spread += 1;
        cx.out.push(Output::Promised(home));
        (home != set).then_some(home)
    }

    /// What is known of the sets that may get something new. A set that is led but has not told its room yet (it was just
    /// started) counts as alike with this one; one that is not led gets nothing.
    pub(crate) fn rooms(&mut self, cx: &Cx<'_, B, R>) -> Vec<placement::SetRoom> {
        let set = self.set;
        let own = cx.outside.room(set).or_else(|| {
            let room = self.brick.room().ok()?;
            Some(placement::SetRoom::new(set, room.available, room.total))
        });
        let unknown = |set| own.map(|own| placement::SetRoom { set, promised: 0, busy: 0, ..own });
        // This one is not to get more if it is to be emptied.
        let drains = self.settings.rebalance.drains;
        let led = self.settings.sets.iter().filter(|(s, led)| *led && !(drains && *s == set));
        let led = led.map(|(set, _)| *set);
        led.filter_map(|set| cx.outside.room(set).or_else(|| unknown(set))).collect()
    }

    /// What placement has to know of the directory in which a new one is made.
    fn parent_of_new(&mut self, parent: Fid) -> Option<placement::Parent> {
        let set = self.set;
        if parent.is_root() {
            return Some(placement::Parent { set, depth: 0, subdirectories: 0 });
        }
        // Not every file system counts the directories in one.
        let subdirectories = self.brick.attr(parent).ok()?.nlink.saturating_sub(2);
        let depth = if subdirectories < placement::kept(1) { 1 } else { self.depth_of(parent)? };
        Some(placement::Parent { set, depth, subdirectories })
    }

    fn depth_of(&mut self, dir: Fid) -> Option<u32> {
        if let Some(known) = self.tree.depth(dir) {
            return Some(known);
        }
        let depth = u32::try_from(self.path_of(dir).ok()?.len()).unwrap_or(u32::MAX);
        self.tree.keep_depth(dir, depth);
        Some(depth)
    }

    /// mkdir of a directory that lives on `home`.
    pub(crate) fn make_elsewhere(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        id: OpId,
        op: Op,
        home: SetId,
        to: Address<R>,
    ) {
        // Decided once without the other set, to refuse early and to fix mode and owner.
        let decision = self.decide(cx, &op, Ask { id, ..Ask::default() });
        let (name, parent, mode, uid, gid) = match decision {
            Ok(Decision::Change(Change::Create { parent, name, mode, uid, gid, .. }, _)) => {
                (name, parent, mode, uid, gid)
            }
            other => {
                let refused = other.and(Err(Errno::EIO));
                return self.carry_out(cx, id, refused, Bytes::new(), Waiter::done(to));
            }
        };
        let path = match self.path_of(parent) {
            Ok(path) => path,
            // Who lies above is not told by the copies here: it is made with its parent.
            Err(_) => {
                return self.change_here(cx, AdmittedRequest::of(id, op, to));
            }
        };
        let Some(transaction) = self.begin(cx, id, parent, &name) else {
            return self.refuse(cx, to, Fail::Busy);
        };
        let tx = transaction.tx;
        let prepare = Op::PrepareMkdir { path, name, mode, uid, gid };
        let pair = Pair { id, op, permit: None, home, transaction, held: None, to };
        self.ask(cx, Asking::MkdirPrepared(pair), home, prepare, Some(tx));
    }

    fn on_mkdir_prepared(&mut self, cx: &mut Cx<'_, B, R>, pair: Pair<R>, prepared: Result<Body, Fail>) {
        let known = self.end(cx, pair.id, &pair.transaction);
        match (prepared, known) {
            (Ok(Body::Attr { attr }), Ok(())) => self.enter(cx, pair, attr),
            (Ok(Body::Attr { attr }), Err(fail)) => {
                self.abort(cx, pair.home, attr.fid, pair.transaction, true);
                self.refuse(cx, pair.to, fail);
            }
            (Ok(_), _) => self.refuse(cx, pair.to, Errno::EIO.into()),
            // It was made, and is gone: somebody ended the transaction, or a power cut did. The client tries again.
            (Err(Fail::Errno { errno }), Ok(())) if errno == Errno::ESTALE.0 => {
                self.refuse(cx, pair.to, Fail::Busy);
            }
            // Its room is not what was thought: the directory lives with its parent.
            (Err(Fail::Errno { errno }), Ok(()))
                if [Errno::ENOSPC.0, Errno::EDQUOT.0, Errno::EROFS.0].contains(&errno) =>
            {
                let Pair { id, op, to, .. } = pair;
                self.change_here(cx, AdmittedRequest::of(id, op, to));
            }
            (Err(fail), known) => self.refuse_for_other(cx, pair.to, known.err().unwrap_or(fail)),
        }
    }

    /// The second step of mkdir: the entry.
    fn enter(&mut self, cx: &mut Cx<'_, B, R>, pair: Pair<R>, attr: Attr) {
        let fid = attr.fid;
        let waiter = Waiter::with(Address::NOBODY, Reply(Ok(Body::Attr { attr })), Bytes::new());
        self.commit(cx, pair, fid, true, waiter);
    }

    /// A directory that lives on another set is removed, or gives way to another one. `held`: the lock under which a rename
    /// goes on that needs it.
    pub(crate) fn remove_elsewhere(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        (id, op, permit): (OpId, Op, Option<Permit>),
        entry: Entry,
        held: Option<Held>,
        to: Address<R>,
    ) {
        let begun = match &op {
            Op::Rmdir { parent, name } => self.begin(cx, id, *parent, name),
            Op::Rename { to_parent, to_name, .. } => self.begin(cx, id, *to_parent, to_name),
            _ => None,
        };
        let Some(transaction) = begun else {
            held.into_iter().for_each(|held| self.unlock(cx, held.lock));
            return self.refuse(cx, to, Fail::Busy);
        };
        let (home, fid, tx) = (entry.home, entry.fid, transaction.tx);
        let prepare = Op::PrepareRmdir { fid, by: id.session };
        let pair = Pair { id, op, permit, home, transaction, held, to };
        self.ask(cx, Asking::RmdirPrepared(pair, fid), home, prepare, Some(tx));
    }

    fn on_rmdir_prepared(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        pair: Pair<R>,
        fid: Fid,
        prepared: Result<Body, Fail>,
    ) {
        let known = self.end(cx, pair.id, &pair.transaction);
        let lock = pair.held.as_ref().map(|held| held.lock);
        let holds = pair.held.as_ref().is_none_or(|held| self.holds(cx, held));
        let known = known.and(if holds { Ok(()) } else { Err(Fail::Busy) });
        let known = known.and_then(|()| self.still_permits(pair.permit.as_ref(), &pair.op, None));
        let failed = match (prepared, known) {
            (Ok(_), Ok(())) => None,
            // An earlier attempt got further: only the entry is left.
            (Err(Fail::Errno { errno }), Ok(())) if errno == Errno::ESTALE.0 || errno == Errno::ENOENT.0 => {
                None
            }
            (Ok(_), Err(fail)) => {
                self.abort(cx, pair.home, fid, pair.transaction.clone(), false);
                Some(fail)
            }
            (Err(fail), known) => {
                Some(known.err().unwrap_or_else(|| self.refused_elsewhere(cx, &pair, fid, fail)))
            }
        };
        if let Some(fail) = failed {
            lock.into_iter().for_each(|lock| self.unlock(cx, lock));
            return self.refuse_for_other(cx, pair.to, fail);
        }
        let waiter = Waiter { shape: ReplyShape::Done, ..Waiter::nobody() };
        self.commit(cx, pair, fid, false, waiter);
    }

    /// The other set refuses to have its directory removed. The source of a rename may have gone before that set saw what it
    /// refuses for: then there was no moment at which that is the answer, and the client asks again.
    fn refused_elsewhere(&mut self, cx: &mut Cx<'_, B, R>, pair: &Pair<R>, fid: Fid, fail: Fail) -> Fail {
        let above = pair.held.as_ref().map(|held| &held.above);
        match self.decide(cx, &pair.op, Ask { id: pair.id, above, ..Ask::default() }) {
            Ok(Decision::RemoveElsewhere(entry)) if entry.fid == fid => fail,
            _ => Fail::Busy,
        }
    }

    /// The moment at which the transaction counts: the entry is made or removed. `keep`: what then becomes of the
    /// directory on the other set.
    fn commit(&mut self, cx: &mut Cx<'_, B, R>, pair: Pair<R>, fid: Fid, keep: bool, waiter: Waiter<R>) {
        let Pair { id, op, home, transaction, held, to, .. } = pair;
        let above = held.as_ref().map(|held| &held.above);
        let decision = self.decide(cx, &op, Ask { id, placed: Some((home, fid)), above, ..Ask::default() });
        // The entry may lead to something else by now that could go without asking anybody.
        let decision = match decision {
            Ok(Decision::Change(change, _)) if !is_about(&change, fid) => Err(Errno::EAGAIN),
            decision => decision,
        };
        let (tx, lock, of) = (transaction.tx, held.map(|held| held.lock), TransactionKind::of_pair(&op));
        if !matches!(decision, Ok(Decision::Change(..))) {
            self.abort(cx, home, fid, transaction, keep);
            lock.into_iter().for_each(|lock| self.unlock(cx, lock));
        }
        let waiter =
            Waiter { to, after: AfterReply::EndTransaction { home, fid, tx, keep, lock, of }, ..waiter };
        self.carry_out(cx, id, decision, Bytes::new(), waiter);
    }

    /// A directory of another set was renamed here: it is to lie at its path there too. Nothing but the readability of bricks
    /// depends on it.
    pub(crate) fn send_place(&mut self, cx: &mut Cx<'_, B, R>, fid: Fid) {
        if !self.is_primary() {
            return;
        }
        let Ok(at) = self.brick.location_of(fid) else { return };
        let Ok(path) = self.path_of(at.parent) else { return };
        let relocate = Op::Relocate { fid, path, name: at.name };
        self.ask(cx, Asking::PlaceTold(at.home, fid), at.home, relocate, None);
    }

    /// Begins a transaction about an entry; `None` if another one about it is under way.
    pub(crate) fn begin(
        &mut self,
        cx: &Cx<'_, B, R>,
        request: OpId,
        parent: Fid,
        name: &Name,
    ) -> Option<Transaction> {
        if self.hand_over.gives(parent) {
            return None;
        }
        let (tx, epoch) = (cx.outside.next_id(), self.replica.view().epoch);
        let begun = self.transactions.begin(epoch, tx, request, parent, name);
        begun.then(|| Transaction { tx, parent, name: name.clone() })
    }

    /// Ends a transaction here. `Ok`: it may commit, now. Otherwise it never will.
    pub(crate) fn end(&mut self, cx: &Cx<'_, B, R>, request: OpId, t: &Transaction) -> Result<(), Fail> {
        let epoch = self.replica.view().epoch;
        let known = self.transactions.end(epoch, t.tx, t.parent, &t.name);
        self.admit_again(cx, request)?;
        if known { Ok(()) } else { Err(Fail::Busy) }
    }

    /// Time went by while another set was asked: is this brick still the one to decide?
    pub(crate) fn admit_again(&mut self, cx: &Cx<'_, B, R>, id: OpId) -> Result<(), Fail> {
        let epoch = self.replica.view().epoch;
        match self.replica.admit(cx.at.now, epoch, id, 0) {
            Admission::Go => Ok(()),
            Admission::WrongView(epoch) => Err(Fail::WrongView { epoch }),
            Admission::BelowQuorum => Err(Fail::BelowQuorum),
            Admission::Busy | Admission::Done(..) => Err(Fail::Busy),
        }
    }

    /// The directories from below the root down to `dir`.
    pub(crate) fn path_of(&mut self, dir: Fid) -> Result<Vec<Ancestor>, Errno> {
        let mut path = Vec::new();
        let mut at = dir;
        while !at.is_root() {
            let place = self.brick.location_of(at)?;
            path.push(Ancestor { fid: at, home: place.home, name: place.name });
            at = place.parent;
            if path.len() > DEPTH_MAX {
                return Err(Errno::ELOOP);
            }
        }
        path.reverse();
        Ok(path)
    }
}

/// Whether the change makes or removes the entry of this directory.
pub(crate) fn is_about(change: &Change, dir: Fid) -> bool {
    match change {
        Change::Create { fid, .. } | Change::Rmdir { fid, .. } => *fid == dir,
        Change::Rename { replaced, .. } | Change::Enter { replaced, .. } => {
            replaced.as_ref().is_some_and(|r| r.fid == dir)
        }
        _ => false,
    }
}

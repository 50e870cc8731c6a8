//! Changes of names of files that live on another set than the name, as transactions (docs/design/0016).
//!
//! The set that gets or loses the entry that decides asks the home of each file concerned. The home marks the file and brings
//! that to disk. Then the entry is made or removed: the moment it counts. When it is on disk too the homes hear that it is
//! done, and then the client. A home that hears nothing asks for the entry ([`crate::resolve_files`]).

use crate::brick::LocalBrick;
use crate::change::Ask;
use crate::core::{Cx, SetCore};
use crate::dir_moves::SWAPS;
use crate::elsewhere::{Asking, Transaction, is_about};
use crate::io::ReplyTo;
use crate::joint_ends::{Decided, Part, Participant, ends_of_exchange};
use crate::moves::Held;
use crate::rights::Permit;
use crate::waiters::{Address, AfterReply, ReplyShape, Waiter};
use alloc::boxed::Box;
use alloc::vec::Vec;
use bytes::Bytes;
use core::time::Duration;
use ids::{Fid, OpId, SessionId, SetId};
use namespace::{Decision, Entry, InExchange, Need};
use wire::op::{EntryName, rename_flags};
use wire::{Attr, Body, Change, Errno, Fail, Name, Op};

/// From this level of the pool on homes have two names change places: `cluster::LEVEL`.
const ONE_HOME: u32 = 1;
/// From this one on names of two sets do.
pub(crate) const TWO_SETS: u32 = 4;

/// A client's request that waits for the agreement of homes.
#[derive(Debug)]
pub(crate) struct Joint<R> {
    id: OpId,
    by: SessionId,
    pub(crate) op: Op,
    pub(crate) transaction: Transaction,
    /// That about the other entry of an exchange, which decides for the file that goes there.
    second: Option<Transaction>,
    /// The lock under which it goes on, if one of the two is a directory that needs it.
    pub(crate) held: Option<Held>,
    /// When it began.
    pub(crate) since: Duration,
    /// What the entry that decides led to before any home was asked.
    led_to: Option<Fid>,
    to: Address<R>,
    parts: Vec<Participant>,
    /// The directory of another set that has agreed to give way, or is gone there.
    gives_way: Option<(SetId, Fid)>,
    /// What homes have agreed to, or what is gone there.
    pub(crate) agreed: Vec<Need>,
    pub(crate) incoming: Option<Attr>,
    /// What a rename is of and its home, if there is a stub or a directory where it comes from.
    pub(crate) source: Option<(Fid, SetId)>,
    /// Its home had nothing of it when it was asked first.
    pub(crate) missed: bool,
    /// That is a directory.
    pub(crate) of_directory: bool,
    /// What its client may, unless it is trusted.
    pub(crate) permit: Option<Permit>,
    /// Of an exchange with another set: what that set's entry is to lead to.
    leads: Option<InExchange>,
}

impl<R> Joint<R> {
    /// Where a rename from another set comes from.
    pub(crate) fn comes_from(&self) -> Option<(SetId, EntryName)> {
        let Op::MoveIn { from, parent, name, .. } = &self.op else { return None };
        Some((*from, EntryName { dir: *parent, name: name.clone() }))
    }

    /// A set has marked something for it.
    fn take_part(&mut self, (home, fid): (SetId, Fid), part: Part) {
        let (tx, by, of) = (self.transaction.tx, self.by, self.kind());
        self.parts.push(Participant { home, fid, tx, by, part, of });
    }

    /// Whether it exchanges names of two sets.
    pub(crate) fn is_exchange(&self) -> bool {
        exchanges_in(&self.op)
    }

    /// What the other entry of such an exchange is to lead to, as the other set was asked first.
    pub(crate) fn exchange_with(&self) -> Option<&InExchange> {
        self.leads.as_ref()
    }

    /// The directory that is to come to this one, or beneath it, when what lies above that is asked for.
    pub(crate) fn comes_beneath(&self, dir: Fid) -> Option<Fid> {
        match self.comes_from() {
            Some((_, from)) if self.is_exchange() && from.dir == dir => self.led_to,
            _ => self.incoming.as_ref().map(|attr| attr.fid),
        }
    }

    /// The home has nothing of what was found, and it was found once more: whether that was so before. Then its set has lost it, and
    /// the name is all there is. The first time it may have had another name just when the home was asked.
    pub(crate) fn misses_again(&mut self) -> bool {
        core::mem::replace(&mut self.missed, true)
    }

    /// Whether that is asked of the set of a stub, and not of the file's home.
    pub(crate) fn is_about_a_stub(&self, need: &Need) -> bool {
        self.source
            .is_some_and(|(fid, home)| need.fid == Some(fid) && need.home != home && need.add.is_none())
            && self.comes_from().is_some_and(|(from, _)| from == need.home)
    }
}

/// The entry that decides a request's outcome, and the directory that it is in.
pub(crate) fn decider(op: &Op) -> Option<(Fid, &Name)> {
    match op {
        Op::Unlink { parent, name }
        | Op::LinkIn { parent, name, .. }
        | Op::Depart { parent, name, .. }
        | Op::Retarget { parent, name, .. } => Some((*parent, name)),
        Op::DepartAll { names, .. } => names.first().map(|place| (place.dir.without_names(), &place.name)),
        Op::Rename { to_parent, to_name, .. } | Op::MoveIn { to_parent, to_name, .. } => {
            Some((*to_parent, to_name))
        }
        _ => None,
    }
}

/// Whether it exchanges a name of another set for one of this set.
fn exchanges_in(op: &Op) -> bool {
    matches!(op, Op::MoveIn { flags, .. } if flags & rename_flags::EXCHANGE != 0)
}

/// The other entry of an exchange within this set.
fn exchanged(op: &Op) -> Option<(Fid, &Name)> {
    match op {
        Op::Rename { parent, name, flags, .. } if flags & rename_flags::EXCHANGE != 0 => {
            Some((*parent, name))
        }
        _ => None,
    }
}

impl<B: LocalBrick, R: ReplyTo> SetCore<B, R> {
    /// Begins such a change: the first home is asked.
    pub(crate) fn begin_joint(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        (id, by): (OpId, SessionId),
        (op, need, permit): (Op, Need, Option<Permit>),
        to: Address<R>,
    ) {
        let level = self.settings.level;
        if level < ONE_HOME && self.have_one_home(&op) || level < TWO_SETS && exchanges_in(&op) {
            return self.refuse_for_other(cx, to, Errno::EXDEV.into());
        }
        if let Op::MoveIn { parent, name, .. } = &op
            && self.pauses.hold(cx.at.now, *parent, name)
        {
            return self.refuse(cx, to, Fail::Busy);
        }
        let Some((transaction, second)) = self.begin_both(cx, id, &op) else {
            return self.refuse(cx, to, Fail::Busy);
        };
        let led_to = self.leads_to(&transaction);
        let joint = Joint {
            id,
            by,
            op,
            transaction,
            second,
            held: None,
            since: cx.at.now,
            led_to,
            to,
            parts: Vec::new(),
            gives_way: None,
            agreed: Vec::new(),
            incoming: None,
            source: None,
            missed: false,
            of_directory: false,
            permit,
            leads: need.exchange.clone(),
        };
        self.ask_home(cx, Box::new(joint), need);
    }

    /// Whether it exchanges two files of one other set.
    fn have_one_home(&mut self, op: &Op) -> bool {
        let names = exchanged(op).into_iter().chain(decider(op).filter(|_| exchanged(op).is_some()));
        let entries = names.filter_map(|(dir, name)| self.brick.entry(dir, name).ok()?);
        let homes: Vec<SetId> = entries.filter(|e| !e.is_dir()).map(|e| e.home).collect();
        matches!(homes[..], [one, two] if one == two && one != self.set)
    }

    /// Begins the transaction about the entry that decides, and of an exchange that about the other one. A home that asks for
    /// either of them waits then.
    fn begin_both(
        &mut self,
        cx: &Cx<'_, B, R>,
        id: OpId,
        op: &Op,
    ) -> Option<(Transaction, Option<Transaction>)> {
        let (parent, name) = decider(op)?;
        let first = self.begin(cx, id, parent, name)?;
        let Some((parent, name)) = exchanged(op) else { return Some((first, None)) };
        let second = self.begin(cx, id, parent, name);
        if second.is_none() {
            // It has not agreed to anything, and answers by itself.
            let _ = self.end(cx, id, &first);
        }
        second.map(|second| (first, Some(second)))
    }

    /// Ends it here. `Ok`: it may commit, now.
    fn end_both(&mut self, cx: &Cx<'_, B, R>, joint: &Joint<R>) -> Result<(), Fail> {
        let first = self.end(cx, joint.id, &joint.transaction);
        let second = joint.second.as_ref().map(|second| self.end(cx, joint.id, second));
        first.and(second.unwrap_or(Ok(())))
    }

    /// The entry leads to an empty directory of another set, which has to agree that it goes.
    fn ask_to_give_way(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        joint: Box<Joint<R>>,
        Entry { fid, home, .. }: Entry,
    ) {
        let (prepare, tx) = (Op::PrepareRmdir { fid, by: joint.by }, joint.transaction.tx);
        self.ask(cx, Asking::GivesWay(joint, (home, fid)), home, prepare, Some(tx));
    }

    pub(crate) fn on_gives_way(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        mut joint: Box<Joint<R>>,
        (home, fid): (SetId, Fid),
        answer: Result<Body, Fail>,
    ) {
        joint.gives_way = Some((home, fid));
        match answer {
            Ok(_) => self.bring_mark_to_disk(cx, joint, (home, fid), (Part::GivesWay, false)),
            // Its set has lost it: only the entry is left.
            Err(Fail::Errno { errno }) if is_gone(errno) => self.go_on_joint(cx, joint),
            Err(fail) => self.give_up(cx, *joint, fail),
        }
    }

    /// What a home has agreed to goes to disk, or is there.
    fn note_sync(&mut self, joint: &Joint<R>, syncing: bool) {
        for Transaction { tx, parent, name } in [&joint.transaction].into_iter().chain(&joint.second) {
            self.transactions.sync(*tx, *parent, name, syncing);
        }
    }

    /// What the entry that decides leads to now.
    fn leads_to(&mut self, Transaction { parent, name, .. }: &Transaction) -> Option<Fid> {
        self.brick.entry(*parent, name).ok().flatten().map(|e| e.fid)
    }

    /// Whether the entry has lost the file that it is to lead to. The home need not have marked that one: it had the name
    /// already.
    fn has_lost_it(&mut self, joint: &Joint<R>) -> bool {
        let Some(file) = joint.incoming.as_ref().map(|attr| attr.fid) else { return false };
        joint.led_to == Some(file) && self.leads_to(&joint.transaction) != Some(file)
    }

    pub(crate) fn ask_home(&mut self, cx: &mut Cx<'_, B, R>, joint: Box<Joint<R>>, need: Need) {
        let home = need.home;
        if self.settings.level < SWAPS
            && matches!(&need.exchange, Some(InExchange::Source(next)) if next.is_dir())
        {
            return self.give_up(cx, *joint, Errno::EXDEV.into());
        }
        let decides = match need.exchange {
            Some(InExchange::Target(set)) => set,
            // The set of a stub asks the file's home how it ends, which is marked already.
            _ => joint.source.filter(|_| joint.is_about_a_stub(&need)).map_or(self.set, |(_, home)| home),
        };
        let (tx, coordinator, by) = (joint.transaction.tx, decides, joint.by);
        let Need { fid, drop, add, copy, exchange, .. } = need.clone();
        let prepare = match (fid, drop, copy, exchange) {
            (Some(fid), Some(drop), Some(copy), _) => {
                Op::PrepareLeave { tx, coordinator, fid, copy, drop, by }
            }
            (fid, Some(drop), _, Some(InExchange::Source(successor))) => {
                Op::PrepareExchange { tx, coordinator, fid, drop, add, successor, by }
            }
            (fid, drop, ..) => Op::PrepareFile { tx, coordinator, fid, drop, add, by },
        };
        // Two files may have one home: each request has a name of its own.
        let name = cx.outside.next_id();
        self.ask(cx, Asking::Agreed(joint, need), home, prepare, Some(name));
    }

    /// A home has agreed or not.
    pub(crate) fn on_agreed(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        mut joint: Box<Joint<R>>,
        need: &Need,
        answer: Result<Body, Fail>,
    ) {
        if joint.is_about_a_stub(need) {
            return self.on_stub_agreed(cx, joint, need, answer);
        }
        match (answer, need.fid) {
            (Ok(Body::Attr { attr }), _) => {
                let (fid, links, is_dir) = (attr.fid, attr.nlink, attr.is_dir());
                let source = joint.source.is_some_and(|(source, _)| source == fid);
                let comes = need.fid.is_none() || need.drop.is_none() || source && need.add.is_some();
                if comes {
                    joint.incoming = Some(attr);
                }
                if !comes || need.exchange.is_some() {
                    joint.agreed.push(need.clone());
                }
                let named = joint.is_exchange() && links > 1 && !is_dir;
                if is_dir && part_of(need) == Part::Exchanges {
                    // Its entry leads to something else first, and then it has moved.
                    joint.take_part((need.home, fid), Part::Moves);
                }
                let part = if is_dir && part_of(need) == Part::Names { Part::Moves } else { part_of(need) };
                self.bring_mark_to_disk(cx, joint, (need.home, fid), (part, named));
            }
            (Ok(_), _) => self.give_up(cx, *joint, Errno::EIO.into()),
            // A stub, or a directory; an older server says so of both.
            (Err(Fail::Errno { errno }), None) if errno == Errno::EXDEV.0 => self.look_at_source(cx, joint),
            (Err(Fail::Errno { errno }), Some(fid))
                if is_gone(errno) && joint.source == Some((fid, need.home)) && need.add.is_some() =>
            {
                self.look_at_source(cx, joint);
            }
            // The file is gone, by a power cut of its set, and only the entry is left; or it has another name by now.
            (Err(Fail::Errno { errno }), Some(_))
                if need.add.is_none() && need.copy.is_none() && is_gone(errno) =>
            {
                joint.agreed.push(need.clone());
                self.go_on_joint(cx, joint);
            }
            (Err(Fail::Errno { errno }), Some(fid)) if is_gone(errno) => {
                // Either the name leads to something else by now, or to a directory that has changed its set, or to nothing at all.
                let its = |e: &Entry| (e.fid, e.home) == (fid, need.home);
                let mut still = |at: &EntryName| {
                    self.brick.entry(at.dir, &at.name).is_ok_and(|e| e.is_some_and(|e| its(&e)))
                };
                let fail = match &need.drop {
                    Some(drop) if !still(drop) => Fail::Busy,
                    // Or to something else in a moment: another transaction has marked it, of which its home has heard the end.
                    Some(_) if self.brick.is_pending(fid) == Ok(true) => Fail::Busy,
                    Some(_) => Errno::ENOENT.into(),
                    None => Fail::Errno { errno },
                };
                self.give_up(cx, *joint, fail);
            }
            (Err(fail), _) => self.give_up(cx, *joint, fail),
        }
    }

    pub(crate) fn bring_mark_to_disk(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        mut joint: Box<Joint<R>>,
        (home, fid): (SetId, Fid),
        (part, named): (Part, bool),
    ) {
        joint.take_part((home, fid), part);
        self.note_sync(&joint, true);
        // A file that is to lose a name before it gets the other one has only its other names meanwhile: they are on disk too.
        let sync = if named { Op::SyncFs } else { Op::Fsync { fid } };
        self.ask(cx, Asking::AgreedOnDisk(joint), home, sync, None);
    }

    /// What a home has agreed to is on its disks, or not.
    pub(crate) fn on_agreed_on_disk(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        joint: Box<Joint<R>>,
        answer: Result<Body, Fail>,
    ) {
        self.note_sync(&joint, false);
        match answer {
            Ok(_) => self.go_on_joint(cx, joint),
            // It has gone away meanwhile, with the mark: it is asked again.
            Err(Fail::Errno { errno }) if is_gone(errno) => self.give_up(cx, *joint, Fail::Busy),
            Err(fail) => self.give_up(cx, *joint, fail),
        }
    }

    /// Asks the next home, or commits.
    pub(crate) fn go_on_joint(&mut self, cx: &mut Cx<'_, B, R>, joint: Box<Joint<R>>) {
        let holds = joint.held.as_ref().is_none_or(|held| self.holds(cx, held));
        if !holds || self.has_lost_it(&joint) {
            return self.give_up(cx, *joint, Fail::Busy);
        }
        let Joint { permit, op, incoming, .. } = &*joint;
        if let Err(fail) = self.still_permits(permit.as_ref(), op, incoming.as_ref()) {
            return self.give_up(cx, *joint, fail);
        }
        let ask = || Ask {
            id: joint.id,
            tx: joint.transaction.tx,
            agreed: &joint.agreed,
            incoming: joint.incoming.as_ref(),
            placed: joint.gives_way,
            above: joint.held.as_ref().map(|held| &held.above),
            ..Ask::default()
        };
        let decision = self.decide(cx, &joint.op, ask());
        match decision {
            Ok(Decision::AskHome(need)) => return self.ask_home(cx, joint, need),
            Ok(Decision::AskAbove(..)) if joint.held.is_none() => return self.lock_for(cx, joint),
            Ok(Decision::AskAbove(start, home)) => return self.ask_above_for(cx, joint, (start, home)),
            Ok(Decision::RemoveElsewhere(entry))
                if joint.gives_way.is_none() && matches!(joint.op, Op::MoveIn { .. }) =>
            {
                return self.ask_to_give_way(cx, joint, entry);
            }
            _ => {}
        }
        let known = self.end_both(cx, &joint);
        // Whoever has the lock next is answered by this set only when it has what is decided now.
        joint.held.iter().for_each(|held| self.unlock(cx, held.lock));
        if let Err(fail) = known {
            self.abort_joint(cx, &joint.transaction, &joint.parts);
            return self.refuse(cx, joint.to, fail);
        }
        let decision = match (decision, joint.gives_way) {
            // The entry leads to another directory by now, which could go without asking anybody.
            (Ok(Decision::Change(change, _)), Some((_, dir))) if !is_about(&change, dir) => {
                Err(Errno::EAGAIN)
            }
            (decision, _) => decision,
        };
        let decision = decision.and_then(|decision| self.validated(cx, decision));
        let (of, Joint { id, op, to, transaction, mut parts, .. }) = (joint.kind(), *joint);
        let mut waiter = Waiter { shape: ReplyShape::Done, ..Waiter::done(to) };
        if let Ok(Decision::Change(change, _)) = &decision {
            waiter.after = AfterReply::EndFile { tx: transaction.tx };
            let sync = sync_of(&op, transaction.parent);
            // The first that hears of an exchange of two files of one home has the names change places, and hears once more.
            if let (Change::Exchange { .. }, [one, two]) = (change, &parts[..])
                && one.home == two.home
            {
                parts.insert(0, *two);
            }
            if exchanges_in(&op) {
                parts = ends_of_exchange(&parts);
            }
            // The copy of what goes for good hears of it when all entries lead to it.
            let parts = if let Change::Leave { .. } = change { Vec::new() } else { parts };
            self.joints.insert(transaction.tx, Decided { of, sync, parts });
        } else {
            if let Err(errno) = &decision {
                self.note_refusal((id, &op), &Fail::from(*errno));
            }
            self.abort_joint(cx, &transaction, &parts);
        }
        self.carry_out(cx, id, decision, Bytes::new(), waiter);
    }

    /// The request fails before anything was decided.
    pub(crate) fn give_up(&mut self, cx: &mut Cx<'_, B, R>, joint: Joint<R>, fail: Fail) {
        let known = self.end_both(cx, &joint);
        joint.held.iter().for_each(|held| self.unlock(cx, held.lock));
        self.abort_joint(cx, &joint.transaction, &joint.parts);
        let fail = known.err().unwrap_or(fail);
        self.note_refusal((joint.id, &joint.op), &fail);
        self.refuse_for_other(cx, joint.to, fail);
    }

    /// A client that asks again is told. That a file cannot move is not told to one whose request would have had it move: its
    /// request bears the same name, and is carried out where the file is.
    fn note_refusal(&mut self, (id, op): (OpId, &Op), fail: &Fail) {
        if !matches!(op, Op::Depart { .. }) {
            self.refusals.note_fail(id, fail);
        }
    }
}

/// What brings an operation's entries to disk; that of the transaction is in this directory.
pub(crate) fn sync_of(op: &Op, dir: Fid) -> Op {
    let beyond = exchanged(op).is_some_and(|(other, _)| other != dir) || exchanges_in(op);
    if beyond || matches!(op, Op::DepartAll { .. }) { Op::SyncFs } else { Op::Fsync { fid: dir } }
}

/// What a home that has agreed to this does at the end.
pub(crate) fn part_of(need: &Need) -> Part {
    if matches!(need.exchange, Some(InExchange::Source(_))) { Part::Exchanges } else { Part::Names }
}

pub(crate) fn is_gone(errno: i32) -> bool {
    errno == Errno::ESTALE.0 || errno == Errno::ENOENT.0
}

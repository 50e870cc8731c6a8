//! Operations that touch two sets: making and removing a directory that lives on another set than its parent, and moving
//! one beneath directories of other sets.
//!
//! The other set holds the intent, as a mark on the directory that names the transaction: a marked directory lives if and
//! only if its entry exists. mkdir: the other set makes the directory, marked; this set makes the entry (the moment it
//! counts); the mark is cleared. rmdir: the other set marks the directory, if it is empty; this set removes the entry; the
//! directory is removed. A crash anywhere leaves at worst a marked directory, whose primary asks for the entry and ends
//! the transaction. What may be done when is decided in `namespace::transaction`; the protocol is docs/design/0005.

use super::serve::{Ask, Asked, ReplyTo, Waiter};
use super::set::{SetDriver, SetHandle};
use crate::clock;
use crate::shared::lock;
use ids::{Fid, OpId, SetId};
use namespace::transaction::LOCK_USE;
use namespace::{Decision, Entry, placement};
use replica::{Admission, Role};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::task::spawn_local;
use wire::limits::DEPTH_MAX;
use wire::op::Ancestor;
use wire::{Attr, Body, Change, Errno, Fail, Name, Op, Reply};

/// How old a mark must be before its primary asks about it: the transaction is normally over by then.
const OLD: Duration = Duration::from_secs(3);

impl SetHandle {
    /// The other set that a new directory under `parent` shall live on, if any.
    pub(super) fn choose_home(&self, d: &mut SetDriver, parent: Fid) -> Option<SetId> {
        if d.volume_sets.len() < 2 {
            return None;
        }
        let shard = self.shard.upgrade()?;
        let mut rooms = lock(&shard.shared.rooms);
        // A set that is led but has not told its room yet (it was just started) counts as alike with this one; one that
        // is not led gets nothing.
        let own = rooms.get(&d.set).copied().or_else(|| {
            let room = d.brick.room().ok()?;
            let (available, total) = (room.available, room.total);
            Some(placement::SetRoom { set: d.set, available, total, promised: 0, writable: true })
        });
        let state = shard.shared.state();
        let led = |s: &SetId| state.sets.get(s).is_some_and(|s| s.view.primary.is_some());
        let unknown = |s: &SetId| own.map(|own| placement::SetRoom { set: *s, promised: 0, ..own });
        let sets: Vec<placement::SetRoom> = d
            .volume_sets
            .iter()
            .filter(|s| led(s))
            .filter_map(|s| rooms.get(s).copied().or_else(|| unknown(s)))
            .collect();
        if parent.is_root() {
            d.spread += 1;
        }
        let home = placement::choose(parent.is_root(), d.set, &sets, d.spread);
        if let Some(room) = rooms.get_mut(&home)
            && parent.is_root()
        {
            room.promised += 1;
        }
        (home != d.set).then_some(home)
    }

    /// mkdir of a directory that lives on `home`.
    pub(super) fn make_elsewhere(&self, d: &mut SetDriver, id: OpId, op: Op, home: SetId, to: ReplyTo) {
        // Decided once without the other set, to refuse early and to fix mode and owner.
        let ask = Ask { id, ..Ask::default() };
        let (name, parent, mode, uid, gid) = match d.decide(&op, ask) {
            Ok(Decision::Change(Change::Create { parent, name, mode, uid, gid, .. }, _)) => {
                (name, parent, mode, uid, gid)
            }
            other => {
                let refused = other.and(Err(Errno::EIO));
                let waiter = Waiter::new(to, Reply(Ok(Body::Done)), bytes::Bytes::new());
                return self.carry_out(d, id, refused, bytes::Bytes::new(), Asked::Done, waiter);
            }
        };
        let path = match d.path_of(parent) {
            Ok(path) => path,
            Err(e) => return SetDriver::refuse(&to, e.into()),
        };
        let Some(t) = self.begin(d, id, parent, &name) else { return SetDriver::refuse(&to, Fail::Busy) };
        let this = self.clone();
        spawn_local(async move {
            let placed = this.ask_as(t.tx, home, Op::Place { path, name, mode, uid, gid }).await;
            let mut guard = this.driver.borrow_mut();
            let d = &mut *guard;
            let known = this.end(d, id, &t);
            match (placed, known) {
                (Ok(Body::Attr { attr }), Ok(())) => this.enter(d, id, &op, attr, (home, t), to),
                (Ok(Body::Attr { attr }), Err(fail)) => {
                    this.abort(home, attr.fid, t);
                    SetDriver::refuse(&to, fail);
                }
                (Ok(_), _) => SetDriver::refuse(&to, Errno::EIO.into()),
                (Err(fail), known) => SetDriver::refuse(&to, known.err().unwrap_or(fail)),
            }
        });
    }

    /// The second step of mkdir: the entry.
    fn enter(
        &self,
        d: &mut SetDriver,
        id: OpId,
        op: &Op,
        attr: Attr,
        (home, t): (SetId, Transaction),
        to: ReplyTo,
    ) {
        let fid = attr.fid;
        let decision = d.decide(op, Ask { id, placed: Some((home, fid)), ..Ask::default() });
        let this = self.clone();
        let tx = t.tx;
        if !matches!(decision, Ok(Decision::Change(..))) {
            self.abort(home, fid, t);
        }
        let waiter = Waiter::new(to, Reply(Ok(Body::Attr { attr })), bytes::Bytes::new())
            .then(move || this.settle(home, fid, tx, true));
        self.carry_out(d, id, decision, bytes::Bytes::new(), Asked::Given, waiter);
    }

    /// rmdir of a directory that lives on another set.
    pub(super) fn remove_elsewhere(&self, d: &mut SetDriver, id: OpId, op: Op, entry: Entry, to: ReplyTo) {
        let Op::Rmdir { parent, name } = &op else { return SetDriver::refuse(&to, Errno::EINVAL.into()) };
        let Some(t) = self.begin(d, id, *parent, name) else { return SetDriver::refuse(&to, Fail::Busy) };
        let this = self.clone();
        spawn_local(async move {
            let (home, fid) = (entry.home, entry.fid);
            let condemned = this.ask_as(t.tx, home, Op::Condemn { fid, by: id.session }).await;
            let mut guard = this.driver.borrow_mut();
            let d = &mut *guard;
            let known = this.end(d, id, &t);
            match (condemned, known) {
                (Ok(_), Ok(())) => {}
                // An earlier attempt got further: only the entry is left.
                (Err(Fail::Errno { errno }), Ok(()))
                    if errno == Errno::ESTALE.0 || errno == Errno::ENOENT.0 => {}
                (Ok(_), Err(fail)) => {
                    this.abort(home, fid, t);
                    return SetDriver::refuse(&to, fail);
                }
                (Err(fail), known) => return SetDriver::refuse(&to, known.err().unwrap_or(fail)),
            }
            let decision = d.decide(&op, Ask { id, placed: Some((home, fid)), ..Ask::default() });
            let (after, tx) = (this.clone(), t.tx);
            if !matches!(decision, Ok(Decision::Change(..))) {
                this.abort(home, fid, t);
            }
            let waiter = Waiter::new(to, Reply(Ok(Body::Done)), bytes::Bytes::new())
                .then(move || after.settle(home, fid, tx, false));
            this.carry_out(d, id, decision, bytes::Bytes::new(), Asked::Done, waiter);
        });
    }

    /// Begins a transaction about an entry; `None` if another one about it is under way.
    fn begin(&self, d: &mut SetDriver, request: OpId, parent: Fid, name: &Name) -> Option<Transaction> {
        let tx = self.shard.upgrade()?.next_id();
        let epoch = d.replica.view().epoch;
        let begun = d.transactions.begin(epoch, tx, request, parent, name);
        begun.then(|| Transaction { tx, own: d.set, parent, name: name.clone() })
    }

    /// Ends a transaction here. `Ok`: it may commit, now. Otherwise it never will.
    fn end(&self, d: &mut SetDriver, request: OpId, t: &Transaction) -> Result<(), Fail> {
        let epoch = d.replica.view().epoch;
        let known = d.transactions.end(epoch, t.tx, t.parent, &t.name);
        self.admit_again(d, request)?;
        if known { Ok(()) } else { Err(Fail::Busy) }
    }

    /// A rename that brings a directory beneath directories of other sets. Those are asked what lies above them, under the
    /// lock on the tree's shape, which has to hold when the rename is decided.
    pub(super) fn move_across(&self, d: &mut SetDriver, id: OpId, op: Op, to: ReplyTo) {
        let Some(shard) = self.shard.upgrade() else { return };
        let root = d.brick.identity().root_home;
        let (tx, epoch, moves) = (shard.next_id(), d.replica.view().epoch, d.moves);
        let this = self.clone();
        spawn_local(async move {
            let until = clock::now() + LOCK_USE;
            if let Err(fail) = shard.ask(root, Op::LockTree { tx }).await {
                return SetDriver::refuse(&to, fail);
            }
            let above = this.ask_above(&op, id).await;
            let mut guard = this.driver.borrow_mut();
            let d = &mut *guard;
            let held = clock::now() < until && d.replica.view().epoch == epoch && d.moves == moves;
            let ready = this.admit_again(d, id).and(if held { above } else { Err(Fail::Busy) });
            let above = match ready {
                Ok(above) => above,
                Err(fail) => {
                    this.unlock(root, tx);
                    return SetDriver::refuse(&to, fail);
                }
            };
            let decision = d.decide(&op, Ask { id, above: Some(&above), ..Ask::default() });
            if !matches!(decision, Ok(Decision::Change(..))) {
                this.unlock(root, tx);
            }
            let after = this.clone();
            let waiter = Waiter::new(to, Reply(Ok(Body::Done)), bytes::Bytes::new())
                .then(move || after.unlock(root, tx));
            this.carry_out(d, id, decision, bytes::Bytes::new(), Asked::Done, waiter);
        });
    }

    /// What lies above the directories of other sets that the operation needs to know of.
    async fn ask_above(&self, op: &Op, id: OpId) -> Result<BTreeMap<Fid, Vec<Fid>>, Fail> {
        let mut all = BTreeMap::new();
        loop {
            let ask = Ask { id, above: Some(&all), ..Ask::default() };
            let decision = self.driver.borrow_mut().decide(op, ask);
            let Ok(Decision::AskAbove(start, home)) = decision else { return Ok(all) };
            let mut above = Vec::new();
            let mut next = Some((start, home));
            while let Some((fid, home)) = next {
                if above.len() > DEPTH_MAX {
                    return Err(Errno::ELOOP.into());
                }
                match self.ask(home, Op::Lineage { fid }).await? {
                    Body::Lineage { own, other } if own.first() == Some(&fid) => {
                        above.extend(own);
                        next = other;
                    }
                    _ => return Err(Fail::Busy),
                }
            }
            all.insert(start, above);
        }
    }

    /// Releases the lock, in the background. If that does not get there, the lock runs out.
    fn unlock(&self, root: SetId, tx: OpId) {
        let this = self.clone();
        spawn_local(async move {
            if let Err(fail) = this.ask(root, Op::UnlockTree { tx }).await {
                tracing::debug!("release the tree's lock: {fail:?}");
            }
        });
    }

    /// Time went by while another set was asked: is this brick still the one to decide?
    fn admit_again(&self, d: &mut SetDriver, id: OpId) -> Result<(), Fail> {
        let epoch = d.replica.view().epoch;
        match d.replica.admit(clock::now(), epoch, id, 0) {
            Admission::Go => Ok(()),
            Admission::WrongView(epoch) => Err(Fail::WrongView { epoch }),
            Admission::BelowQuorum => Err(Fail::BelowQuorum),
            Admission::Busy | Admission::Done(..) => Err(Fail::Busy),
        }
    }

    /// Ends a transaction on the other set, in the background. If it does not get there, that set will ask.
    fn settle(&self, home: SetId, fid: Fid, tx: OpId, keep: bool) {
        let this = self.clone();
        spawn_local(async move {
            if let Err(fail) = this.ask(home, Op::Settle { fid, tx: Some(tx), keep }).await {
                tracing::debug!("settle {fid} on set {home}: {fail:?}");
            }
        });
    }

    /// A transaction that will not commit ends on the other set as the entry says, in the background.
    fn abort(&self, home: SetId, fid: Fid, t: Transaction) {
        let this = self.clone();
        spawn_local(async move { this.resolve(home, fid, Some(t.tx), t.own, t.parent, t.name).await });
    }

    /// Asks the set that would have the entry whether it exists, and ends the transaction that holds the directory.
    async fn resolve(&self, home: SetId, fid: Fid, tx: Option<OpId>, owner: SetId, parent: Fid, name: Name) {
        let keep = match self.ask(owner, Op::Vouch { parent, name, fid }).await {
            Ok(_) => true,
            Err(Fail::Errno { errno }) if errno == Errno::ENOENT.0 => false,
            Err(fail) => return tracing::debug!("ask for the entry of {fid}: {fail:?}"),
        };
        if let Err(fail) = self.ask(home, Op::Settle { fid, tx, keep }).await {
            tracing::debug!("settle {fid} on set {home}: {fail:?}");
        }
    }

    /// Asks the primary of another set.
    async fn ask(&self, set: SetId, op: Op) -> Result<Body, Fail> {
        match self.shard.upgrade() {
            Some(shard) => shard.ask(set, op).await,
            None => Err(Fail::Busy),
        }
    }

    /// Asks it under the transaction's name.
    async fn ask_as(&self, tx: OpId, set: SetId, op: Op) -> Result<Body, Fail> {
        match self.shard.upgrade() {
            Some(shard) => shard.ask_as(tx, set, op).await,
            None => Err(Fail::Busy),
        }
    }

    /// Marked directories whose transaction should be over: ask whether the entry exists, and settle.
    pub(super) fn resolve_pending(&self) {
        let mut d = self.driver.borrow_mut();
        if d.replica.role() != Role::Primary {
            return;
        }
        let own = d.set;
        for (fid, tx) in d.pending.ask_about(OLD) {
            let Ok((parent, owner, name)) = d.entry_of(fid) else {
                d.pending.asked(fid, tx);
                continue;
            };
            let this = self.clone();
            spawn_local(async move {
                this.resolve(own, fid, tx, owner, parent, name).await;
                this.driver.borrow_mut().pending.asked(fid, tx);
            });
        }
    }
}

/// A transaction of this set with another one, and the entry that it is about.
struct Transaction {
    tx: OpId,
    own: SetId,
    parent: Fid,
    name: Name,
}

impl SetDriver {
    /// The entry that leads to a marked directory: its parent, the set that has it, and its name.
    fn entry_of(&mut self, fid: Fid) -> Result<(Fid, SetId, Name), Errno> {
        match self.pending.entry(fid) {
            Some((Some((parent, owner)), name)) => Ok((parent, owner, name)),
            Some((None, name)) => {
                let identity = self.brick.identity();
                Ok((identity.root, identity.root_home, name))
            }
            None => self.brick.place_of(fid).map(|at| (at.parent, at.parent_home, at.name)),
        }
    }

    /// The directories from below the root down to `dir`.
    fn path_of(&mut self, dir: Fid) -> Result<Vec<Ancestor>, Errno> {
        let mut path = Vec::new();
        let mut at = dir;
        while !at.is_root() {
            let place = self.brick.place_of(at)?;
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

//! Operations that touch two sets: making and removing a directory that lives on another set than its parent.
//!
//! The other set holds the intent, as a mark on the directory: a marked directory lives if and only if its entry exists.
//! mkdir: the other set makes the directory, marked; this set makes the entry (the moment it counts); the mark is cleared.
//! rmdir: the other set marks the directory, if it is empty; this set removes the entry; the directory is removed.
//! A crash anywhere leaves at worst a marked directory, whose primary asks for the entry and settles it.

use super::serve::{Asked, ReplyTo, Waiter};
use super::set::{SetDriver, SetHandle};
use crate::clock;
use crate::shared::lock;
use ids::{Epoch, Fid, OpId, SetId};
use namespace::{Decision, Entry, placement};
use replica::{Admission, Role};
use std::time::Duration;
use tokio::task::spawn_local;
use wire::limits::DEPTH_MAX;
use wire::op::Ancestor;
use wire::{Attr, Body, Change, Errno, Fail, Op, Reply};

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
        let (name, parent, mode, uid, gid) = match d.decide(&op, &[], None) {
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
        d.active.insert(id);
        let epoch = d.replica.view().epoch;
        let this = self.clone();
        spawn_local(async move {
            let place = Op::Place { path, name, mode, uid, gid };
            let placed = this.ask(home, place).await;
            let mut guard = this.driver.borrow_mut();
            let d = &mut *guard;
            d.active.remove(&id);
            let attr = match placed {
                Ok(Body::Attr { attr }) => attr,
                Ok(_) => return SetDriver::refuse(&to, Errno::EIO.into()),
                Err(fail) => return SetDriver::refuse(&to, fail),
            };
            this.enter(d, (id, epoch), &op, attr, home, to);
        });
    }

    /// The second step of mkdir: the entry.
    fn enter(
        &self,
        d: &mut SetDriver,
        (id, epoch): (OpId, Epoch),
        op: &Op,
        attr: Attr,
        home: SetId,
        to: ReplyTo,
    ) {
        let fid = attr.fid;
        if let Err(fail) = self.admit_again(d, id, epoch) {
            self.settle(home, fid, false);
            return SetDriver::refuse(&to, fail);
        }
        let decision = d.decide(op, &[], Some((home, fid)));
        if decision.is_err() {
            self.settle(home, fid, false);
        }
        let this = self.clone();
        let waiter = Waiter::new(to, Reply(Ok(Body::Attr { attr })), bytes::Bytes::new())
            .then(move || this.settle(home, fid, true));
        self.carry_out(d, id, decision, bytes::Bytes::new(), Asked::Given, waiter);
    }

    /// rmdir of a directory that lives on another set.
    pub(super) fn remove_elsewhere(&self, d: &mut SetDriver, id: OpId, op: Op, entry: Entry, to: ReplyTo) {
        d.active.insert(id);
        let epoch = d.replica.view().epoch;
        let this = self.clone();
        spawn_local(async move {
            let condemned = this.ask(entry.home, Op::Condemn { fid: entry.fid, by: id.session }).await;
            let mut guard = this.driver.borrow_mut();
            let d = &mut *guard;
            d.active.remove(&id);
            match condemned {
                Ok(_) => {}
                // An earlier attempt got further: only the entry is left.
                Err(Fail::Errno { errno }) if errno == Errno::ESTALE.0 || errno == Errno::ENOENT.0 => {}
                Err(fail) => return SetDriver::refuse(&to, fail),
            }
            let (home, fid) = (entry.home, entry.fid);
            if let Err(fail) = this.admit_again(d, id, epoch) {
                return SetDriver::refuse(&to, fail);
            }
            let decision = d.decide(&op, &[], Some((home, fid)));
            if decision.is_err() {
                this.settle(home, fid, true);
            }
            let after = this.clone();
            let waiter = Waiter::new(to, Reply(Ok(Body::Done)), bytes::Bytes::new())
                .then(move || after.settle(home, fid, false));
            this.carry_out(d, id, decision, bytes::Bytes::new(), Asked::Done, waiter);
        });
    }

    /// Time went by while another set was asked: is this brick still the one to decide? In a newer view the operation comes
    /// again, or was refused meanwhile.
    fn admit_again(&self, d: &mut SetDriver, id: OpId, epoch: Epoch) -> Result<(), Fail> {
        match d.replica.admit(clock::now(), epoch, id, 0) {
            Admission::Go => Ok(()),
            Admission::WrongView(epoch) => Err(Fail::WrongView { epoch }),
            Admission::BelowQuorum => Err(Fail::BelowQuorum),
            Admission::Busy | Admission::Done(..) => Err(Fail::Busy),
        }
    }

    /// Ends a transaction on the other set, in the background. If it does not get there, that set will ask.
    fn settle(&self, home: SetId, fid: Fid, keep: bool) {
        let this = self.clone();
        spawn_local(async move {
            if let Err(fail) = this.ask(home, Op::Settle { fid, keep }).await {
                tracing::debug!("settle {fid} on set {home}: {fail:?}");
            }
        });
    }

    /// Asks the primary of another set.
    async fn ask(&self, set: SetId, op: Op) -> Result<Body, Fail> {
        match self.shard.upgrade() {
            Some(shard) => shard.ask(set, op).await,
            None => Err(Fail::Busy),
        }
    }

    /// Marked directories whose transaction should be over: ask whether the entry exists, and settle.
    pub(super) fn resolve_pending(&self) {
        let mut d = self.driver.borrow_mut();
        if d.replica.role() != Role::Primary {
            return;
        }
        for fid in d.pending.older_than(OLD) {
            let Ok(place) = d.brick.place_of(fid) else { continue };
            let this = self.clone();
            let own = d.set;
            spawn_local(async move {
                let Some(shard) = this.shard.upgrade() else { return };
                let vouch = Op::Vouch { parent: place.parent, name: place.name, fid };
                let keep = match shard.ask(place.parent_home, vouch).await {
                    Ok(_) => true,
                    Err(Fail::Errno { errno }) if errno == Errno::ENOENT.0 || errno == Errno::ESTALE.0 => {
                        false
                    }
                    Err(_) => return,
                };
                if let Err(fail) = shard.ask(own, Op::Settle { fid, keep }).await {
                    tracing::debug!("settle {fid}: {fail:?}");
                }
            });
        }
    }
}

impl SetDriver {
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

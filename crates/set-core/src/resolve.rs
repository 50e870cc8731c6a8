//! Resolves transactions whose coordinator failed: whether the entry exists decides whether the marked directory stays.

use crate::brick::LocalBrick;
use crate::core::{Cx, SetCore};
use crate::dir_moves::SWAPS;
use crate::elsewhere::{Asking, Transaction};
use crate::io::ReplyTo;
use core::time::Duration;
use ids::{Fid, OpId, SetId};
use wire::op::EntryName;
use wire::{Body, Errno, Fail, Name, Op};

/// How old a mark must be before its primary asks about it: the transaction is normally over by then.
pub(crate) const OLD: Duration = Duration::from_secs(3);

/// How far the question about a directory is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// Whether the entry exists.
    First,
    /// What was found then is on the disks of the set that has it: another set may have decided, and that one have made it since.
    Sync,
    /// It is still so.
    Second,
}

/// A marked directory whose transaction is ended as the entry says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Resolve {
    /// The set that has the directory.
    home: SetId,
    fid: Fid,
    tx: Option<OpId>,
    /// The entry, and the set that has it.
    entry: EntryName,
    owner: SetId,
    stage: Stage,
    /// Whether the directory goes if there is no entry. Only its own set knows whether one that it did not make for this has an entry
    /// elsewhere by now.
    removes: bool,
}

impl<B: LocalBrick, R: ReplyTo> SetCore<B, R> {
    /// A transaction that will not commit ends on the other set as the entry says, in the background. `made`: it would have made
    /// the directory.
    pub(crate) fn abort(&mut self, cx: &mut Cx<'_, B, R>, home: SetId, fid: Fid, t: Transaction, made: bool) {
        let (owner, stage, entry) = (self.set, Stage::First, EntryName { dir: t.parent, name: t.name });
        let resolve = Resolve { home, fid, tx: Some(t.tx), entry, owner, stage, removes: made };
        self.ask_for_entry(cx, resolve);
    }

    fn ask_for_entry(&mut self, cx: &mut Cx<'_, B, R>, resolve: Resolve) {
        let (owner, fid, EntryName { dir: parent, name }) =
            (resolve.owner, resolve.fid, resolve.entry.clone());
        self.ask(cx, Asking::EntryChecked(resolve), owner, Op::CheckEntry { parent, name, fid }, None);
    }

    /// Marked directories whose transaction should be over: whether the entry exists is asked of the set that would have it.
    pub(crate) fn resolve_pending(&mut self, cx: &mut Cx<'_, B, R>) {
        if !self.is_primary() {
            return;
        }
        for (fid, tx) in self.pending.ask_about(cx.at.now, OLD) {
            if self.ask_if_given(cx, fid, tx) {
                continue;
            }
            let is_over = match self.brick.is_pending(fid) {
                Ok(pending) => !pending,
                Err(e) => matches!(e, Errno::ESTALE | Errno::ENOENT),
            };
            if is_over {
                // A power cut has taken the record of its end, and not the end, or all of it.
                self.pending.forget_dir(fid);
                continue;
            }
            let (dir, owner, name) = match self.entry_of(fid) {
                Ok(entry) => entry,
                Err(e) => {
                    tracing::debug!(
                        "{}: which entry leads to the marked directory {fid}: {e}",
                        self.settings.name
                    );
                    self.pending.asked(fid, tx);
                    continue;
                }
            };
            let (home, stage, entry) = (self.set, Stage::First, EntryName { dir, name });
            self.ask_for_entry(cx, Resolve { home, fid, tx, entry, owner, stage, removes: true });
        }
    }

    /// The entry exists, or does not: the transaction ends.
    pub(crate) fn on_entry_checked(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        resolve: Resolve,
        answer: Result<Body, Fail>,
    ) {
        let Resolve { home, fid, owner, stage, .. } = resolve;
        let keep = match answer {
            Ok(_) => true,
            Err(Fail::Errno { errno }) if errno == Errno::ENOENT.0 && resolve.removes => false,
            Err(fail) => {
                tracing::debug!("ask for the entry of {fid}: {fail:?}");
                return self.stop_asking(&resolve);
            }
        };
        if keep && home == self.set && owner != home && stage == Stage::First && self.swaps(fid) {
            // All of it: the entry may have another directory there by now.
            let resolve = Resolve { stage: Stage::Sync, ..resolve };
            return self.ask(cx, Asking::KeptOnDisk(resolve), owner, Op::SyncFs, None);
        }
        if keep && home == self.set {
            // It may have moved to where it is, and not on disk.
            return self.ask(cx, Asking::KeptOnDisk(resolve), home, Op::SyncFs, None);
        }
        self.end_as_checked(cx, resolve, keep);
    }

    /// Whether the entry may be one that another set has decided about, in an exchange: a directory that was not made for this
    /// transaction, when no server is older.
    fn swaps(&self, fid: Fid) -> bool {
        self.settings.level >= SWAPS && self.pending.entry(fid).is_none()
    }

    fn end_as_checked(&mut self, cx: &mut Cx<'_, B, R>, resolve: Resolve, keep: bool) {
        let Resolve { home, fid, tx, .. } = resolve;
        self.ask(cx, Asking::Ended(resolve), home, Op::EndTransaction { fid, tx, keep }, None);
    }

    pub(crate) fn on_kept_on_disk(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        resolve: Resolve,
        answer: Result<Body, Fail>,
    ) {
        match answer {
            Ok(_) if resolve.stage == Stage::Sync => {
                self.ask_for_entry(cx, Resolve { stage: Stage::Second, ..resolve });
            }
            Ok(_) => self.end_as_checked(cx, resolve, true),
            Err(fail) => {
                tracing::debug!("bring to disk where {} is: {fail:?}", resolve.fid);
                self.stop_asking(&resolve);
            }
        }
    }

    pub(crate) fn on_ended(&mut self, resolve: &Resolve, answer: Result<Body, Fail>) {
        if let Err(fail) = answer {
            tracing::debug!("end the transaction about {} on set {}: {fail:?}", resolve.fid, resolve.home);
        }
        self.stop_asking(resolve);
    }

    /// Nobody asks about the directory any more. If it is one of this set's and the mark is still there, the next question
    /// may follow.
    fn stop_asking(&mut self, resolve: &Resolve) {
        if resolve.home == self.set {
            self.pending.asked(resolve.fid, resolve.tx);
        }
    }

    /// The entry that leads to a marked directory: its parent, the set that has it, and its name.
    fn entry_of(&mut self, fid: Fid) -> Result<(Fid, SetId, Name), Errno> {
        match self.pending.entry(fid) {
            Some((Some((parent, owner)), name)) => Ok((parent, owner, name)),
            Some((None, name)) => {
                let (root, home) = self.brick.root();
                Ok((root, home, name))
            }
            None => self.brick.location_of(fid).map(|at| (at.parent, at.parent_home, at.name)),
        }
    }
}

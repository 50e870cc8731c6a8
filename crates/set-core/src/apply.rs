//! Applies changes to the brick in their order, and handles a change that cannot be applied.

use crate::brick::LocalBrick;
use crate::content::Content;
use crate::core::{Cx, Later, Next, SetCore};
use crate::io::ReplyTo;
use alloc::vec;
use alloc::vec::Vec;
use bytes::Bytes;
use core::time::Duration;
use ids::Lsn;
use namespace::Entry;
use replica::{Input, LogEntry, Ticket};
use wire::{Change, Errno};

impl<B: LocalBrick, R: ReplyTo> SetCore<B, R> {
    /// Carries out a change. `ticket`: who waits for its answer, which is completed from the state after it.
    pub(crate) fn apply(&mut self, cx: &mut Cx<'_, B, R>, entry: LogEntry<Content>, ticket: Option<Ticket>) {
        let lsn = entry.stamp.lsn;
        self.note_displaced(cx.at.now, &entry.body.change);
        let applied = match &self.target.healing {
            Some(h) if !h.has_ended() => self.apply_healing(cx.at.now, &entry),
            // What the primary has of the objects is only to be had by healing.
            _ if entry.body.change.is_invalidation() && !self.leads() => self.must_heal(&entry.body.change),
            Some(_) => self.apply_healing(cx.at.now, &entry),
            None => self.apply_now(&entry),
        };
        self.note_placed(&entry.body.change);
        self.note_new_names(&entry.body.change);
        let told = match applied {
            Ok(()) => {
                self.pending.note(cx.at.now, entry.op, &entry.body.change);
                self.tree.note_move(&entry.body.change);
                self.note_renamed(&entry.body.change);
                self.note_travel(cx.at.now, &entry.body.change);
                if let Some(ticket) = ticket {
                    self.complete_answer(ticket, entry.result_fid);
                    self.add_directories(ticket, &entry.body.change);
                    self.note_made(&entry.body.change);
                }
                Input::Applied { lsn }
            }
            Err(e) => self.not_applied(lsn, e),
        };
        self.next.push_back(Next::Feed(told));
    }

    /// A file arrives from another set, or has; or one has changed that is on its way there.
    fn note_travel(&mut self, now: Duration, change: &Change) {
        match change {
            Change::Arrive { fid, .. } if self.is_primary() => self.departures.arrivals.begin(now, *fid),
            Change::EndFile { fid, .. } | Change::EndCopy { fid, .. } => {
                let named = !matches!(change, Change::EndFile { add: None, .. });
                if named && self.departures.arrivals.are_under_way(now, *fid) {
                    self.opens.arrive(now, *fid);
                }
                self.departures.arrivals.end(*fid);
            }
            Change::DropOrphan { fid } => self.departures.arrivals.end(*fid),
            _ => {}
        }
        match change {
            Change::SetXattr { fid, .. } | Change::DropOrphan { fid } => self.striping.forget(*fid),
            Change::Create { fid, .. } if self.is_primary() => self.striping.note_new(*fid),
            _ => {}
        }
        if self.is_primary() {
            self.hand_over.note(change);
        }
        self.placing.renamed(change);
        self.departures.note(change);
    }

    /// A directory that is about to be made may take the place of a marked one: nobody will run into that any more.
    fn note_displaced(&mut self, now: Duration, change: &Change) {
        if let Change::PrepareMkdir { path, name, fid, .. } = change
            && let Ok(Some(marked)) = self.brick.marked_at(path, name)
            && marked != *fid
        {
            self.pending.found(now, marked, false);
        }
    }

    /// Directories of other sets that were renamed here come to hang there too. What was agreed about an entry that led to one
    /// does not count for what it leads to now. What other sets have beneath a directory learns its path when it asks.
    fn note_renamed(&mut self, change: &Change) {
        let names = match change {
            Change::Rename { parent, name, to_parent, to_name, .. }
            | Change::Exchange { parent, name, to_parent, to_name, .. } => {
                [(*parent, name), (*to_parent, to_name)]
            }
            _ => return,
        };
        if !self.is_primary() {
            return;
        }
        for entry in self.renamed_directories(change) {
            self.tree.count_rename();
            if entry.home != self.set {
                names.iter().for_each(|(dir, name)| self.transactions.give_up(*dir, name));
                self.later.push_back(Later::TellPlace(entry.fid));
            }
        }
    }

    /// The directories that the change, which was carried out, gave other names. Their entries tell them from files: those
    /// are in memory, and an object's own attributes are not after a rename.
    pub(crate) fn renamed_directories(&mut self, change: &Change) -> Vec<Entry> {
        let renamed = match change {
            Change::Rename { fid, to_parent, to_name, .. } => vec![(*fid, *to_parent, to_name)],
            Change::Exchange { parent, name, fid, to_parent, to_name, to_fid, .. } => {
                vec![(*fid, *to_parent, to_name), (*to_fid, *parent, name)]
            }
            _ => return Vec::new(),
        };
        let directory = |(fid, dir, name)| {
            let entry = self.brick.lookup(dir, name).ok().flatten()?;
            (entry.fid == fid && entry.is_dir()).then_some(entry)
        };
        renamed.into_iter().filter_map(directory).collect()
    }

    pub(crate) fn apply_now(&mut self, entry: &LogEntry<Content>) -> Result<(), Errno> {
        let c = &entry.body;
        self.brick.carry_out(&entry.stamp, entry.op, entry.result_fid, &c.change, &c.payload)
    }

    fn not_applied(&mut self, lsn: Lsn, e: Errno) -> Input<Content> {
        tracing::error!("{}: change {lsn} could not be applied: {e}", self.settings.name);
        if self.brick.is_partial() {
            return self.end_partial(lsn, e);
        }
        // It may have been a sync within.
        if e == Errno::EIO {
            self.mark_unsynced_stale();
        }
        Input::ApplyFailed { lsn, errno: e.0 }
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
                    tracing::error!("{}: note that change {lsn} was done in part: {e}", self.settings.name);
                    Input::Broken
                }
            };
        }
        if let Err(e) = self.brick.abandon_partial() {
            tracing::error!("{}: record what is stale: {e}", self.settings.name);
        }
        // It may have been a sync within.
        if error == Errno::EIO {
            self.mark_unsynced_stale();
        }
        Input::ApplyFailed { lsn, errno: error.0 }
    }

    fn must_heal(&mut self, change: &Change) -> Result<(), Errno> {
        let last = self.brick.last().lsn;
        self.brick.begin_heal(last, &change.touched(), last)?;
        Err(Errno::ESTALE)
    }

    /// A sync failed: what the kernel could not write it has dropped, and no later sync says so.
    pub(crate) fn mark_unsynced_stale(&mut self) {
        if self.replica.is_only() {
            self.write_again();
        } else if let Err(e) = self.brick.mark_unsynced_stale() {
            tracing::error!("{}: record what is stale: {e}", self.settings.name);
        }
    }

    /// Nobody else has the set's data: this brick's journal ends where it is certain of it, and that is the set's history.
    pub(crate) fn adopt_history(&mut self) {
        match replica::healing::adopt_history(&mut self.brick, self.replica.view().epoch) {
            Ok(last) => {
                tracing::warn!("{}: brick {} goes on alone from {}", self.settings.name, self.me, last.lsn);
                self.next.push_back(Next::Feed(Input::HistoryAdopted { last }));
            }
            Err(e) => tracing::error!("{}: brick {} cannot go on alone: {e}", self.settings.name, self.me),
        }
    }
}

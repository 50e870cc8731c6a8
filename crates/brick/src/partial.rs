//! How far a change has come: one that was carried out only in part, and what failed of the work that follows changes.

use crate::open::Brick;
use crate::write_again::WritingAgain;
use wire::{Change, Errno};

/// Where the change stands that is being carried out, and what went wrong beside changes.
#[derive(Default)]
pub(crate) struct Progress {
    /// The last record is being applied again.
    replaying: bool,
    /// The change being applied has changed something, or may have.
    begun: bool,
    /// The last change of the journal, if it was done only in part.
    partial: Option<Change>,
    /// What failed of the work that follows changes.
    late: Option<Errno>,
    /// What a failed sync may have dropped, as far as it is not written again.
    writing_again: Option<WritingAgain>,
}

impl Progress {
    /// Whether the last record is being applied again: steps may be done already.
    pub(crate) fn is_replaying(&self) -> bool {
        self.replaying
    }

    pub(crate) fn set_replaying(&mut self, replaying: bool) {
        self.replaying = replaying;
    }

    /// What is being written again, if anything is.
    pub(crate) fn writing_again(&mut self) -> &mut Option<WritingAgain> {
        &mut self.writing_again
    }

    /// From now on the change has changed something, or may have.
    pub(crate) fn begins(&mut self) {
        self.begun = true;
    }

    /// The change has changed nothing yet, and will say when it does.
    pub(crate) fn begins_later(&mut self) {
        self.begun = false;
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.begun
    }

    /// The change failed, and its record stays.
    pub(crate) fn leave_in_part(&mut self, change: &Change) {
        self.partial = Some(change.clone());
    }
}

impl Brick {
    /// Whether the last change was done only in part, so that its record does not say what is in the tree.
    pub fn is_partial(&self) -> bool {
        self.progress.partial.is_some()
    }

    /// No other brick has the last change: what this brick did of it is all that there is. In the journal it gives way to
    /// one that says so, and which the answer is: whoever heals from here takes the objects anew. Needs no room.
    ///
    /// # Errors
    /// The kernel's: nothing can be journaled any more.
    pub fn record_partial(&mut self) -> Result<Change, Errno> {
        let Some(change) = self.progress.partial.clone() else { return Ok(Change::Nop) };
        let said = change.in_part();
        self.journal.replace_last(&said)?;
        self.progress.partial = None;
        let stamp = self.journal.last();
        self.forget_names();
        for fid in said.touched() {
            self.invalidate_attrs(fid);
        }
        // The journal has it: what is left is to bring versions and times to disk.
        if let Err(e) = self.perform(&stamp, &said, None).and_then(|()| self.flush_attrs()) {
            self.note_late(e);
        }
        Ok(said)
    }

    /// Others may have the last change: this brick is to be healed. Its objects are marked stale, then its record
    /// goes. After an error the record is still there, and opening the brick anew deals with it as after a kill.
    ///
    /// # Errors
    /// The kernel's.
    pub fn abandon_partial(&mut self) -> Result<(), Errno> {
        let Some(change) = self.progress.partial.clone() else { return Ok(()) };
        let before = ids::Lsn(self.journal.last().lsn.0.saturating_sub(1));
        self.begin_heal(before, &change.touched(), before)?;
        self.journal.take_back()?;
        self.progress.partial = None;
        self.forget_names();
        for fid in change.touched() {
            self.invalidate_attrs(fid);
        }
        Ok(self.distrust(before)?)
    }

    /// What is kept in memory of names may not be as a change left them that failed.
    fn forget_names(&mut self) {
        self.names.clear();
        self.listings.clear();
    }

    /// Something that no change depends on could not be brought to disk.
    pub(crate) fn note_late(&mut self, e: Errno) {
        if self.progress.late.is_none() {
            tracing::error!(brick = %self.path.display(), error = %e, "what was applied could not be written");
        }
        self.progress.late = Some(e);
    }

    /// What failed of the work that follows changes since this was last asked: a brick with others beside it has to leave.
    pub fn take_late_failure(&mut self) -> Option<Errno> {
        self.progress.late.take()
    }
}

//! Keeping the journal within its bound.

use crate::open::Brick;
use ids::Lsn;
use wire::Errno;

/// How long the journal may become.
pub(crate) struct Bound {
    /// In bytes.
    size: u64,
    /// It could not be kept within that: said once.
    overgrown: bool,
}

impl Bound {
    pub(crate) fn new(size: u64) -> Bound {
        Bound { size, overgrown: false }
    }
}

impl Brick {
    /// Drops records before `lsn`, in whole segments, as far as nothing on this brick needs them.
    ///
    /// # Errors
    /// The kernel's.
    pub fn drop_before(&mut self, lsn: Lsn) -> Result<(), Errno> {
        self.flush_attrs()?;
        let safe = self.shared.recovered_to().next();
        Ok(self.journal.drop_before(lsn.min(safe))?)
    }

    /// Keeps the journal within its bound. What fails of it is tried again when the next segment begins: until then the
    /// journal is longer than it should be, and nothing else.
    pub(crate) fn bound_journal(&mut self) {
        match self.trim_journal() {
            Ok(()) => self.bound.overgrown = false,
            Err(e) if !self.bound.overgrown => {
                self.bound.overgrown = true;
                tracing::error!(brick = %self.path.display(), error = %e, "the journal cannot be kept within its bound");
            }
            Err(_) => {}
        }
    }

    /// Keeps the journal within its bound. While a healing goes on the journal says what is stale: it may grow to some
    /// times the bound before that is given up.
    fn trim_journal(&mut self) -> Result<(), Errno> {
        let size = self.bound.size;
        if self.stale.is_set() {
            if self.journal.bytes() <= size.saturating_mul(8) {
                return Ok(());
            }
            // The journal is about to lose its beginning: what it says is stale, all is.
            self.stale.widen_to_all()?;
        }
        if self.journal.bytes() > size {
            if self.journal.bytes() > size.saturating_add(size / 4) {
                // Nobody has written times and versions out for long.
                self.flush_attrs()?;
            }
            let safe = self.shared.recovered_to();
            while self.journal.bytes() > size && self.journal.drop_oldest(safe)? {}
        }
        Ok(())
    }
}

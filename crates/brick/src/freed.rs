//! What large files hold is freed by another thread, and not in the call that takes their last name: nobody could be served
//! meanwhile ([`file_system::close_elsewhere`]).

use crate::object::{OpenObject, S_IFMT, S_IFREG};
use crate::open::Brick;
use ids::Fid;

/// A file of so many bytes is large: less is freed in about the time that it takes to hand a file to another thread, unless
/// it is in many pieces.
const LARGE: u64 = 1 << 20;

/// A large file that may be about to lose its last name. It is closed for good, elsewhere, when this is dropped.
#[must_use]
pub(crate) struct KeptOpen(Option<OpenObject>);

impl Drop for KeptOpen {
    fn drop(&mut self) {
        if let Some(open) = self.0.take() {
            file_system::close_elsewhere(open.into_shared());
        }
    }
}

impl Brick {
    /// To be dropped after the file has lost a name. Only descriptors are at stake: where the file cannot be opened it is
    /// freed in the call.
    pub(crate) fn keep_open_if_large(&mut self, fid: Fid) -> KeptOpen {
        let large = self
            .fresh(fid)
            .is_ok_and(|(_, stat)| stat.mode & S_IFMT == S_IFREG && stat.blocks.saturating_mul(512) >= LARGE);
        KeptOpen(if large { self.open_fid(fid).ok() } else { None })
    }
}

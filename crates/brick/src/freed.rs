//! What large files hold is freed by another thread, and not in the call that takes their last name: nobody could be served
//! meanwhile ([`file_system::close_elsewhere`]).

use crate::object::{OpenObject, S_IFMT, S_IFREG};
use crate::open::Brick;
use ids::Fid;
use wire::Errno;

/// A file of so many bytes is large: less is freed in about the time that it takes to hand a file to another thread, unless
/// it is in many pieces.
const LARGE: u64 = 1 << 20;

/// The last name of a file, which is about to go: to be dropped after it has. A large file is open until then, and closed for
/// good elsewhere.
#[must_use]
pub(crate) struct LastName(Option<OpenObject>);

impl Drop for LastName {
    fn drop(&mut self) {
        if let Some(open) = self.0.take() {
            file_system::close_elsewhere(open.into_shared());
        }
    }
}

impl Brick {
    /// `None` if the file has other names. Only descriptors are at stake: where a large file cannot be opened it is freed in the
    /// call.
    pub(crate) fn last_name(&mut self, fid: Fid) -> Result<Option<LastName>, Errno> {
        let stat = self.fresh(fid)?.1;
        if stat.nlink > 1 {
            return Ok(None);
        }
        let large = stat.mode & S_IFMT == S_IFREG && stat.blocks.saturating_mul(512) >= LARGE;
        Ok(Some(LastName(if large { self.open_fid(fid).ok() } else { None })))
    }
}

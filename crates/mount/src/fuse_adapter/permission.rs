//! What a squashed user may open: servers decide each request, but programs are used to hear it when they open a file.

use client::Object;
use fuse::{Errno, Request};
use wire::Name;
use wire::user::{ACCESS_LIST, EXECUTE, READ, WRITE};

use super::{FuseAdapter, Reply};
use crate::convert::errno;

impl FuseAdapter {
    /// Whether a file may be opened with these flags. Without a squashed user the kernel has checked it.
    pub(super) fn may_open(&self, req: &Request<'_>, object: Object, flags: i32) -> Reply<()> {
        let want = match flags & libc::O_ACCMODE {
            libc::O_RDONLY => READ,
            libc::O_WRONLY => WRITE,
            _ => READ | WRITE,
        };
        let cuts = flags & libc::O_TRUNC != 0;
        self.may_access(req, object, if cuts { want | WRITE } else { want })
    }

    /// Whether the squashed user may do all of that.
    pub(super) fn may_access(&self, req: &Request<'_>, object: Object, mask: u32) -> Reply<()> {
        let (Some(user), want) = (&self.squash, mask & (READ | WRITE | EXECUTE)) else { return Ok(()) };
        let client = self.client(req)?;
        let attr = client.getattr(object).map_err(errno)?;
        let may = user.may_by_what_is_read(&attr, want, || {
            let name = Name::new(ACCESS_LIST.as_bytes()).map_err(|_| Errno::EIO)?;
            match client.getxattr(object, name) {
                Ok(list) => Ok(Some(list)),
                Err(wire::Errno::ENODATA | wire::Errno::EOPNOTSUPP) => Ok(None),
                Err(e) => Err(errno(e)),
            }
        })?;
        if may { Ok(()) } else { Err(Errno::EACCES) }
    }
}

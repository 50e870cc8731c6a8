//! The kernel's file systems.

mod boot_id;
mod calls;
mod object;

pub(crate) use object::HostFile;

use crate::{File, FileSystem, S_IFDIR};
use rustix::fs::{Mode, OFlags};
use std::path::Path;
use wire::Errno;

/// The file systems of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Host;

impl FileSystem for Host {
    fn open_dir(&self, path: &Path) -> Result<File, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOATIME;
        let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(errno)?;
        Ok(File::on_host(HostFile::new(fd, S_IFDIR)))
    }
}

/// To be called once, early: the mode of what is created is given in full, no umask may cut it.
pub fn init_process() {
    rustix::process::umask(Mode::empty());
}

/// An error of rustix as an errno of the wire.
fn errno(e: rustix::io::Errno) -> Errno {
    Errno(e.raw_os_error())
}

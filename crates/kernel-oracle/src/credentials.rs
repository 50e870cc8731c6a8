//! Doing something as somebody else: of the calling thread only, and undone afterwards.

use rustix::fs::Mode;
use rustix::process::{Gid, Uid, umask};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_thread_res_gid, set_thread_res_uid,
};
use wire::Errno;

pub(crate) fn errno(e: rustix::io::Errno) -> Errno {
    Errno(e.raw_os_error())
}

/// Gives this thread a umask of its own.
pub(crate) fn part_from_process() -> Result<(), Errno> {
    #[allow(unsafe_code, reason = "FS parts umask and working directory only; descriptors stay common")]
    // SAFETY: no descriptors are parted, so none can be closed behind somebody's back.
    let parted = unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::FS) };
    parted.map_err(errno)?;
    umask(Mode::empty());
    Ok(())
}

fn with_effective<T>(
    change: impl Fn(CapabilitySet) -> CapabilitySet,
    act: impl FnOnce() -> T,
) -> Result<T, Errno> {
    let all = capabilities(None).map_err(errno)?;
    let sets = CapabilitySets { effective: change(all.effective), ..all };
    set_capabilities(None, sets).map_err(errno)?;
    let done = act();
    set_capabilities(None, all).map_err(errno)?;
    Ok(done)
}

/// As somebody whose writes clear setuid and setgid.
pub(crate) fn unprivileged<T>(act: impl FnOnce() -> T) -> Result<T, Errno> {
    with_effective(|all| all.difference(CapabilitySet::FSETID), act)
}

/// Makes something as this user, of this group, with this umask. All is permitted: permissions are checked by the kernel of
/// the machine that mounts, which has done so when Mortar is asked.
pub(crate) fn making<T>(
    owner: (u32, u32),
    mask: u32,
    act: impl FnOnce() -> rustix::io::Result<T>,
) -> Result<T, Errno> {
    let before = capabilities(None).map_err(errno)?;
    let (uid, gid) = (Uid::from_raw(owner.0), Gid::from_raw(owner.1));
    let (own, group) = (rustix::process::geteuid(), rustix::process::getegid());
    set_thread_res_gid(None, Some(gid), None).map_err(errno)?;
    set_thread_res_uid(None, Some(uid), None).map_err(errno)?;
    set_capabilities(None, before).map_err(errno)?;
    umask(Mode::from_raw_mode(mask));
    let made = act();
    umask(Mode::empty());
    set_thread_res_uid(None, Some(own), None).map_err(errno)?;
    set_thread_res_gid(None, Some(group), None).map_err(errno)?;
    set_capabilities(None, before).map_err(errno)?;
    made.map_err(errno)
}

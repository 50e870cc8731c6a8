//! The boot id of the page cache, as the kernel tells it.

use super::calls;
use rustix::fs::{AtFlags, StatxFlags};
use std::ffi::c_int;
use std::os::fd::{AsFd, OwnedFd};

/// `STATX_MNT_ID_UNIQUE`: never given twice while the machine runs. Older kernels leave it out.
const UNIQUE_MOUNT: StatxFlags = StatxFlags::from_bits_retain(0x4000);

/// The present boot id of the file system of that directory: machine's boot, mount namespace and mount.
pub(super) fn boot_id(dir: &OwnedFd) -> [u8; 16] {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let hex: String = boot.chars().filter(char::is_ascii_hexdigit).collect();
    let boot = u128::from_str_radix(&hex, 16).unwrap_or(0);
    let space = std::fs::read_link("/proc/self/ns/mnt").unwrap_or_default();
    let digits: String = space.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
    let seen = rustix::fs::statx(dir, "", AtFlags::EMPTY_PATH, UNIQUE_MOUNT);
    let mount = seen.ok().filter(|s| s.stx_mask & UNIQUE_MOUNT.bits() != 0).map_or(0, |s| s.stx_mnt_id);
    crate::boot_id::join(boot, digits.parse().unwrap_or(0), mount)
}

/// `F_GET_RW_HINT` and `F_SET_RW_HINT`: how long what is written to the file is expected to live.
const GET_HINT: c_int = 1035;
const SET_HINT: c_int = 1036;
/// `RWH_WRITE_LIFE_EXTREME`, which nobody else sets on our file.
const WITNESS: u64 = 5;

/// See [`crate::File::leave_witness`]. A file system without such hints has no witness.
pub(super) fn leave_witness(file: &OwnedFd) {
    let _ = calls::control(file.as_fd(), SET_HINT, WITNESS);
}

/// See [`crate::File::has_witness`].
pub(super) fn has_witness(file: &OwnedFd) -> bool {
    calls::control(file.as_fd(), GET_HINT, 0) == Ok(WITNESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_boot_is_named_the_same_twice() {
        let dir = || OwnedFd::from(std::fs::File::open(std::env::temp_dir()).unwrap());
        assert_eq!(boot_id(&dir()), boot_id(&dir()));
        assert_ne!(boot_id(&dir()), [0; 16]);
    }
}

//! The life of the page cache: whether what a brick's process wrote, and did not sync, is still there for the next one.
//!
//! A process that is killed leaves the kernel's memory whole. A machine that starts anew loses it, and so does a file
//! system that failed and was mounted again while the machine ran on (its device went away, or it shut itself down).
//! A life is named by the machine's boot and by the mount. That does not tell a restart in another mount namespace (as each
//! start of a container is) from a file system mounted anew, nor does a kernel number its mounts for good before 6.8.
//! There a witness decides: a hint on the state file that the kernel keeps in the file's inode in memory and never on disk.
//! As long as it is there, the file system has not been away. A kernel that is short of memory may forget it; then memory
//! counts as lost, and the brick is healed without need.

use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use wire::Errno;

/// `STATX_MNT_ID_UNIQUE`: never given twice while the machine runs. Older kernels leave it out.
const UNIQUE_MOUNT: StatxFlags = StatxFlags::from_bits_retain(0x4000);

/// No life that there is.
pub(crate) const UNKNOWN: [u8; 16] = [0xff; 16];

/// Bytes of the boot's, the namespace's and the mount's part.
const BOOT: usize = 6;
const SPACE: usize = 4;
const MOUNT: usize = 6;

/// The present life of the file system of that directory.
pub(crate) fn life(dir: &OwnedFd) -> [u8; 16] {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let hex: String = boot.chars().filter(char::is_ascii_hexdigit).collect();
    let boot = u128::from_str_radix(&hex, 16).unwrap_or(0);
    let space = std::fs::read_link("/proc/self/ns/mnt").unwrap_or_default();
    let digits: String = space.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
    let seen = rustix::fs::statx(dir, "", AtFlags::EMPTY_PATH, UNIQUE_MOUNT);
    let mount = seen.ok().filter(|s| s.stx_mask & UNIQUE_MOUNT.bits() != 0).map_or(0, |s| s.stx_mnt_id);
    join(boot, digits.parse().unwrap_or(0), mount)
}

fn join(boot: u128, space: u64, mount: u64) -> [u8; 16] {
    let mut life = [0; 16];
    let (first, rest) = life.split_at_mut(BOOT);
    let (second, third) = rest.split_at_mut(SPACE);
    let parts = [(first, boot.to_le_bytes().to_vec()), (second, space.to_le_bytes().to_vec())];
    for (place, bytes) in parts.into_iter().chain([(third, mount.to_le_bytes().to_vec())]) {
        place.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
    }
    life
}

/// Whether what was not synced in the one life may be gone in the other. `witnessed`: the state file's inode is still the
/// one in memory.
pub(crate) fn is_lost(was: [u8; 16], now: [u8; 16], witnessed: bool) -> bool {
    let part =
        |life: [u8; 16], from: usize, len: usize| life.into_iter().skip(from).take(len).collect::<Vec<u8>>();
    let same = |from, len| part(was, from, len) == part(now, from, len);
    let known = was != [0; 16];
    let numbered = part(now, BOOT + SPACE, MOUNT).into_iter().any(|b| b != 0);
    let same_mount = same(BOOT, SPACE + MOUNT) && numbered;
    known && (!same(0, BOOT) || !(same_mount || witnessed))
}

/// `F_GET_RW_HINT` and `F_SET_RW_HINT`: how long what is written to the file is expected to live.
const GET_HINT: libc::c_int = 1035;
const SET_HINT: libc::c_int = 1036;
/// `RWH_WRITE_LIFE_EXTREME`, which nobody else sets on our file.
const WITNESS: u64 = 5;

/// Leaves the witness on the open state file. A file system without such hints has no witness.
pub(crate) fn leave_witness(file: &OwnedFd) {
    let _ = hint(file, SET_HINT, WITNESS);
}

/// Whether the witness is still on the state file.
pub(crate) fn is_witnessed(state: &Path) -> bool {
    let file = rustix::fs::open(state, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    file.is_ok_and(|f| hint(&f, GET_HINT, 0) == Ok(WITNESS))
}

#[allow(unsafe_code, reason = "a system call that rustix lacks")]
fn hint(file: &OwnedFd, command: libc::c_int, mut value: u64) -> Result<u64, Errno> {
    // SAFETY: both commands take a pointer to 64 bits, which lives until the call returns.
    let done = unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut value) };
    if done < 0 { Err(crate::error::last_errno()) } else { Ok(value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_boot_or_mount_loses_what_was_not_synced() {
        let life = |boot, space, mount| join(boot, space, mount);
        for witnessed in [false, true] {
            assert!(!is_lost([0; 16], life(1, 2, 3), witnessed), "it was never open");
            assert!(!is_lost(life(1, 2, 3), life(1, 2, 3), witnessed));
            assert!(is_lost(life(1, 2, 3), life(9, 2, 3), witnessed), "another boot");
        }
        for (what, now) in [
            ("mounted again", life(1, 2, 4)),
            ("another namespace: its mounts have other numbers", life(1, 8, 4)),
            ("another namespace", life(1, 8, 3)),
        ] {
            assert!(is_lost(life(1, 2, 3), now, false), "{what}");
            assert!(!is_lost(life(1, 2, 3), now, true), "{what}, and the file system was never away");
        }
        assert!(is_lost(life(1, 2, 0), life(1, 2, 0), false), "a kernel that does not number mounts");
    }

    #[test]
    fn this_life_is_named_the_same_twice() {
        let dir = || OwnedFd::from(std::fs::File::open(std::env::temp_dir()).unwrap());
        assert_eq!(life(&dir()), life(&dir()));
        assert_ne!(life(&dir()), [0; 16]);
    }
}

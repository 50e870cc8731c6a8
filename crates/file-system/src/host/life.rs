//! The life of the page cache, as the kernel tells it.

use rustix::fs::{AtFlags, StatxFlags};
use std::os::fd::OwnedFd;

/// `STATX_MNT_ID_UNIQUE`: never given twice while the machine runs. Older kernels leave it out.
const UNIQUE_MOUNT: StatxFlags = StatxFlags::from_bits_retain(0x4000);

/// Bytes of the boot's, the mount namespace's and the mount's part.
const BOOT: usize = 6;
const SPACE: usize = 4;
const MOUNT: usize = 6;

/// The present life of the file system of that directory: machine's boot, mount namespace and mount.
pub(super) fn life(dir: &OwnedFd) -> [u8; 16] {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let hex: String = boot.chars().filter(char::is_ascii_hexdigit).collect();
    let boot = u128::from_str_radix(&hex, 16).unwrap_or(0);
    let space = std::fs::read_link("/proc/self/ns/mnt").unwrap_or_default();
    let digits: String = space.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
    let space: u64 = digits.parse().unwrap_or(0);
    let seen = rustix::fs::statx(dir, "", AtFlags::EMPTY_PATH, UNIQUE_MOUNT);
    let mount = seen.ok().filter(|s| s.stx_mask & UNIQUE_MOUNT.bits() != 0).map_or(0, |s| s.stx_mnt_id);
    let mut life = [0; 16];
    let (first, rest) = life.split_at_mut(BOOT);
    let (second, third) = rest.split_at_mut(SPACE);
    first.copy_from_slice(&boot.to_le_bytes()[..BOOT]);
    second.copy_from_slice(&space.to_le_bytes()[..SPACE]);
    third.copy_from_slice(&mount.to_le_bytes()[..MOUNT]);
    life
}

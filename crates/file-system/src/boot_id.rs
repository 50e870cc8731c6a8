//! The boot id of the page cache: whether what a brick's process wrote, and did not sync, is still there for the next one.
//!
//! A process that is killed leaves the kernel's memory whole. A machine that starts anew loses it, and so does a file
//! system that failed and was mounted again while the machine ran on (its device went away, or it shut itself down).
//! A boot id is made of the machine's boot and of the mount. That does not tell a restart in another mount namespace (as
//! each start of a container is) from a file system mounted anew, nor does a kernel number its mounts for good before 6.8.
//! There a witness decides: a hint on the state file that the kernel keeps in the file's inode in memory and never on disk.
//! As long as it is there, the file system has not been away. A kernel that is short of memory may forget it; then memory
//! counts as lost, and the brick is healed without need.

/// A boot id that no page cache has.
pub const UNKNOWN_BOOT_ID: [u8; 16] = [0xff; 16];

/// Bytes of the boot's, the namespace's and the mount's part.
const BOOT: usize = 6;
const SPACE: usize = 4;
const MOUNT: usize = 6;

/// The boot id, of the low bytes of its three parts.
pub(crate) fn join(boot: u128, space: u64, mount: u64) -> [u8; 16] {
    let mut boot_id = [0; 16];
    let (first, rest) = boot_id.split_at_mut(BOOT);
    let (second, third) = rest.split_at_mut(SPACE);
    let parts = [(first, boot.to_le_bytes().to_vec()), (second, space.to_le_bytes().to_vec())];
    for (place, bytes) in parts.into_iter().chain([(third, mount.to_le_bytes().to_vec())]) {
        place.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
    }
    boot_id
}

/// Whether what was not synced under the one boot id may be gone under the other. `witnessed`: the state file's inode is
/// still the one in memory.
pub fn is_memory_lost(was: [u8; 16], now: [u8; 16], witnessed: bool) -> bool {
    let part = |boot_id: [u8; 16], from: usize, len: usize| {
        boot_id.into_iter().skip(from).take(len).collect::<Vec<u8>>()
    };
    let same = |from, len| part(was, from, len) == part(now, from, len);
    let known = was != [0; 16];
    let numbered = part(now, BOOT + SPACE, MOUNT).into_iter().any(|b| b != 0);
    let same_mount = same(BOOT, SPACE + MOUNT) && numbered;
    known && (!same(0, BOOT) || !(same_mount || witnessed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_boot_or_mount_loses_what_was_not_synced() {
        let boot_id = |boot, space, mount| join(boot, space, mount);
        for witnessed in [false, true] {
            assert!(!is_memory_lost([0; 16], boot_id(1, 2, 3), witnessed), "it was never open");
            assert!(!is_memory_lost(boot_id(1, 2, 3), boot_id(1, 2, 3), witnessed));
            assert!(is_memory_lost(boot_id(1, 2, 3), boot_id(9, 2, 3), witnessed), "another boot");
        }
        for (what, now) in [
            ("mounted again", boot_id(1, 2, 4)),
            ("another namespace: its mounts have other numbers", boot_id(1, 8, 4)),
            ("another namespace", boot_id(1, 8, 3)),
        ] {
            assert!(is_memory_lost(boot_id(1, 2, 3), now, false), "{what}");
            assert!(
                !is_memory_lost(boot_id(1, 2, 3), now, true),
                "{what}, and the file system was never away"
            );
        }
        assert!(
            is_memory_lost(boot_id(1, 2, 0), boot_id(1, 2, 0), false),
            "a kernel that does not number mounts"
        );
    }
}

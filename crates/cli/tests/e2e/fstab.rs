//! Mounts by mount(8), as systems do them: from fstab, again, and with other flags while they are in use.

use crate::harness::{Pool, eventually, files, own_mounts, run};
use std::fs;

/// In a mount namespace of its own, where /sbin has our helper. Ends with the first command that fails.
const SCRIPT: &str = r#"
set -eu
trap 'umount -l "$MNT" 2>/dev/null || true' EXIT
mount -t overlay overlay -o "lowerdir=$HELPERS:/usr/sbin" /usr/sbin
mounts() { grep -c " $MNT " /proc/self/mounts; }
mount -T "$FSTAB" -a
test "$(mounts)" = 1
test "$(findmnt -n -o SOURCE "$MNT")" = "$SOURCE"
mount -T "$FSTAB" -a
test "$(mounts)" = 1
touch "$MNT/one"
mount -T "$FSTAB" -o remount,ro "$MNT"
if touch "$MNT/two" 2>/dev/null; then echo 'it is not read-only' >&2; exit 1; fi
mount -T "$FSTAB" -o remount,rw "$MNT"
touch "$MNT/three"
# By somebody who has no such line there: mount(8) asks for the type that the kernel tells.
mount -o remount,ro "$MNT"
if touch "$MNT/two" 2>/dev/null; then echo 'it is not read-only' >&2; exit 1; fi
mount -o remount,rw "$MNT"
touch "$MNT/three"
findmnt -n -o OPTIONS "$MNT" | grep -q noatime
# What concerns the client stays as it was mounted: the line in fstab, which mount(8) hands over, too.
for option in soft=5 key=/etc/other.key hard; do
    for from in "-T $FSTAB" ""; do
        if mount $from -o "remount,$option" "$MNT" 2>"$FSTAB.said"; then echo "$option" >&2; exit 1; fi
        cat "$FSTAB.said" >&2
        grep -q "mount option $option: it is mounted with" "$FSTAB.said"
        grep -q "umount $MNT, and mount it anew" "$FSTAB.said"
    done
done
mount -T "$FSTAB" -o remount,soft=20 "$MNT"
"$HELPERS/mount.mortar" "$SOURCE" "$MNT"
test "$(mounts)" = 1
umount "$MNT"
# The codes of mount(8).
code() { "$@" 2>/dev/null && echo 0 || echo $?; }
test "$(code "$HELPERS/mount.mortar" "$SOURCE-none" "$MNT")" = 32
test "$(code "$HELPERS/mount.mortar" "$SOURCE" "$MNT" -o no-such-option)" = 1
test "$(code mount -t mortar "$SOURCE-none" "$MNT")" = 32
"$HELPERS/mount.mortar" "$SOURCE" "$MNT" -o lazytime,nomand,group
umount "$MNT"
if mount -t mortar -o remount,ro "$SOURCE" "$MNT" 2>/dev/null; then echo 'nothing is mounted' >&2; exit 1; fi
"#;

#[test]
fn as_written_in_fstab() {
    let pool = Pool::new(2);
    pool.volume("v", 2, &[(0, "b"), (1, "b")]);
    let [dir, helpers, fstab] = ["mnt", "helpers", "fstab"].map(|n| pool.dir.join(n));
    fs::create_dir(&dir).unwrap();
    fs::create_dir(&helpers).unwrap();
    for name in ["mount.mortar", "mount.fuse.mortar"] {
        std::os::unix::fs::symlink(crate::harness::mortar().get_program(), helpers.join(name)).unwrap();
    }
    let options = "noatime,soft=20,_netdev,nofail,x-systemd.automount";
    fs::write(&fstab, format!("{} {} mortar {options} 0 0\n", pool.source("v"), dir.display())).unwrap();
    let mut command = own_mounts();
    command.args(["sh", "-c", SCRIPT]).env("MNT", &dir).env("HELPERS", &helpers);
    command.env("FSTAB", &fstab).env("SOURCE", pool.source("v"));
    run(command).ok();
    assert_eq!(files::names(&pool.servers[1].path("b")), [".mortar", "one", "three"]);
    eventually("its process ends", || files::processes_with(dir.to_str().unwrap()).is_empty().then_some(()));
}

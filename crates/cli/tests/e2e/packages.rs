//! The Debian package, as `make packages` makes it: installed, used, upgraded in place, removed. In a mount namespace where
//! /usr, /etc and /var are overlays: the machine itself keeps nothing of it.

use crate::harness::{Pool, own_mounts, run};
use std::fs;
use std::path::PathBuf;

/// Ends with the first command that fails.
const SCRIPT: &str = r#"
set -eu
MNT="$DIR/mnt"; SERVER=
trap 'umount -l "$MNT" 2>/dev/null || true; test -z "$SERVER" || kill -9 $SERVER' EXIT
for part in usr etc var; do
  mkdir -p "$DIR/$part.up" "$DIR/$part.work"
  mount -t overlay overlay -o "lowerdir=/$part,upperdir=$DIR/$part.up,workdir=$DIR/$part.work" "/$part"
done
export DEBIAN_FRONTEND=noninteractive
install() { dpkg -i "$1" >>"$DIR/dpkg.log" 2>&1 || { cat "$DIR/dpkg.log" >&2; exit 1; }; }
version() { dpkg-query -W -f '${Version}' mortar; }
install "$OLDER"
older=$(version)

# What is there.
ldd /usr/bin/mortar 2>&1 | grep -q 'statically linked\|not a dynamic executable'
test "$(stat -c %s /usr/bin/mortar)" -lt 15000000
for name in mount.mortar mount.fuse.mortar; do test "$(readlink -f "/sbin/$name")" = /usr/bin/mortar; done
test -s /usr/share/mortar/prometheus/mortar.rules.yml && test -s /usr/share/mortar/grafana/mortar.json
# Images of containers leave manual pages out.
dpkg-deb -x "$DEB" "$DIR/unpacked"
zcat "$DIR/unpacked/usr/share/man/man1/mortar-volume-create.1.gz" | grep -q replica
bash -c '. /usr/share/bash-completion/completions/mortar; complete -p mortar' >/dev/null
if command -v systemd-analyze >/dev/null; then
  systemd-analyze verify /usr/lib/systemd/system/mortar.service 2>"$DIR/verify" || true
  if grep -v "Command 'man " "$DIR/verify" | grep mortar >&2; then exit 1; fi
fi

# The server as the unit starts it, where no systemd runs.
echo "MORTAR_ADDRESS=$ADDRESS" >> /etc/default/mortar
start() {
  start=$(sed -n 's/^ExecStart=//p' /usr/lib/systemd/system/mortar.service)
  ( set -a; . /etc/default/mortar; MORTAR_SERVER_OPTIONS="--log $DIR/log"; eval "exec $start" ) >"$DIR/ready" & SERVER=$!
  for _ in $(seq 300); do if grep -q ready "$DIR/ready"; then return; fi; sleep 0.05; done
  exit 1
}
start
m() { mortar --server "$ADDRESS" "$@" >/dev/null; }
mkdir "$MNT"
m volume create home "${ADDRESS%:*}:$DIR/brick"
m volume start home
mount -t mortar "$ADDRESS:/home" "$MNT"
echo before > "$MNT/file"

# An upgrade in place to another version: nobody notices, and the program that starts next is the new one.
install "$DEB"
dpkg --compare-versions "$(version)" gt "$older"
test "$(cat "$MNT/file")" = before
grep -q "MORTAR_ADDRESS=$ADDRESS" /etc/default/mortar
readlink "/proc/$SERVER/exe" | grep -q deleted
kill $SERVER
wait $SERVER
start
test "$(cat "$MNT/file")" = before
echo after > "$MNT/file"

# Log rotation.
mv "$DIR/log" "$DIR/log.1"
kill -HUP $SERVER
for _ in $(seq 100); do if test -s "$DIR/log"; then break; fi; sleep 0.05; done
test -s "$DIR/log"
test "$(cat "$MNT/file")" = after

umount "$MNT"
m volume stop home --yes
kill $SERVER
wait $SERVER
SERVER=
dpkg -r mortar >>"$DIR/dpkg.log" 2>&1
test ! -e /usr/bin/mortar && test ! -e /sbin/mount.mortar && test ! -e /sbin/mount.fuse.mortar && test -e /etc/default/mortar
dpkg -P mortar >>"$DIR/dpkg.log" 2>&1
test ! -e /etc/default/mortar
test -d /var/lib/mortar
test "$(cat "$DIR/brick/file")" = after
"#;

/// The package where make packages puts it, or in MORTAR_PACKAGES, and the one of a lower version in the folder `older` there.
fn packages() -> Option<(PathBuf, PathBuf)> {
    let given = |name: &str| std::env::var_os(name).map(PathBuf::from);
    // Cargo starts tests in their package's folder, with the words it was given.
    let built = given("CARGO_TARGET_DIR").filter(|dir| dir.is_absolute());
    let built = built.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target"));
    let folder = given("MORTAR_PACKAGES").unwrap_or_else(|| built.join("packages"));
    let newest = |folder: PathBuf| {
        let all = fs::read_dir(folder).ok()?.flatten().map(|e| e.path());
        all.filter(|p| p.extension().is_some_and(|e| e == "deb")).max()?.canonicalize().ok()
    };
    Some((newest(folder.clone())?, newest(folder.join("older"))?))
}

#[test]
fn a_debian_package_is_installed_used_and_removed() {
    let Some((deb, older)) = packages() else {
        println!("SKIPPED: there is no package: make packages");
        return;
    };
    let pool = Pool::new(1);
    let dir = pool.dir.join("machine");
    fs::create_dir(&dir).unwrap();
    let mut command = own_mounts();
    command.args(["bash", "-c", SCRIPT]).env("DIR", &dir).env("DEB", deb).env("OLDER", older);
    command.env("ADDRESS", pool.spare_address());
    run(command).ok();
}

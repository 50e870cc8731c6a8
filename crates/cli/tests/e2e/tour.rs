//! The tour of the README, pasted into a shell as it is.

use crate::harness::{mortar, own_mounts, run};
use std::path::{Path, PathBuf};

/// The first line of the tour, which a test does not do: the binary is built.
const BUILD: &str = "make build && export PATH=$PWD/target/release:$PATH\n";

/// In a network and a mount namespace of its own: its addresses and folders are nobody else's.
const MACHINE: &str = "\
set -eum -o pipefail
mount -t tmpfs tmpfs /srv
mount -t tmpfs tmpfs /mnt
ip link set lo up
cd \"$(mktemp -d -p /srv)\"
trap 'umount -l /mnt/home 2>/dev/null || true; kill -9 $(jobs -p) 2>/dev/null || true' EXIT
";

/// The blocks of a section, one after the other.
fn blocks(page: &str, section: &str) -> String {
    let text = page.split("\n## ").find(|s| s.starts_with(section)).expect("the section is there");
    text.split("```").skip(1).step_by(2).map(|block| block.trim_start_matches('\n')).collect()
}

#[test]
fn the_tour_can_be_pasted() {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let tour = blocks(&std::fs::read_to_string(readme).unwrap(), "A tour on one machine");
    assert!(tour.starts_with(BUILD), "the tour begins otherwise: {tour}");
    let program = PathBuf::from(mortar().get_program()).canonicalize().unwrap();
    let path = format!("export PATH={}:$PATH\n", program.parent().unwrap().display());
    let script = format!("{MACHINE}{}", tour.replace(BUILD, &path));
    let mut command = own_mounts();
    command.args(["unshare", "-n", "bash", "-c", &script]);
    let shown = run(command).ok();
    for seen in
        ["127.0.0.13", "volume home is started", "/services", "network.ping-timeout", "nothing to change"]
    {
        assert!(shown.contains(seen), "{seen:?} was expected in what the tour prints: {shown}");
    }
}

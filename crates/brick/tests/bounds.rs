//! Bounds of descriptors and memory. One test only: they are counted for the whole process.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests, which show figures")]

mod common;
use brick::{Brick, Options};
use common::*;
use wire::Op;

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn descriptors_are_bounded_and_handles_survive_renames() {
    let t = temp();
    let path = t.path().join("b");
    brick::format(&path, &identity(1), ids::Time::default()).unwrap();
    let options = Options { fd_limit: 16, nodes: 50, names: 50, ..Options::default() };
    let before = descriptors();
    let mut s = Set::new(vec![Brick::open(&path, &identity(1), options).unwrap()]);
    let (a, b) = (s.dir(ROOT, "a"), s.dir(ROOT, "b"));
    let files: Vec<_> = (0..500).map(|n| s.file(a, &format!("f{n}"))).collect();
    for n in 0..500 {
        let (name, to_name) = (name(&format!("f{n}")), name(&format!("g{n}")));
        s.run(&Op::Rename { parent: a, name, to_parent: b, to_name, flags: 0 }, b"").unwrap();
    }
    for (n, f) in files.iter().enumerate() {
        s.write(*f, 0, n.to_string().as_bytes());
    }
    // The objects, and a few for root, folders, journal, index, lock, state.
    assert!(descriptors() <= before + 16 + 10, "{}", descriptors());
    s.bricks[0].flush_attrs().unwrap();
    for n in 0..500 {
        assert_eq!(std::fs::read(path.join(format!("b/g{n}"))).unwrap(), n.to_string().as_bytes());
    }
}

fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

fn thirty_idle_bricks_are_cheap() {
    let t = temp();
    let (fds, memory) = (descriptors(), resident());
    let bricks: Vec<_> = (0..30).map(|n| new_brick(t.path(), n)).collect();
    let (fds, memory) = (descriptors() - fds, resident() - memory);
    println!("30 idle bricks: {fds} descriptors, {} KiB", memory >> 10);
    assert!(fds <= 30 * 10 && memory < 60 << 20, "{fds} {memory}");
    drop(bricks);
}

#[test]
fn bounds() {
    descriptors_are_bounded_and_handles_survive_renames();
    thirty_idle_bricks_are_cheap();
}

//! The simulated file system beside the kernel's: equal calls have equal answers and leave equal trees.
//!
//! The other side is whatever the machine's temporary folder lies on. What differs among file systems (link counts of
//! directories, blocks, what `SEEK_DATA` finds) is left out.
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

use file_system::{File, FileSystem, Host, Opening, Renaming, S_IFDIR, S_IFLNK, S_IFMT, S_IFREG};
use memory_fs::MemoryFs;
use std::path::Path;
use wire::Errno;

/// Random numbers from a seed (splitmix64).
struct Draws(u64);

impl Draws {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

const NAMES: [&[u8]; 6] = [b"a", b"b", b"c", b"d", b"e", b"f"];

/// One call: which directory, which names, what.
#[derive(Debug, Clone)]
struct Call {
    what: u64,
    path: Vec<usize>,
    other: Vec<usize>,
    name: usize,
    to: usize,
    offset: u64,
    len: u64,
}

impl Call {
    fn draw(d: &mut Draws) -> Call {
        let path = |d: &mut Draws| (0..d.below(3)).map(|_| d.below(3) as usize).collect();
        Call {
            what: d.below(18),
            path: path(d),
            other: path(d),
            name: d.below(6) as usize,
            to: d.below(6) as usize,
            offset: [0, 1, 100, 4096, 5000, 8192, 12288][d.below(7) as usize],
            len: [1, 10, 4096, 8192, 6000][d.below(5) as usize],
        }
    }
}

fn walk(root: &File, path: &[usize]) -> Result<File, Errno> {
    let mut at = root.open_at(b".", S_IFDIR)?;
    for n in path {
        at = at.open_at(NAMES[*n], S_IFDIR)?;
    }
    Ok(at)
}

fn text(answer: Result<impl std::fmt::Debug, Errno>) -> String {
    format!("{answer:?}")
}

/// Carries a call out and tells its answer.
fn perform(root: &File, c: &Call) -> String {
    let dir = match walk(root, &c.path) {
        Ok(dir) => dir,
        Err(e) => return format!("walk {e}"),
    };
    let (name, to_name) = (NAMES[c.name], NAMES[c.to]);
    let file = || dir.open_at(name, S_IFREG);
    match c.what {
        0 => text(dir.open_own(name, Opening::New(0o640)).map(drop)),
        1 | 2 => text(dir.make_dir(name, 0o750)),
        3 => text(dir.make_symlink(name, b"somewhere")),
        4 => text(dir.unlink(name)),
        5 => text(dir.remove_dir(name)),
        6..=9 => {
            let how = [Renaming::Replace, Renaming::Replace, Renaming::NoReplace, Renaming::Exchange]
                [(c.what - 6) as usize];
            text(walk(root, &c.other).and_then(|to| dir.rename(name, &to, to_name, how)))
        }
        10 => text(walk(root, &c.other).and_then(|to| file()?.link(&to, to_name))),
        11 | 12 => {
            let data: Vec<u8> = (0..c.len).map(|n| (n + c.offset) as u8 | 1).collect();
            text(file().and_then(|f| f.write_all(c.offset, &data)))
        }
        13 => text(file().and_then(|f| f.truncate(c.offset))),
        14 => text(file().and_then(|f| f.allocate(3, c.offset, c.len))),
        15 => text(file().and_then(|f| f.set_xattr(b"user.x", to_name))),
        16 => text(file().and_then(|f| f.chmod(0o6751).and_then(|()| f.chown(Some(7), None)))),
        _ => text(dir.open_own(name, Opening::Emptied(0o600)).map(drop)),
    }
}

/// All that a tree holds, line by line.
fn describe(dir: &File, at: &str, out: &mut Vec<String>) {
    let mut names = Vec::new();
    dir.list(&mut |n, kind, _| {
        names.push((n.to_vec(), kind));
        true
    })
    .unwrap();
    names.sort();
    for (name, kind) in names {
        let path = format!("{at}/{}", String::from_utf8_lossy(&name));
        let st = dir.stat_at(&name).unwrap();
        assert_eq!(st.mode & S_IFMT, kind);
        let open = dir.open_at(&name, kind).unwrap();
        let what = match kind {
            S_IFDIR => String::new(),
            S_IFLNK => format!("{:?}", open.read_link().unwrap()),
            _ => {
                let data = open.read_whole().unwrap();
                let xattr = open.whole_xattr(b"user.x").unwrap();
                format!("{} {} {:?} {xattr:?}", st.nlink, st.size, data)
            }
        };
        out.push(format!("{path} {:o} {} {what}", st.mode, st.uid));
        if kind == S_IFDIR {
            describe(&open, &path, out);
        }
    }
}

#[test]
fn equal_calls_have_equal_answers() {
    let tmp = tempfile::tempdir().unwrap();
    for seed in 0..150 {
        let mut draws = Draws(seed);
        let memory = MemoryFs::new(1 << 30);
        let host_dir = tmp.path().join(format!("{seed}"));
        std::fs::create_dir(&host_dir).unwrap();
        let host = Host.open_dir(&host_dir).unwrap();
        let simulated = memory.open_dir(Path::new("/")).unwrap();
        let mut calls = Vec::new();
        for _ in 0..150 {
            let call = Call::draw(&mut draws);
            calls.push(call.clone());
            let (theirs, ours) = (perform(&host, &call), perform(&simulated, &call));
            assert_eq!(theirs, ours, "seed {seed}: {:?}", calls.iter().rev().take(8).collect::<Vec<_>>());
        }
        let (mut theirs, mut ours) = (Vec::new(), Vec::new());
        describe(&host, "", &mut theirs);
        describe(&simulated, "", &mut ours);
        assert_eq!(theirs, ours, "seed {seed}");
    }
}

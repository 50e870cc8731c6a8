//! Files that live on another set than their directory (docs/design/0016): renamed, linked, replaced and removed as on one set,
//! by several mounts, while they are open, and while servers are killed.

mod exchanges;
mod killed;
mod names;
mod open;
mod paths;
mod races;
mod swaps;

use crate::harness::{Mounted, Pool, eventually, eventually_ok, files, mortar, run};
use crate::sets::{sets, spread};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const TWO: [(usize, &str); 4] = [(0, "b1"), (1, "b1"), (0, "b2"), (1, "b2")];
const THREE: [(usize, &str); 6] = [(0, "b1"), (1, "b1"), (1, "b2"), (2, "b2"), (2, "b3"), (0, "b3")];

/// A directory of each set.
struct Dirs(Vec<String>);

impl Dirs {
    /// A name in the directory of a set, as a mount sees it.
    fn at(&self, mount: &Mounted, set: usize, name: &str) -> PathBuf {
        mount.path(&self.0[set]).join(name)
    }

    /// The names in the directory of a set.
    fn names(&self, mount: &Mounted, set: usize) -> Vec<String> {
        files::names(&mount.path(&self.0[set]))
    }
}

/// A volume of two copies, with a directory on each set.
struct Rig {
    pool: Pool,
    bricks: Vec<PathBuf>,
    dirs: Dirs,
}

impl Rig {
    fn new(servers: usize, bricks: &[(usize, &str)]) -> Rig {
        let pool = Pool::new(servers);
        pool.volume("v", 2, bricks);
        let mount = pool.mount("v");
        let homes = spread(&sets(&pool, bricks), &mount);
        let of = |set| homes.iter().find(|(_, on)| **on == set).unwrap().0.clone();
        let dirs = Dirs((0..bricks.len() / 2).map(of).collect());
        mount.end();
        Rig { bricks: pool.paths(bricks), pool, dirs }
    }

    fn mount(&self) -> Mounted {
        self.pool.mount("v")
    }

    fn at(&self, mount: &Mounted, set: usize, name: &str) -> PathBuf {
        self.dirs.at(mount, set, name)
    }

    /// What the brick of a set has under a name in the directory of a set.
    fn on_brick(&self, brick_of: usize, set: usize, name: &str) -> PathBuf {
        self.bricks[brick_of * 2].join(&self.dirs.0[set]).join(name)
    }

    /// The bricks of each set come to be the same; then all servers stop, and `mortar brick check` finds nothing wrong.
    fn assert_sound(mut self) {
        for pair in self.bricks.chunks(2) {
            eventually_ok("the bricks of a set are the same", || same(&pair[0], &pair[1]));
        }
        (0..self.pool.servers.len()).for_each(|i| self.pool.stop(i));
        for brick in &self.bricks {
            let mut command = mortar();
            command.args(["brick", "check"]).arg(brick);
            let output = run(command);
            assert_eq!(output.code, Some(0), "{}: {output:?}", brick.display());
        }
    }

    /// Removes everything: nothing is left on any brick, in sight or out of sight.
    fn leaves_nothing(self, mount: Mounted) {
        self.leaves(mount, |_, _| false);
    }

    /// Likewise, where directories of other sets than the root's were elsewhere: what those have of the directories at the top, on
    /// which nothing hangs any more, stays.
    fn leaves_copies_at_most(self, mount: Mounted) {
        self.leaves(mount, |path, seen| seen.is_dir() && path.components().count() == 1);
    }

    fn leaves(self, mount: Mounted, may: impl Fn(&Path, &files::Seen) -> bool) {
        for name in files::names(&mount.dir) {
            fs::remove_dir_all(mount.path(&name)).unwrap_or_else(|e| panic!("remove {name}: {e}"));
        }
        mount.end();
        for brick in &self.bricks {
            eventually_ok("nothing is left on the bricks", || {
                let mut left = (files::brick_tree(brick), hidden(brick));
                left.0.retain(|path, seen| !may(path, seen));
                if left.0.is_empty() && left.1.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
            });
        }
        self.assert_sound();
    }
}

/// Folders of names, and what is in them. What was removed in the first minute of a primary is there as an orphan until nobody
/// can claim it any more.
fn hidden(brick: &Path) -> Vec<PathBuf> {
    files::brick_tree(&brick.join(".mortar/limbo")).into_keys().collect()
}

/// Names, kinds and content, also in folders of names. Times of what lives on other sets are not this set's matter, nor are
/// copies of directories on which nothing hangs any more: a brick that heals makes none.
fn same(one: &Path, other: &Path) -> Result<(), String> {
    let look = |brick: &Path| {
        let seen = [brick.to_path_buf(), brick.join(".mortar/limbo")].map(|top| {
            let tree = files::brick_tree(&top);
            let files: Vec<PathBuf> =
                tree.iter().filter(|(_, s)| !s.is_dir()).map(|(p, _)| p.clone()).collect();
            let counts = |p: &Path| files.iter().any(|file| file.starts_with(p));
            let links = |s: &files::Seen| if s.is_dir() { 0 } else { s.links };
            let tree = tree.into_iter().filter(|(p, _)| counts(p));
            tree.map(|(p, s)| (p, s.kind, s.mode, links(&s), s.content)).collect::<Vec<_>>()
        });
        seen.concat()
    };
    let (here, there) = (look(one), look(other));
    let only: Vec<_> = here
        .iter()
        .filter(|s| !there.contains(s))
        .chain(there.iter().filter(|s| !here.contains(s)))
        .collect();
    if only.is_empty() { Ok(()) } else { Err(format!("{} and {}: {only:?}", one.display(), other.display())) }
}

/// Whether a call failed with this error.
fn failed<T>(result: io::Result<T>, errno: rustix::io::Errno) -> bool {
    result.err().and_then(|e| e.raw_os_error()) == Some(errno.raw_os_error())
}

/// One file under these names: each mount sees the same inode, as many links, and the content.
fn is_one_file(content: &[u8], names: &[PathBuf], links: u64) {
    let inodes: Vec<u64> = names
        .iter()
        .map(|n| fs::metadata(n).unwrap_or_else(|e| panic!("{}: {e}", n.display())).ino())
        .collect();
    assert!(inodes.windows(2).all(|two| two[0] == two[1]), "{names:?}: {inodes:?}");
    for name in names {
        assert_eq!(fs::metadata(name).unwrap().nlink(), links, "{}", name.display());
        assert_eq!(fs::read(name).unwrap(), content, "{}", name.display());
    }
}

fn is_gone(path: &Path) {
    assert!(failed(fs::symlink_metadata(path), rustix::io::Errno::NOENT), "{} is there", path.display());
}

//! Two bricks of a set that get the same changes, in a directory of their own.

use super::{Set, identity, new_brick, open, temp};
use std::path::{Path, PathBuf};

pub struct Bricks {
    t: tempfile::TempDir,
    pub s: Set,
}

impl Bricks {
    pub fn new() -> Bricks {
        let t = temp();
        let bricks = vec![new_brick(t.path(), 1), new_brick(t.path(), 2)];
        Bricks { t, s: Set::new(bricks) }
    }

    pub fn brick(&self, n: u32) -> PathBuf {
        self.t.path().join(format!("b{n}"))
    }

    pub fn open(&mut self) {
        self.s.bricks = (1..=2).map(|n| open(&self.brick(n), &identity(n))).collect();
    }

    /// The processes are killed and started again.
    pub fn kill(&mut self) {
        self.s.bricks.clear();
        self.open();
    }

    /// They are stopped in order: a check finds nothing wrong.
    pub fn close(&mut self) {
        for b in self.s.bricks.drain(..) {
            let path = b.path().to_path_buf();
            b.close().unwrap();
            let report = brick::check(&path, false).unwrap();
            assert!(report.problems.is_empty(), "{:?}", report.problems);
        }
    }

    pub fn sync(&mut self) {
        for b in &mut self.s.bricks {
            b.begin_sync(None).unwrap().run().unwrap();
        }
    }

    /// Whether both bricks have that path.
    pub fn have(&self, path: impl AsRef<Path>) -> bool {
        let all = [1, 2].map(|n| self.brick(n).join(path.as_ref()).symlink_metadata().is_ok());
        assert_eq!(all[0], all[1], "{}", path.as_ref().display());
        all[0]
    }
}

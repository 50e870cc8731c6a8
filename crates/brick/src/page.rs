//! Brings what a page of a directory leads to into the kernel's memory, on another thread.
//!
//! Names that lie side by side in a directory's order lie anywhere on the disk: for each of them an inode, and a page of the
//! index, may have to be read.

use crate::index::Store;
use crate::object::tag_at;
use crate::open::Brick;
use crate::read::entry_bytes;
use file_system::File;
use ids::Fid;
use std::sync::Arc;

/// As many names are looked up where they are wanted.
pub(crate) const FEW: usize = 8;

/// Looks names of a directory up, for the kernel to have read them. Runs on any thread.
#[must_use = "nothing is read before it has run"]
pub struct PageJob {
    dir: Arc<File>,
    names: Vec<Box<[u8]>>,
    /// If their attributes are wanted.
    index: Option<Arc<Store>>,
}

impl PageJob {
    /// How many names it looks up.
    pub fn many(&self) -> usize {
        self.names.len()
    }

    /// Does it. What is wrong with a name is told by whoever asks for it.
    pub fn run(self) {
        for name in self.names {
            if let (Ok(Some(tag)), Some(index)) = (tag_at(&self.dir, &name), &self.index) {
                let _ = index.get(tag.fid);
            }
        }
    }
}

impl Brick {
    /// What is to be done on another thread before about `bytes` of a directory's entries, with attributes (`plus`) or
    /// without, are asked for or compared, from `after` on; `None` if all but a few of them are in memory. The directory's
    /// names are at hand.
    pub fn begin_page(&mut self, dir: Fid, after: u64, plus: bool, bytes: usize) -> Option<PageJob> {
        let own = self.identity.set;
        let mut names: Vec<Box<[u8]>> = Vec::new();
        for (_, name, _) in self.listing(dir).ok()?.page(after, entry_bytes(plus), bytes).0 {
            let known = match self.names.get(dir, &name) {
                Some(Some(e)) => !plus || e.home != own || self.nodes.peek(e.fid).is_some(),
                Some(None) => true,
                None => false,
            };
            if !known {
                names.push(name);
            }
        }
        if names.len() <= FEW {
            return None;
        }
        let open = self.open_dir(dir).ok()?;
        Some(PageJob { dir: open.share(), names, index: plus.then(|| self.index.share()) })
    }
}

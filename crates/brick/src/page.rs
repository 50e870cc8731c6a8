//! Brings what a page of a directory leads to into the kernel's memory, on another thread.
//!
//! Names that lie side by side in a directory's order lie anywhere on the disk: for each of them an inode, and a page of the
//! index, may have to be read.

use crate::index::Store;
use crate::object::tag_at;
use crate::open::Brick;
use crate::read::page_names;
use file_system::File;
use ids::Fid;
use std::sync::Arc;

/// As many names are looked up where they are wanted.
const FEW: usize = 8;
/// As many names are taken from a listing at a time, to see whether they are known.
const SOME: usize = 64;

/// Looks names of a directory up, for the kernel to have read them. Runs on any thread.
#[must_use = "nothing is read before it has run"]
pub struct PageJob {
    dir: Arc<File>,
    names: Vec<Box<[u8]>>,
    /// If their attributes are wanted.
    index: Option<Arc<Store>>,
}

impl PageJob {
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
    /// Whether all but a few of about `bytes` of a directory's entries, with attributes (`plus`) or without, are in memory,
    /// from `after` on. The directory's names are at hand.
    pub fn knows_page(&mut self, dir: Fid, after: u64, plus: bool, bytes: usize) -> bool {
        let (mut at, mut left, mut unknown) = (after, page_names(bytes, plus), 0);
        while left > 0 {
            // What is wrong with the listing is told by whoever asks for it.
            let Ok(listing) = self.listing(dir) else { return true };
            let some = listing.after(at, left.min(SOME));
            let Some((last, ..)) = some.last() else { return true };
            (at, left) = (*last, left.saturating_sub(some.len()));
            unknown += some.iter().filter(|(_, name, _)| self.names.get(dir, name).is_none()).count();
            if unknown > FEW {
                return false;
            }
        }
        true
    }

    /// What is to be done on another thread before about `bytes` of a directory's entries, with attributes (`plus`) or
    /// without, are asked for or compared, from `after` on; `None` if all but a few of them are in memory. The directory's
    /// names are at hand.
    pub fn begin_page(&mut self, dir: Fid, after: u64, plus: bool, bytes: usize) -> Option<PageJob> {
        let mut names: Vec<Box<[u8]>> = Vec::new();
        for (_, name, _) in self.listing(dir).ok()?.after(after, page_names(bytes, plus)) {
            if self.names.get(dir, &name).is_none() {
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

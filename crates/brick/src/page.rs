//! Reads what a page of a directory leads to on another thread.
//!
//! Names that lie side by side in a directory's order lie anywhere on the disk: for each of them an inode, and a page of the
//! index, may have to be read. What was read is taken over if the brick has not changed since; else it is read once more,
//! from the kernel's memory.

use crate::index::Store;
use crate::locks::locked;
use crate::object::{S_IFMT, Stat, tag_at};
use crate::open::Brick;
use crate::read::entry_bytes;
use disk_format::Tag;
use file_system::File;
use ids::Fid;
use namespace::Entry;
use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use wire::Errno;
use wire::peer::Stamp;

/// As many names are looked up where they are wanted.
pub(crate) const FEW: usize = 8;
/// How many jobs' results are waited for at most.
const MAX_JOBS: usize = 64;

/// What was found under a name.
struct Seen {
    name: Box<[u8]>,
    tag: Tag,
    stat: Stat,
}

/// How many objects are written out at most before what jobs read meanwhile is given up.
const MAX_WRITTEN: usize = 4096;

/// What jobs have read and the brick has not taken over.
#[derive(Default)]
pub(crate) struct ReadPages {
    waiting: Vec<ReadPage>,
    /// Objects whose times and tags were written since the first of them was begun: a job may have read what they were before.
    written: HashSet<Fid>,
}

/// A page that a job reads.
struct ReadPage {
    dir: Fid,
    /// The brick's last change when the job was begun.
    at: Stamp,
    seen: Arc<Mutex<Option<Vec<Seen>>>>,
}

impl ReadPages {
    /// What is read now may change without a record: it is not taken over.
    pub(crate) fn forget(&mut self) {
        *self = ReadPages::default();
    }

    /// The object's times and tag, which waited in memory, are written.
    pub(crate) fn note_written(&mut self, fid: Fid) {
        if self.waiting.is_empty() {
            return;
        }
        self.written.insert(fid);
        if self.written.len() > MAX_WRITTEN {
            self.forget();
        }
    }

    /// Forgets jobs that were given up, were begun before the brick's last change, or whose results were taken.
    fn drop_old(&mut self, now: &Stamp) {
        self.waiting.retain(|page| {
            page.at == *now && Arc::strong_count(&page.seen) + usize::from(locked(&page.seen).is_some()) > 1
        });
        if self.waiting.is_empty() {
            self.written.clear();
        }
    }

    /// Whether what was read of the object is what there is.
    fn believes(&self, fid: Fid) -> bool {
        !self.waiting.is_empty() && !self.written.contains(&fid)
    }
}

/// Looks names of a directory up. Runs on any thread.
#[must_use = "nothing is read before it has run"]
pub struct PageJob {
    dir: Arc<File>,
    /// Where the names lie that are not there.
    copy: Option<Arc<File>>,
    names: Vec<Box<[u8]>>,
    /// If their attributes are wanted.
    index: Option<Arc<Store>>,
    seen: Arc<Mutex<Option<Vec<Seen>>>>,
}

impl PageJob {
    /// How many names it looks up.
    pub fn many(&self) -> usize {
        self.names.len()
    }

    /// Does it. What is wrong with a name is told by whoever asks for it.
    pub fn run(self) {
        let mut seen = Vec::with_capacity(self.names.len());
        for name in self.names {
            let found = [Some(&self.dir), self.copy.as_ref()].into_iter().flatten().find_map(|dir| {
                let tag = tag_at(dir, &name).ok().flatten()?;
                let stat = dir.stat_at(&name).ok()?;
                Some((tag, stat))
            });
            if let Some((tag, stat)) = found.filter(|_| self.index.is_some()) {
                seen.push(Seen { name, tag, stat });
            }
        }
        // What the index does not know on disk is looked up by whoever may change it.
        let fids: Vec<Fid> = seen.iter().map(|s| s.tag.fid).collect();
        let known = self.index.and_then(|index| index.knows(&fids).ok()).unwrap_or_default();
        let mut known = known.into_iter();
        seen.retain(|_| known.next() == Some(true));
        *locked(&self.seen) = Some(seen);
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
        let copy = self.copy_of_folder(dir).ok()?.map(|copy| copy.share());
        let seen = Arc::default();
        let waiting = &mut self.read_pages.waiting;
        if plus && !self.stale.is_set() && waiting.len() < MAX_JOBS {
            waiting.push(ReadPage { dir, at: self.journal.last(), seen: Arc::clone(&seen) });
        }
        Some(PageJob { dir: open.share(), copy, names, index: plus.then(|| self.index.share()), seen })
    }

    /// Takes over what jobs have read of a directory.
    pub(crate) fn take_read_pages(&mut self, dir: Fid) -> Result<(), Errno> {
        if self.read_pages.waiting.is_empty() {
            return Ok(());
        }
        let now = self.journal.last();
        self.read_pages.drop_old(&now);
        let of_dir = self.read_pages.waiting.iter().filter(|page| page.dir == dir);
        let taken: Vec<Seen> = of_dir.filter_map(|page| locked(&page.seen).take()).flatten().collect();
        for Seen { name, tag, stat } in taken {
            // What is kept may make others leave the memory, which are written then.
            if !self.read_pages.believes(tag.fid) {
                continue;
            }
            // A stub that was removed and made again has the fid that it had: where it is now is not known.
            if tag.stub_kind().is_some() || (dir.is_names() && tag.home != self.identity.set) {
                continue;
            }
            if self.nodes.peek(tag.fid).is_none() {
                self.learn_node(tag, stat)?;
            }
            if self.names.get(dir, &name).is_none() {
                let entry = Entry { fid: tag.fid, home: tag.home, kind: stat.mode & S_IFMT };
                self.names.note(dir, &name, Some(entry));
            }
        }
        self.read_pages.drop_old(&now);
        Ok(())
    }
}

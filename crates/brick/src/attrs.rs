//! Attributes in memory, and the late writing of times and versions.
//!
//! A change costs no system call for the times of the objects it touches: they are kept here and written by
//! [`Brick::flush_attrs`] (about once a second), on fsync, and when the object leaves the memory. From the first change on
//! until it is written, a node's times are the truth and the file's own (the kernel's) are ignored.

use crate::nodes::{Effect, Node};
use crate::object::Stat;
use crate::open::Brick;
use disk_format::tag::{PENDING, Tag, Version};
use ids::{Fid, Time};
use wire::Errno;
use wire::peer::Stamp;

/// Objects that are written out without a break.
const FLUSH_SLICE: usize = 16;

/// Times and versions that are being written out.
#[derive(Clone, Debug)]
pub(crate) struct Flushing {
    /// When it is over, all are written that changes up to this one made.
    stamp: Stamp,
    began: Time,
    /// So many of those that wait longest are to be written.
    left: usize,
}

impl Flushing {
    /// Nothing was begun: all that the journal had at the opening.
    pub(crate) fn none(stamp: Stamp, began: Time) -> Flushing {
        Flushing { stamp, began, left: 0 }
    }

    /// The change up to which all will be written, and when that began.
    pub(crate) fn covers(&self) -> (Stamp, Time) {
        (self.stamp.clone(), self.began)
    }
}

impl Brick {
    /// Keeps a node, and writes out what has to leave for it.
    pub(crate) fn keep_node(&mut self, node: Node) -> Result<(), Errno> {
        self.nodes.insert(node);
        while let Some(fid) = self.nodes.leaving() {
            if let Err(e) = self.flush_node(fid) {
                // It stays, and others go first: whoever asked for another object is not to hear of it.
                self.note_late(e);
                self.nodes.get(fid);
                break;
            }
            self.nodes.remove(fid);
        }
        Ok(())
    }

    /// Keeps what was learnt by name, unless more is known already.
    pub(crate) fn learn_node(&mut self, tag: Tag, stat: Stat) -> Result<(), Errno> {
        match self.nodes.get(tag.fid) {
            Some(n) => {
                n.set_stat(stat);
                Ok(())
            }
            // Whether the mark of a file has ended is seen when it is needed.
            None if tag.flags & PENDING != 0 => Ok(()),
            None => self.keep_node(Node::new(tag, stat)),
        }
    }

    /// Makes the object's node known, its `stat` possibly out of date.
    pub(crate) fn load(&mut self, fid: Fid) -> Result<&mut Node, Errno> {
        if self.nodes.peek(fid).is_none() {
            let open = self.open_fid(fid)?;
            let Some(tag) = open.tag()?.filter(|t| t.fid == fid) else {
                // It may be made anew, elsewhere.
                self.fds.forget(fid);
                return Err(Errno::ESTALE);
            };
            let stat = open.stat()?;
            self.keep_node(Node::new(tag, stat))?;
            if tag.flags & PENDING != 0 && (!open.is_dir() || tag.home != self.identity.set) {
                self.end_known_mark(fid, &open)?;
            }
        }
        self.nodes.get(fid).ok_or(Errno::ESTALE)
    }

    /// Whether the object's node is in memory.
    pub(crate) fn is_loaded(&mut self, fid: Fid) -> bool {
        self.nodes.peek(fid).is_some()
    }

    /// The object's node with a `stat` that is up to date.
    pub(crate) fn fresh(&mut self, fid: Fid) -> Result<(&Node, Stat), Errno> {
        let known = match self.nodes.get(fid) {
            Some(node) => node.stat(),
            None => self.load(fid)?.stat(),
        };
        let stat = match known {
            Some(stat) => return Ok((self.nodes.peek(fid).ok_or(Errno::ESTALE)?, stat)),
            None => self.open_fid(fid)?.stat()?,
        };
        let node = self.nodes.peek(fid).ok_or(Errno::ESTALE)?;
        node.set_stat(stat);
        Ok((node, stat))
    }

    /// Notes what the change at `version` did to an object; nothing if the object is gone, or has the change already.
    pub(crate) fn touch(&mut self, fid: Fid, version: Version, e: Effect) -> Result<(), Errno> {
        let replaying = self.progress.is_replaying();
        let node = match self.load(fid) {
            Err(Errno::ESTALE | Errno::ENOENT) => return Ok(()),
            other => other?,
        };
        // What is done again moves the kernel's times again: they are to be written once more.
        if node.tag().version > version || (node.tag().version == version && !replaying) {
            return Ok(());
        }
        if node.take_effect(version, e) {
            self.nodes.wait(fid);
        }
        while self.nodes.too_many_wait() {
            if let Err(e) = self.flush_some(64) {
                self.note_late(e);
                break;
            }
        }
        Ok(())
    }

    /// The object's attributes have to be asked for again.
    pub(crate) fn invalidate_attrs(&mut self, fid: Fid) {
        if let Some(n) = self.nodes.peek(fid) {
            n.invalidate();
        }
    }

    /// The kernel is about to move the object's times, or has: ours, in memory by then, are written again.
    pub(crate) fn keep_times(&mut self, fid: Fid) -> Result<(), Errno> {
        if self.load(fid)?.write_anew() {
            self.nodes.wait(fid);
        }
        Ok(())
    }

    /// Writes an object's times and tag, if they wait. Times first: a tag says that the change is all there.
    pub(crate) fn flush_node(&mut self, fid: Fid) -> Result<(), Errno> {
        let Some(node) = self.nodes.peek(fid).filter(|n| n.is_dirty()) else { return Ok(()) };
        let durable = self.shared.durable_stamp().lsn;
        let (tag, times) = (node.tag_on_disk(durable), node.waiting_times());
        let open = match self.open_fid(fid) {
            Err(Errno::ESTALE | Errno::ENOENT) => {
                self.nodes.remove(fid);
                return Ok(());
            }
            other => other?,
        };
        if let Some(times) = times {
            open.set_times(times)?;
        }
        open.set_tag(&tag)?;
        let Some(node) = self.nodes.peek(fid) else { return Ok(()) };
        node.is_written();
        self.read_pages.note_written(fid);
        if tag != *node.tag() {
            self.nodes.keeps_mark(fid);
        }
        Ok(())
    }

    /// Writes out at most `max` objects, those that wait longest first; how many still wait.
    ///
    /// # Errors
    /// The kernel's: the brick cannot be written any more.
    pub fn flush_some(&mut self, max: usize) -> Result<usize, Errno> {
        for _ in 0..max {
            let Some(fid) = self.nodes.take_waiting() else { break };
            if let Err(e) = self.flush_node(fid) {
                self.nodes.waits_on(fid);
                return Err(e);
            }
        }
        Ok(self.nodes.waiting())
    }

    /// Writes out all times and versions that wait, in one go: [`Brick::begin_flush`] for a brick that is in use.
    ///
    /// # Errors
    /// The kernel's: the brick cannot be written any more.
    pub fn flush_attrs(&mut self) -> Result<(), Errno> {
        self.nodes.drop_marks(self.shared.durable_stamp().lsn);
        if self.nodes.waiting() > 0 {
            self.flush_some(usize::MAX)?;
        }
        self.shared.flushed(self.journal.last().lsn)
    }

    /// Begins to write out all times and versions that wait now: [`Brick::flush_slice`] does it. About once a second.
    pub fn begin_flush(&mut self) {
        self.listings.tick();
        self.nodes.drop_marks(self.shared.durable_stamp().lsn);
        self.flushing =
            Flushing { stamp: self.last_done(), began: self.root.now(), left: self.nodes.waiting() };
    }

    /// What was begun is over only when all that waits by now is written.
    pub(crate) fn flush_all_that_waits(&mut self) {
        self.flushing.left = self.nodes.waiting();
    }

    /// Sets an object's times again if they are others than these; nothing if it is gone.
    pub(crate) fn restore_times(&mut self, fid: Fid, e: Effect) -> Result<(), Errno> {
        let node = match self.load(fid) {
            Err(Errno::ESTALE | Errno::ENOENT) => return Ok(()),
            other => other?,
        };
        if node.set_times(e) { self.keep_times(fid) } else { Ok(()) }
    }

    /// Writes out a few of them; true if all are.
    ///
    /// # Errors
    /// The kernel's: the brick cannot be written any more.
    pub fn flush_slice(&mut self) -> Result<bool, Errno> {
        let many = self.flushing.left.min(FLUSH_SLICE);
        self.flush_some(many)?;
        self.flushing.left -= many;
        if self.flushing.left == 0 {
            self.shared.flushed(self.flushing.stamp.lsn)?;
        }
        Ok(self.flushing.left == 0)
    }

    /// Writes out the times and version of one object: when it was closed.
    ///
    /// # Errors
    /// The kernel's: the brick cannot be written any more.
    pub fn flush_attrs_of(&mut self, fid: Fid) -> Result<(), Errno> {
        self.flush_node(fid)
    }
}

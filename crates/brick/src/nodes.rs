//! What is known of objects, kept in memory, and which of it waits to be written.

use crate::lru::Lru;
use crate::object::{S_IFDIR, S_IFMT, Stat};
use disk_format::tag::{ORPHAN, PENDING, Tag, Version};
use file_system::Times;
use ids::{Fid, Lsn, Time};
use std::collections::VecDeque;
use wire::Attr;

/// What is known of an object.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    tag: Tag,
    mtime: Time,
    /// The rest; `None` if a change may have altered it.
    stat: Option<Stat>,
    tag_dirty: bool,
    times_dirty: bool,
    /// The change that ended the file's mark and gave or took its names, if that may not be on disk.
    ended: Option<Lsn>,
}

/// What a change does to an object's own attributes.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Effect {
    pub(crate) ctime: Option<Time>,
    pub(crate) mtime: Option<Time>,
    pub(crate) atime: Option<Time>,
    pub(crate) set: u8,
    pub(crate) clear: u8,
    /// The mark of a file ends, and its names are changed: see [`Node::tag_on_disk`].
    pub(crate) ended: bool,
    /// Only times are concerned: those of a directory whose entries the change alters, or of what gets another name. If one of the
    /// entries is a directory, who alters it says so ([`Node::invalidate`]).
    pub(crate) only_times: bool,
}

impl Node {
    pub(crate) fn new(tag: Tag, stat: Stat) -> Node {
        Node { tag, mtime: stat.mtime, stat: Some(stat), tag_dirty: false, times_dirty: false, ended: None }
    }

    /// Whether something waits to be written.
    pub(crate) fn is_dirty(&self) -> bool {
        self.tag_dirty || self.times_dirty
    }

    /// The object's tag, as it is to be.
    pub(crate) fn tag(&self) -> &Tag {
        &self.tag
    }

    pub(crate) fn mtime(&self) -> Time {
        self.mtime
    }

    /// The tag as it may be written while what was changed up to `durable` is on disk. The mark of a file stays there until
    /// its names are: a power cut that takes one of the two takes the names, and they are asked for again.
    pub(crate) fn tag_on_disk(&self, durable: Lsn) -> Tag {
        let flags = if self.has_ended(durable) { 0 } else { PENDING };
        Tag { flags: self.tag.flags | flags, ..self.tag }
    }

    /// The mark has ended with the change `at`.
    pub(crate) fn end_mark(&mut self, at: Lsn) {
        self.tag.flags &= !PENDING;
        self.ended = Some(at);
    }

    /// The mark is there after all.
    pub(crate) fn mark_again(&mut self) {
        self.tag.flags |= PENDING;
        self.ended = None;
    }

    /// Whether the end of the last transaction about the file's names is on disk.
    pub(crate) fn has_ended(&self, durable: Lsn) -> bool {
        self.ended.is_none_or(|at| at <= durable)
    }

    /// The file's times, if they are to be written.
    pub(crate) fn waiting_times(&self) -> Option<Times> {
        self.times_dirty.then_some(Times { atime: self.tag.atime, mtime: self.mtime })
    }

    /// Times and tag are written.
    pub(crate) fn is_written(&mut self) {
        (self.tag_dirty, self.times_dirty) = (false, false);
    }

    /// What the file system says beside times, if that is known.
    pub(crate) fn stat(&self) -> Option<Stat> {
        self.stat
    }

    pub(crate) fn set_stat(&mut self, stat: Stat) {
        self.stat = Some(stat);
    }

    /// What the file system says has to be asked for again.
    pub(crate) fn invalidate(&mut self) {
        self.stat = None;
    }

    /// Takes in what the change at `version` did. True if nothing waited to be written before: see [`Nodes::wait`].
    #[must_use]
    pub(crate) fn take_effect(&mut self, version: Version, e: Effect) -> bool {
        let was = self.is_dirty();
        if !e.only_times {
            self.stat = None;
        }
        self.tag.version = version;
        self.tag.flags = (self.tag.flags | e.set) & !e.clear;
        if e.ended {
            self.ended = Some(version.lsn);
        }
        if let Some(t) = e.ctime {
            self.tag.ctime = t;
        }
        if let Some(t) = e.mtime {
            self.mtime = t;
        }
        if let Some(t) = e.atime {
            self.tag.atime = t;
        }
        self.tag_dirty = true;
        self.times_dirty |= e.mtime.is_some() || e.atime.is_some();
        !was
    }

    /// Tag and times are to be written again, as they are. True as for [`Node::take_effect`].
    #[must_use]
    pub(crate) fn write_anew(&mut self) -> bool {
        let was = self.is_dirty();
        self.stat = None;
        (self.times_dirty, self.tag_dirty) = (true, true);
        !was
    }

    /// Says whether the object has no name, in a tag that waits to be written.
    pub(crate) fn set_orphan(&mut self, orphan: bool) {
        self.tag.flags = if orphan { self.tag.flags | ORPHAN } else { self.tag.flags & !ORPHAN };
    }

    /// Gives the object a version, in a tag that is to be written.
    pub(crate) fn set_version(&mut self, version: Version) {
        self.tag.version = version;
    }

    /// Sets the times that are given, in a tag that is to be written. True if they were others.
    #[must_use]
    pub(crate) fn set_times(&mut self, e: Effect) -> bool {
        let were = (self.mtime, self.tag.atime);
        self.mtime = e.mtime.unwrap_or(self.mtime);
        self.tag.atime = e.atime.unwrap_or(self.tag.atime);
        were != (self.mtime, self.tag.atime)
    }

    /// Gives the object a time, which waits to be written.
    pub(crate) fn set_mtime(&mut self, mtime: Time) {
        self.mtime = mtime;
    }

    /// The attributes that users see. What file systems count differently is made alike: a directory's size, and the
    /// folder `.mortar` among the root's links.
    pub(crate) fn attr(&self, stat: &Stat) -> Attr {
        let dir = stat.mode & S_IFMT == S_IFDIR;
        let nlink = match stat.nlink {
            _ if self.tag.flags & ORPHAN != 0 => 0,
            n if self.tag.fid.is_root() && n > 2 => n - 1,
            n => n,
        };
        Attr {
            fid: self.tag.fid,
            home: self.tag.home,
            mode: stat.mode,
            uid: stat.uid,
            gid: stat.gid,
            nlink,
            rdev: stat.rdev,
            size: if dir { 4096 } else { stat.size },
            blocks: if dir { 8 } else { stat.blocks },
            atime: self.tag.atime,
            mtime: self.mtime,
            ctime: self.tag.ctime,
        }
    }
}

/// The nodes in memory. Whose times or version wait to be written stays until they are.
pub(crate) struct Nodes {
    kept: Lru<Fid, Node>,
    max: usize,
    /// Objects with times or versions to write, in the order of their first change.
    dirty: VecDeque<Fid>,
    max_dirty: usize,
    /// Files whose tags on disk have a mark that has ended.
    marked: Vec<Fid>,
}

impl Nodes {
    pub(crate) fn new(max: usize, max_dirty: usize) -> Nodes {
        Nodes { kept: Lru::new(), max, dirty: VecDeque::new(), max_dirty, marked: Vec::new() }
    }

    /// The node, which becomes the newest.
    pub(crate) fn get(&mut self, fid: Fid) -> Option<&mut Node> {
        self.kept.get(&fid)
    }

    /// The node, whose age stays as it is.
    pub(crate) fn peek(&mut self, fid: Fid) -> Option<&mut Node> {
        self.kept.peek(&fid)
    }

    pub(crate) fn insert(&mut self, node: Node) {
        self.kept.insert(node.tag.fid, node);
    }

    pub(crate) fn remove(&mut self, fid: Fid) {
        self.kept.remove(&fid);
    }

    /// The one that was used longest ago, if there are too many: it has to leave.
    pub(crate) fn leaving(&self) -> Option<Fid> {
        self.kept.oldest().filter(|_| self.kept.len() > self.max)
    }

    /// Forgets all nodes. Nothing may wait.
    pub(crate) fn clear(&mut self) {
        while self.kept.pop_oldest().is_some() {}
    }

    /// An object's times or version wait to be written from now on.
    pub(crate) fn wait(&mut self, fid: Fid) {
        self.dirty.push_back(fid);
    }

    /// The file's tag was written with a mark that has ended.
    pub(crate) fn keeps_mark(&mut self, fid: Fid) {
        self.marked.push(fid);
    }

    /// Whether there are such files.
    pub(crate) fn holds_marks(&self) -> bool {
        !self.marked.is_empty()
    }

    /// What was changed up to `durable` is on disk: marks that have ended wait to be written so.
    pub(crate) fn drop_marks(&mut self, durable: Lsn) {
        for fid in std::mem::take(&mut self.marked) {
            let Some(node) = self.kept.peek(&fid) else { continue };
            if !node.has_ended(durable) {
                self.marked.push(fid);
                continue;
            }
            node.ended = None;
            if !node.is_dirty() {
                self.dirty.push_back(fid);
            }
            node.tag_dirty = true;
        }
    }

    /// How many wait.
    pub(crate) fn waiting(&self) -> usize {
        self.dirty.len()
    }

    /// Whether more wait than should.
    pub(crate) fn too_many_wait(&self) -> bool {
        self.dirty.len() > self.max_dirty
    }

    /// Takes out the one that waits longest.
    pub(crate) fn take_waiting(&mut self) -> Option<Fid> {
        self.dirty.pop_front()
    }

    /// It could not be written, and waits on.
    pub(crate) fn waits_on(&mut self, fid: Fid) {
        self.dirty.push_front(fid);
    }
}

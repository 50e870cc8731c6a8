//! The nodes the kernel knows: number to object, with the kernel's count of references.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use client::Object;

use crate::pages::Pages;

/// Locks that nodes are spread over.
const SHARDS: usize = 64;
/// How long the absence of file capabilities is believed: the kernel asks before writes.
const NO_CAPABILITIES: Duration = Duration::from_secs(1);

#[derive(Clone, Copy)]
struct Node {
    object: Object,
    /// Type bits.
    kind: u32,
    references: u64,
    no_capabilities: Option<Instant>,
    bare: Option<Instant>,
    /// A program of this mount has locked it.
    locked: bool,
    pages: Pages,
}

impl Node {
    fn new(object: Object, kind: u32) -> Node {
        Node {
            object,
            kind,
            references: 0,
            no_capabilities: None,
            bare: None,
            locked: false,
            pages: Pages::NONE,
        }
    }
}

/// The nodes.
pub(crate) struct Inodes {
    shards: Box<[Mutex<HashMap<u64, Node>>]>,
}

impl Inodes {
    /// With the root alone, which is never forgotten.
    pub(crate) fn new(root: Object) -> Inodes {
        let inodes = Inodes { shards: (0..SHARDS).map(|_| Mutex::default()).collect() };
        let root = Node { references: 1, ..Node::new(root, libc::S_IFDIR) };
        inodes.shard(fuse::ROOT).insert(fuse::ROOT, root);
        inodes
    }

    fn shard(&self, node: u64) -> MutexGuard<'_, HashMap<u64, Node>> {
        let at = usize::try_from(node % SHARDS as u64).unwrap_or(0);
        self.shards[at].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a node is.
    pub(crate) fn get(&self, node: u64) -> Option<Object> {
        self.shard(node).get(&node).map(|n| n.object)
    }

    /// The type bits of a node's object; 0 if the kernel does not know it.
    pub(crate) fn kind(&self, node: u64) -> u32 {
        self.shard(node).get(&node).map_or(0, |n| n.kind)
    }

    /// The kernel gets one more reference to an object of this type; returns its node.
    pub(crate) fn add(&self, object: Object, kind: u32) -> u64 {
        let node = object.fid.ino();
        let mut shard = self.shard(node);
        let n = shard.entry(node).or_insert_with(|| Node::new(object, kind));
        if n.object.fid != object.fid {
            // Its change was undone and the number given anew; or it moved to another set.
            *n = Node { references: n.references, ..Node::new(object, kind) };
        }
        n.object = object;
        n.references += 1;
        node
    }

    /// The kernel gives references back; the object and its type bits, if it was the last one.
    pub(crate) fn forget(&self, node: u64, count: u64) -> Option<(Object, u32)> {
        if node == fuse::ROOT {
            return None;
        }
        let mut shard = self.shard(node);
        let n = shard.get_mut(&node)?;
        n.references = n.references.saturating_sub(count);
        if n.references > 0 {
            return None;
        }
        shard.remove(&node).map(|n| (n.object, n.kind))
    }

    /// The object was just made here. Nobody else changes anything before `alone`: so long it has only the extended
    /// attributes that it was born with, and those are the system's. The kernel asks for others at each open: the
    /// modules that guard it keep their marks there.
    pub(crate) fn note_made(&self, node: u64, alone: Option<Instant>) {
        if let Some(n) = self.shard(node).get_mut(&node) {
            (n.no_capabilities, n.bare) = (Some(Instant::now()), alone);
        }
    }

    /// What the kernel keeps of a file's data; `None` if it does not know the node, or it is no file.
    pub(crate) fn pages<T>(&self, node: u64, look: impl FnOnce(&mut Pages) -> T) -> Option<T> {
        let mut shard = self.shard(node);
        shard.get_mut(&node).filter(|n| n.kind == libc::S_IFREG).map(|n| look(&mut n.pages))
    }

    /// A program locks it.
    pub(crate) fn note_locked(&self, node: u64) {
        if let Some(n) = self.shard(node).get_mut(&node) {
            n.locked = true;
        }
    }

    /// Whether a program has locked it since the kernel knows it.
    pub(crate) fn was_locked(&self, node: u64) -> bool {
        self.shard(node).get(&node).is_some_and(|n| n.locked)
    }

    /// The object may have got extended attributes.
    pub(crate) fn note_xattr(&self, node: u64) {
        if let Some(n) = self.shard(node).get_mut(&node) {
            (n.no_capabilities, n.bare) = (None, None);
        }
    }

    /// Whether the object certainly has none but the system's extended attributes.
    pub(crate) fn is_bare(&self, node: u64) -> bool {
        let until = self.shard(node).get(&node).and_then(|n| n.bare);
        until.is_some_and(|t| Instant::now() < t)
    }

    /// The file was seen to have no capabilities (or may have got some).
    pub(crate) fn note_capabilities(&self, node: u64, none: bool) {
        if let Some(n) = self.shard(node).get_mut(&node) {
            n.no_capabilities = none.then(Instant::now);
        }
    }

    /// Whether the file was seen to have no capabilities a moment ago.
    pub(crate) fn has_no_capabilities(&self, node: u64) -> bool {
        let seen = self.shard(node).get(&node).and_then(|n| n.no_capabilities);
        seen.is_some_and(|at| at.elapsed() < NO_CAPABILITIES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ids::{Epoch, Fid, Lsn, SetId};

    const FILE: u32 = libc::S_IFREG;

    fn object(epoch: u32, lsn: u64) -> Object {
        Object { fid: Fid { set: SetId(1), epoch: Epoch(epoch), lsn: Lsn(lsn) }, home: SetId(1) }
    }

    #[test]
    fn nodes_live_as_long_as_the_kernel_refers_to_them() {
        let root = Object { fid: Fid::root(SetId(1)), home: SetId(1) };
        let t = Inodes::new(root);
        let a = t.add(object(1, 5), FILE);
        assert_eq!((a, t.add(object(1, 5), FILE)), ((1 << 44) | 5, a));
        t.forget(a, 1);
        assert_eq!(t.get(a), Some(object(1, 5)));
        assert_eq!((t.kind(a), t.kind(fuse::ROOT), t.kind(77)), (FILE, libc::S_IFDIR, 0));
        t.note_capabilities(a, true);
        assert!(t.has_no_capabilities(a));
        t.note_locked(a);
        assert!(t.was_locked(a) && !t.was_locked(77));
        t.add(object(2, 5), FILE);
        assert!(t.get(a) == Some(object(2, 5)) && !t.has_no_capabilities(a) && !t.was_locked(a));
        t.forget(a, 2);
        assert_eq!(t.get(a), None);
        t.forget(a, 7);
        t.forget(fuse::ROOT, 99);
        assert_eq!(t.get(fuse::ROOT), Some(root));
        assert!(!t.has_no_capabilities(77));
    }

    #[test]
    fn what_was_made_alone_has_no_xattrs_until_it_may_get_one() {
        let t = Inodes::new(Object { fid: Fid::root(SetId(1)), home: SetId(1) });
        let (a, later) = (t.add(object(1, 5), FILE), Instant::now() + Duration::from_secs(600));
        assert!(!t.is_bare(a));
        t.note_made(a, Some(later));
        assert!(t.is_bare(a) && t.has_no_capabilities(a));
        t.note_xattr(a);
        assert!(!t.is_bare(a) && !t.has_no_capabilities(a));
        t.note_made(a, Some(Instant::now()));
        assert!(!t.is_bare(a), "others may change it again");
        t.note_made(a, Some(later));
        t.add(object(2, 5), FILE);
        assert!(!t.is_bare(a), "the number was given to another object");
        t.note_made(a, None);
        assert!(!t.is_bare(a) && t.has_no_capabilities(a), "not alone");
    }
}

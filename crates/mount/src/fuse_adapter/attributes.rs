//! What the kernel is told of attributes, and for how long it may keep them.

use super::FuseAdapter;
use crate::convert;
use crate::pages::{Due, Pages, Version};
use client::{Client, Object};
use fuse::{AttrReply, Entry, Notifier};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use wire::Attr;

/// Threads that wait for the kernel to drop pages, at most: others have to serve what it waits for.
const DROPPING_MAX: usize = 16;

impl FuseAdapter {
    /// The way to the kernel for what it did not ask, of a mount with so many threads.
    pub(crate) fn notify_by(&self, notifier: Notifier, threads: usize) {
        self.notifier.get_or_init(|| (notifier, DROPPING_MAX.min(threads / 2)));
    }

    /// The kernel gets a reference to what the attributes are of.
    pub(super) fn entry(&self, attr: &Attr) -> Entry {
        self.entry_until(attr, client::grant::until())
    }

    /// Likewise; nobody else changes what it leads to before `until`.
    pub(super) fn entry_until(&self, attr: &Attr, until: Option<Instant>) -> Entry {
        let object = Object::from(attr);
        let until = self.kept_until(object, until);
        let node = self.inodes.add(object, attr.mode & libc::S_IFMT);
        let keeps = self.inodes.pages(node, |p| p.entry(attr.into(), until)).unwrap_or(true);
        let granted = FuseAdapter::granted(until);
        Entry {
            node,
            generation: attr.fid.epoch.0.into(),
            attr: convert::attr(attr),
            entry_timeout: self.entry_timeout.max(granted),
            attr_timeout: self.attr_timeout.max(if keeps { granted } else { Duration::ZERO }),
        }
    }

    /// Until when the kernel may keep attributes without a look at the data: not at all those of a striped file, whose data
    /// changes before they do.
    fn kept_until(&self, object: Object, until: Option<Instant>) -> Option<Instant> {
        until.filter(|_| !self.client.is_striped(object))
    }

    /// A program has read or written a file. If the file turns out to be striped the kernel must not go by the attributes that
    /// it was told before ([`FuseAdapter::kept_until`]).
    pub(super) fn note_if_striped(&self, node: u64, object: Object) {
        if !self.client.is_striped(object) || self.inodes.pages(node, |p| p.is_told_striped()).unwrap_or(true)
        {
            return;
        }
        // Without pages, which this very read may hold.
        if self.notifier.get().is_some_and(|(notifier, _)| notifier.inval_inode(node, -1, 0).is_ok()) {
            self.inodes.pages(node, Pages::told_striped);
        }
    }

    /// For how long the kernel may keep what holds until then. It counts in ticks and rounds up: that much less.
    pub(super) fn granted(until: Option<Instant>) -> Duration {
        const TICKS: Duration = Duration::from_millis(20);
        until.map_or(Duration::ZERO, |u| u.saturating_duration_since(Instant::now() + TICKS))
    }

    /// What the kernel is told of a node's attributes, which hold until then, once `due` is done.
    fn attr_reply(
        &self,
        node: u64,
        attr: &Attr,
        (version, until): (Version, Option<Instant>),
        due: Due,
    ) -> AttrReply {
        let granted = match due {
            Due::Nothing => FuseAdapter::granted(until),
            Due::Drop if self.drop_pages(node) => {
                self.inodes.pages(node, |p| p.dropped(version, until));
                FuseAdapter::granted(until)
            }
            Due::Drop | Due::Resized => Duration::ZERO,
            Due::Wait(at) => {
                fuse::wait::block_on(|| {
                    std::thread::sleep(at.saturating_duration_since(Instant::now()));
                });
                FuseAdapter::granted(until)
            }
        };
        AttrReply { attr: convert::attr(attr), timeout: self.attr_timeout.max(granted) }
    }

    /// Has the kernel drop a file's data. It waits for reads and writes of the file, and other threads have to serve these: so
    /// not if too many wait already.
    pub(super) fn drop_pages(&self, node: u64) -> bool {
        let Some((notifier, most)) = self.notifier.get() else { return false };
        let waiting = self.dropping.fetch_add(1, Ordering::Relaxed);
        let dropped = waiting < *most && notifier.inval_inode(node, 0, 0).is_ok();
        self.dropping.fetch_sub(1, Ordering::Relaxed);
        dropped
    }

    /// What the kernel is told that asks for a node's attributes.
    pub(super) fn look(&self, client: &Client, node: u64, object: Object) -> Result<AttrReply, wire::Errno> {
        // Without pages it does not matter how new they are.
        let opened = || self.inodes.pages(node, |p| p.is_opened()).unwrap_or(false);
        let (attr, data) = if client.is_striped(object) && opened() {
            client.getattr_with_data(object)?
        } else {
            (client.getattr(object)?, 0)
        };
        let (until, now, version) = (client::grant::until(), Instant::now(), Version::new(&attr, data));
        let until = if data == 0 { self.kept_until(object, until) } else { until };
        let due = self.inodes.pages(node, |p| p.look(version, until, now)).unwrap_or(Due::Nothing);
        Ok(self.attr_reply(node, &attr, (version, until), due))
    }

    /// What it is told that has changed them. `cut`: the length, too.
    pub(super) fn changed_reply(&self, node: u64, attr: &Attr, cut: bool) -> AttrReply {
        let (due, until) = self.changed(node, attr, cut);
        self.attr_reply(node, attr, (attr.into(), until), due)
    }

    /// A program of this mount has changed a file. Until when the kernel may keep the attributes comes with it.
    pub(super) fn changed(&self, node: u64, attr: &Attr, cut: bool) -> (Due, Option<Instant>) {
        let (until, now) = (self.kept_until(Object::from(attr), client::grant::until()), Instant::now());
        let due = self.inodes.pages(node, |p| p.changed(attr.into(), until, now, cut));
        (due.unwrap_or(Due::Nothing), until)
    }
}

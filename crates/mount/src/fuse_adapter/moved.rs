//! Directories that other mounts have renamed ([`crate::places`]).

use super::FuseAdapter;
use crate::places::Place;
use fuse::{Entry, Notifier};
use std::ffi::OsStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

/// The kernel forgets an entry when nobody holds its directory's lock. Whoever asked may hold it, and waits for the answer: he is
/// told ESTALE once, lets go, and asks again.
const FORGETS_WITHIN: Duration = Duration::from_millis(50);

impl FuseAdapter {
    /// A name was looked up: if it leads to a directory that the kernel knows elsewhere it has to forget that first.
    pub(super) fn forget_other_places(&self, entry: &Entry, parent: u64, name: &OsStr) {
        if entry.attr.mode & libc::S_IFMT == libc::S_IFDIR {
            let elsewhere = self.places.found(entry.node, parent, name);
            if let (Some((notifier, most)), false) = (self.notifier.get(), elsewhere.is_empty()) {
                forget(notifier, (&self.forgetting, *most), elsewhere);
            }
        }
    }
}

/// Has the kernel forget entries, and waits a moment for it.
fn forget(notifier: &Notifier, (forgetting, most): (&Arc<AtomicUsize>, usize), places: Vec<Place>) {
    let (notifier, under_way) = (notifier.clone(), Arc::clone(forgetting));
    if under_way.fetch_add(1, Ordering::Relaxed) >= most {
        under_way.fetch_sub(1, Ordering::Relaxed);
        return;
    }
    let (done, ended) = mpsc::channel();
    // It may wait for longer than this thread does.
    std::thread::spawn(move || {
        for (parent, name) in places {
            // There may be none, and on an error the program is told ESTALE.
            let _forgotten = notifier.inval_entry(parent, &name);
        }
        under_way.fetch_sub(1, Ordering::Relaxed);
        let _nobody_waits = done.send(());
    });
    fuse::wait::block_on(|| {
        let _in_time = ended.recv_timeout(FORGETS_WITHIN);
    });
}

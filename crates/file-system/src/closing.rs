//! Files are closed by a thread of their own where that may take long.
//!
//! The kernel frees what a file without a name holds in the last `close`, in the thread that closes: seconds for a file of
//! some GiB, or of many extents, if the disk is told of each one (`discard`). XFS frees in the background for the same reason
//! ("inodegc").

use crate::File;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, LazyLock};

/// So many wait at most: each keeps a descriptor. Any more are closed by who is done with them.
const WAITING: usize = 256;

static QUEUE: LazyLock<Option<SyncSender<Arc<File>>>> = LazyLock::new(start);
static LEFT: AtomicUsize = AtomicUsize::new(0);

fn start() -> Option<SyncSender<Arc<File>>> {
    let (queue, files) = sync_channel(WAITING);
    let named = std::thread::Builder::new().name("closes files".into());
    named.spawn(move || close_all(&files)).ok().map(|_| queue)
}

fn close_all(files: &Receiver<Arc<File>>) {
    for file in files {
        drop(file);
        LEFT.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Closes the file, if nobody else has it, without waiting for it.
pub fn close_elsewhere(file: Arc<File>) {
    if !file.is_on_host() {
        return;
    }
    let Some(queue) = &*QUEUE else { return };
    LEFT.fetch_add(1, Ordering::AcqRel);
    if queue.try_send(file).is_err() {
        LEFT.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Whether files are being closed: there may soon be more room.
pub fn is_closing() -> bool {
    LEFT.load(Ordering::Acquire) > 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FileSystem, Host, S_IFREG};
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;
    use std::time::{Duration, Instant};

    /// Whether this process has the file open.
    fn is_open(ino: u64) -> bool {
        let all = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
        let mut inodes = all.filter_map(|fd| std::fs::metadata(fd.path()).ok()).map(|meta| meta.ino());
        inodes.any(|found| found == ino)
    }

    #[test]
    fn a_file_without_a_name_is_closed_and_room_is_asked_for_until_it_is()
    -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let path: &Path = folder.path();
        std::fs::write(path.join("f"), vec![1; 1 << 20])?;
        let ino = std::fs::metadata(path.join("f"))?.ino();
        let dir = Host.open_dir(path).map_err(|e| format!("{e:?}"))?;
        let file = dir.open_at(b"f", S_IFREG).map_err(|e| format!("{e:?}"))?;
        dir.unlink(b"f").map_err(|e| format!("{e:?}"))?;
        assert!(is_open(ino));
        close_elsewhere(Arc::new(file));
        let begun = Instant::now();
        while is_open(ino) || is_closing() {
            assert!(begun.elapsed() < Duration::from_secs(20), "it stays open");
            std::thread::yield_now();
        }
        Ok(())
    }
}

//! Listing a directory, as the kernel goes through it piece by piece.

use std::time::Instant;

use fuse::{Errno, OpenFlags, Opened, ROOT, Request};
use wire::reply::DirEntry;

use super::{FuseAdapter, Reply};
use crate::convert::errno;
use crate::listing::Piece;

/// Where listings go on after "." and "..": cookies of servers are hashes, so far above.
const DOT: u64 = 1;
const DOT_DOT: u64 = 2;
/// The inode number of ".." where it is not known; programs that care use stat.
const UNKNOWN: u64 = 0xffff_ffff;

pub(super) struct ListFrom {
    pub(super) offset: u64,
    pub(super) plus: bool,
}

pub(super) enum Listed<'a> {
    Dot {
        name: &'static str,
        ino: u64,
        offset: u64,
    },
    /// And until when its attributes hold.
    Entry(&'a DirEntry, Option<Instant>),
}

impl FuseAdapter {
    /// How directories are open. The kernel keeps what it is told of their names; while the attributes that came with them hold it
    /// lists again from that. Later it would ask for the attributes of each name by itself, where one question has them all.
    pub(super) fn opened_directory(&self, node: u64) -> Opened {
        let keep = if self.listings.holds(node) { OpenFlags::KEEP_CACHE } else { OpenFlags::empty() };
        Opened { fh: 0, flags: OpenFlags::CACHE_DIR | keep }
    }

    /// Hands entries to `push` until it refuses one.
    pub(super) fn list(
        &self,
        req: &Request<'_>,
        node: u64,
        from: &ListFrom,
        mut push: impl FnMut(Listed<'_>) -> bool,
    ) -> Reply<()> {
        let (client, directory) = (self.client(req)?, self.object(node)?);
        let ino = if node == ROOT { directory.fid.ino() } else { node };
        let mut at = from.offset;
        if at == 0 {
            self.listings.begin(node);
        }
        if at == 0 {
            if !push(Listed::Dot { name: ".", ino, offset: DOT }) {
                return Ok(());
            }
            at = DOT;
        }
        if at == DOT {
            let up = if node == ROOT { ino } else { UNKNOWN };
            if !push(Listed::Dot { name: "..", ino: up, offset: DOT_DOT }) {
                return Ok(());
            }
            at = DOT_DOT;
        }
        let cookie = if at == DOT_DOT { 0 } else { at };
        let mut piece = match self.listings.take(node, at, from.plus) {
            Some(piece) => piece,
            None => {
                let asked = Instant::now();
                let page = client.read_dir(directory, cookie, from.plus).map_err(errno)?;
                if page.entries.is_empty() && !page.end {
                    tracing::error!(fid = %directory.fid, "an empty page in the middle of a directory");
                    return Err(Errno::EIO);
                }
                Piece::new(page, from.plus, asked)
            }
        };
        self.listings.ask_ahead(&self.client, (node, directory), &mut piece);
        piece.leave_out_changed(client, directory);
        self.listings.told(node, piece.until.filter(|_| from.plus), from.offset == 0);
        while let Some(entry) = piece.entries.front() {
            if !push(Listed::Entry(entry, piece.until)) {
                break;
            }
            at = entry.cookie;
            piece.entries.pop_front();
        }
        if !piece.entries.is_empty() || piece.end {
            self.listings.keep(node, at, piece);
        }
        Ok(())
    }
}

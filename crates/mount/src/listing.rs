//! Pieces of directory listings that came with one answer and wait for the kernel to ask on; and until when what the kernel was told
//! of a directory holds.
//!
//! What comes after a page is asked for while the kernel is told the page itself, so that whoever reads the directory does not wait for
//! each: as readahead of files does.
//!
//! Always true: a piece is used at most once, only to go on where it begins, and never if its directory was listed
//! anew from the start since it was fetched: a new listing must show what was there when it began.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use client::{Client, Object, PAGE_AGE, Page};
use wire::reply::DirEntry;

/// Pieces kept at a time.
const PIECES: usize = 64;
/// Pages that are asked for ahead at a time.
const AHEAD: usize = 4;
/// A page that was asked for ahead is waited for so long: a page that takes longer is asked for by whoever waits, who can be interrupted.
const LONGEST_WAIT: Duration = Duration::from_millis(100);
/// Directories of which it is known until when their listings hold.
const LISTED: usize = 4096;
/// A listing that holds no longer than this is as good as none: whoever reads it wants the attributes afterwards.
const SHORT: Duration = Duration::from_millis(50);

/// A page, or the rest of one.
pub(crate) struct Piece {
    pub entries: VecDeque<DirEntry>,
    /// Nothing comes after it.
    pub end: bool,
    /// With attributes.
    pub plus: bool,
    /// What comes after it was asked for, if anything does.
    followed: bool,
    fetched: Instant,
    /// Until when the attributes hold.
    pub until: Option<Instant>,
}

impl Piece {
    /// A page, asked for at `asked`.
    pub(crate) fn new(page: Page, plus: bool, asked: Instant) -> Piece {
        let Page { entries, end } = page;
        let until = client::grant::until();
        Piece { entries: entries.into(), end, plus, followed: end, fetched: asked, until }
    }

    /// What this mount has changed since it was asked for the kernel has to ask for by itself.
    pub(crate) fn leave_out_changed(&mut self, client: &Client, directory: Object) {
        client.leave_out_changed(directory.fid, self.fetched, &mut self.entries);
    }
}

#[derive(Default)]
struct State {
    /// By node and the cookie that they begin after.
    pieces: HashMap<(u64, u64), Piece>,
    /// Those that are being asked for ahead.
    asked: HashSet<(u64, u64)>,
    /// When directories were last listed from the start; only those of the last [`PAGE_AGE`].
    begun: HashMap<u64, Instant>,
    /// Until when all that the last listing of a directory told holds, attributes too.
    holds: HashMap<u64, Instant>,
}

/// The pieces of all directories.
#[derive(Default)]
pub(crate) struct Listings {
    state: Mutex<State>,
    /// A page that was asked for ahead is here, or does not come.
    came: Condvar,
}

impl Listings {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A listing begins.
    pub(crate) fn begin(&self, node: u64) {
        let mut state = self.lock();
        state.tidy();
        state.pieces.retain(|(n, _), _| *n != node);
        state.begun.insert(node, Instant::now());
        state.holds.remove(&node);
    }

    /// The kernel was told something of a directory that holds until then, if it does. `first`: with it a listing begins.
    pub(crate) fn told(&self, node: u64, until: Option<Instant>, first: bool) {
        let mut state = self.lock();
        let before = state.holds.get(&node).copied();
        let Some(until) = until.filter(|_| first || before.is_some()) else {
            state.holds.remove(&node);
            return;
        };
        if state.holds.len() >= LISTED {
            state.holds.retain(|_, until| *until > Instant::now());
        }
        if state.holds.len() < LISTED || before.is_some() {
            state.holds.insert(node, before.map_or(until, |b| b.min(until)));
        }
    }

    /// Whether what was told of a directory in its last listing holds for a while.
    pub(crate) fn holds(&self, node: u64) -> bool {
        let soon = Instant::now() + SHORT;
        self.lock().holds.get(&node).is_some_and(|until| *until > soon)
    }

    /// What comes after `cookie`, if it is here and fresh, or comes soon.
    pub(crate) fn take(&self, node: u64, cookie: u64, plus: bool) -> Option<Piece> {
        let (mut state, key) = (self.lock(), (node, cookie));
        if state.asked.contains(&key) {
            drop(state);
            state = fuse::wait::block_on(|| {
                let waited =
                    self.came.wait_timeout_while(self.lock(), LONGEST_WAIT, |s| s.asked.contains(&key));
                waited.unwrap_or_else(PoisonError::into_inner).0
            });
        }
        let piece = state.pieces.remove(&key)?;
        (piece.fetched.elapsed() < PAGE_AGE && (piece.plus || !plus)).then_some(piece)
    }

    /// Asks for what comes after a piece, if nobody has.
    pub(crate) fn ask_ahead(
        self: &Arc<Listings>,
        client: &Arc<Client>,
        node: (u64, Object),
        piece: &mut Piece,
    ) {
        let (Some(last), false) = (piece.entries.back(), piece.followed) else { return };
        piece.followed = true;
        let ((node, directory), cookie, plus) = (node, last.cookie, piece.plus);
        let key = (node, cookie);
        let mut state = self.lock();
        if state.asked.len() >= AHEAD || !state.asked.insert(key) {
            return;
        }
        drop(state);
        let listings = Arc::clone(self);
        let came = move |asked, page: Result<Page, _>| {
            // Whoever needs it asks again, and is told why it does not come.
            let piece = page.ok().filter(|page| !page.entries.is_empty() || page.end);
            listings.came(key, piece.map(|page| Piece::new(page, plus, asked)));
        };
        if client.read_dir_aside(directory, cookie, plus, came).is_err() {
            self.came(key, None);
        }
    }

    fn came(&self, key: (u64, u64), piece: Option<Piece>) {
        if let Some(piece) = piece {
            self.keep(key.0, key.1, piece);
        }
        self.lock().asked.remove(&key);
        self.came.notify_all();
    }

    /// Keeps what did not fit into an answer.
    pub(crate) fn keep(&self, node: u64, cookie: u64, piece: Piece) {
        let mut state = self.lock();
        if state.begun.get(&node).is_some_and(|begun| *begun > piece.fetched) {
            return;
        }
        if state.pieces.len() >= PIECES {
            state.tidy();
        }
        if state.pieces.len() >= PIECES {
            let oldest = state.pieces.iter().min_by_key(|(_, p)| p.fetched).map(|(k, _)| *k);
            oldest.and_then(|k| state.pieces.remove(&k));
        }
        state.pieces.insert((node, cookie), piece);
    }
}

impl State {
    fn tidy(&mut self) {
        self.pieces.retain(|_, p| p.fetched.elapsed() < PAGE_AGE);
        // A piece older than this is used no more, so what began before does not matter.
        self.begun.retain(|_, at| at.elapsed() < PAGE_AGE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(asked: Instant, plus: bool) -> Piece {
        Piece::new(Page { entries: Vec::new(), end: true }, plus, asked)
    }

    /// A page that is asked for ahead is waited for, and what does not come is asked for by whoever needs it.
    #[test]
    fn a_page_asked_for_ahead_is_waited_for() {
        let l = Arc::new(Listings::default());
        l.begin(5);
        l.lock().asked.extend([(5, 7), (5, 8)]);
        let (other, asked) = (Arc::clone(&l), Instant::now());
        let comes = std::thread::spawn(move || {
            other.came((5, 7), Some(piece(asked, true)));
            other.came((5, 8), None);
        });
        assert!(l.take(5, 7, true).is_some());
        assert!(l.take(5, 8, true).is_none());
        comes.join().unwrap();
        l.lock().asked.insert((5, 9));
        assert!(l.take(5, 9, true).is_none(), "not for ever");
    }

    /// A listing holds as long as all that was told of it, from its beginning on.
    #[test]
    fn a_listing_holds_as_long_as_each_part() {
        let l = Listings::default();
        let after = |ms| Some(Instant::now() + Duration::from_millis(ms));
        assert!(!l.holds(5));
        l.told(5, after(9_000), true);
        assert!(l.holds(5) && !l.holds(6));
        l.told(5, after(8_000), false);
        assert!(l.holds(5));
        l.told(5, after(10), false);
        assert!(!l.holds(5), "not for long");
        l.told(5, after(9_000), false);
        assert!(!l.holds(5), "a part holds no longer");
        l.begin(5);
        l.told(5, after(9_000), true);
        assert!(l.holds(5));
        l.told(5, None, false);
        l.told(5, after(9_000), false);
        assert!(!l.holds(5), "names without attributes were among it");
        (0..10_000).for_each(|node| l.told(node, after(9_000), true));
        assert!(l.lock().holds.len() <= LISTED);
    }

    #[test]
    fn pieces_serve_their_own_listing_only() {
        let l = Listings::default();
        let now = Instant::now;
        l.begin(5);
        l.keep(5, 100, piece(now(), true));
        l.keep(6, 100, piece(now(), false));
        assert!(l.take(5, 99, true).is_none());
        assert!(l.take(5, 100, false).is_some(), "attributes are left out");
        assert!(l.take(5, 100, true).is_none(), "used once");
        assert!(l.take(6, 100, true).is_none(), "attributes are missing");
        let asked = now();
        l.keep(5, 7, piece(asked, true));
        l.begin(5);
        assert!(l.take(5, 7, true).is_none(), "a new listing fetches for itself");
        l.keep(5, 8, piece(asked, true));
        assert!(l.take(5, 8, true).is_none(), "also what an older one fetched before");
        for i in 0..1000 {
            l.keep(9, i, piece(now(), true));
        }
        assert!(l.lock().pieces.len() <= PIECES);
        assert!(l.take(9, 999, true).is_some());
    }
}

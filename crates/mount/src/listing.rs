//! Pieces of directory listings that came with one answer and wait for the kernel to ask on.
//!
//! Always true: a piece is used at most once, only to go on where it begins, and never if its directory was listed
//! anew from the start since it was fetched: a new listing must show what was there when it began.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use wire::reply::DirEntry;

/// Pieces kept at a time.
const PIECES: usize = 64;
/// Older ones are fetched anew.
const AGE: Duration = Duration::from_secs(2);

/// The rest of a page.
pub(crate) struct Piece {
    pub entries: VecDeque<DirEntry>,
    /// Nothing comes after it.
    pub end: bool,
    /// With attributes.
    pub plus: bool,
    fetched: Instant,
    /// Until when the attributes hold.
    pub until: Option<Instant>,
}

impl Piece {
    /// A page, asked for at `asked`.
    pub(crate) fn new(entries: Vec<DirEntry>, end: bool, plus: bool, asked: Instant) -> Piece {
        Piece { entries: entries.into(), end, plus, fetched: asked, until: client::grant::until() }
    }
}

#[derive(Default)]
struct State {
    /// By node and the cookie that they begin after.
    pieces: HashMap<(u64, u64), Piece>,
    /// When directories were last listed from the start; only those of the last [`AGE`].
    begun: HashMap<u64, Instant>,
}

/// The pieces of all directories.
#[derive(Default)]
pub(crate) struct Listings {
    state: Mutex<State>,
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
    }

    /// What comes after `cookie`, if it is here and fresh.
    pub(crate) fn take(&self, node: u64, cookie: u64, plus: bool) -> Option<Piece> {
        let mut state = self.lock();
        let piece = state.pieces.remove(&(node, cookie))?;
        (piece.fetched.elapsed() < AGE && (piece.plus || !plus)).then_some(piece)
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
        self.pieces.retain(|_, p| p.fetched.elapsed() < AGE);
        // A piece older than this is used no more, so what began before does not matter.
        self.begun.retain(|_, at| at.elapsed() < AGE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(asked: Instant, plus: bool) -> Piece {
        Piece::new(Vec::new(), true, plus, asked)
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

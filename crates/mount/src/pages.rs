//! What the kernel keeps of a file's data, and when it has to drop it.
//!
//! The kernel asks for a file's attributes before it reads from its pages, and drops them if size or modification time are
//! others than those it knows. It notes the new attributes first and drops the pages a moment later, so a second program
//! that reads at that moment is given old data. After a change of attributes (`fchmod`) it drops nothing at all.
//! So pages are dropped from here before such an answer is given.
//!
//! Always true: while a file's size stays as it is, its pages in the kernel are at least as new as [`Pages::seen`].

use std::time::{Duration, Instant};

use ids::Time;
use wire::Attr;

/// For so long after it was told another size the kernel may have pages of before. When it is told to drop pages it takes no
/// notice of attributes that were asked for before that, and would go on with the old size: it drops these by itself.
const DROPS_WITHIN: Duration = Duration::from_millis(2);

/// By what the kernel tells data from other data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Version {
    mtime: Time,
    size: u64,
    /// What tells data from other data of the same time; 0: nothing is known of that, or there is none.
    data: u64,
}

impl Version {
    /// See [`client::Client::getattr_with_data`].
    pub(crate) fn new(attr: &Attr, data: u64) -> Version {
        Version { mtime: attr.mtime, size: attr.size, data }
    }
}

impl From<&Attr> for Version {
    fn from(attr: &Attr) -> Version {
        Version::new(attr, 0)
    }
}

/// What is to be done before the kernel hears of attributes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Due {
    /// Nothing.
    Nothing,
    /// Its pages may be older: they are to be dropped, and [`Pages::dropped`] says so afterwards.
    Drop,
    /// The kernel drops its pages when it hears of it, and may keep the attributes for no time.
    Resized,
    /// Another program is about to drop them until then.
    Wait(Instant),
}

/// Of one file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pages {
    /// `None`: nobody knows.
    seen: Option<Version>,
    /// Nobody else changes the file before that.
    alone_until: Option<Instant>,
    dropping_until: Option<Instant>,
    /// A program has opened it: there may be pages.
    opened: bool,
    /// The kernel keeps no attributes from before it was known that the file is striped.
    striped: bool,
}

impl Pages {
    /// Of a file that the kernel did not know before.
    pub(crate) const NONE: Pages =
        Pages { seen: None, alone_until: None, dropping_until: None, opened: false, striped: false };

    pub(crate) fn open(&mut self) {
        self.opened = true;
    }

    pub(crate) fn is_opened(&self) -> bool {
        self.opened
    }

    pub(crate) fn is_told_striped(&self) -> bool {
        self.striped
    }

    pub(crate) fn told_striped(&mut self) {
        self.striped = true;
    }

    /// Whether the kernel may keep attributes of this version for some time: not if it has to ask before it reads. Nobody else
    /// changes the file before `until`.
    pub(crate) fn entry(&mut self, version: Version, until: Option<Instant>) -> bool {
        if !self.opened || self.seen == Some(version) {
            (self.seen, self.alone_until) = (Some(version), until);
        }
        self.seen == Some(version) && self.dropping_until.is_none()
    }

    /// The kernel asked for attributes, and these are they.
    pub(crate) fn look(&mut self, version: Version, until: Option<Instant>, now: Instant) -> Due {
        self.dropping_until = self.dropping_until.filter(|at| now < *at);
        if self.entry(version, until) {
            return Due::Nothing;
        }
        match (self.seen, self.dropping_until) {
            (Some(seen), Some(at)) if seen == version => Due::Wait(at),
            (Some(seen), _) if seen.size != version.size => {
                (self.seen, self.alone_until, self.dropping_until) =
                    (Some(version), None, Some(now + DROPS_WITHIN));
                Due::Resized
            }
            _ => Due::Drop,
        }
    }

    /// The kernel has dropped its pages since the file had this version.
    pub(crate) fn dropped(&mut self, version: Version, until: Option<Instant>) {
        (self.seen, self.alone_until) = (Some(version), until);
    }

    /// A program of this mount has written, or changed the attributes. `cut`: the length, for which the kernel drops what it
    /// has to by itself, but only of what the program cut.
    pub(crate) fn changed(
        &mut self,
        version: Version,
        until: Option<Instant>,
        now: Instant,
        cut: bool,
    ) -> Due {
        if !self.opened || self.alone_until.is_some_and(|at| now < at) {
            (self.seen, self.alone_until) = (Some(version), until);
            return Due::Nothing;
        }
        if cut {
            self.seen = None;
            return Due::Nothing;
        }
        Due::Drop
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(n: i64, size: u64) -> Version {
        Version { mtime: Time { sec: n, nsec: 0 }, size, data: 0 }
    }

    fn opened(v: Version, until: Option<Instant>) -> Pages {
        let mut pages = Pages::NONE;
        assert!(pages.entry(v, until), "the kernel has no pages yet");
        pages.open();
        pages
    }

    #[test]
    fn pages_are_dropped_before_the_kernel_hears_of_another_time() {
        let now = Instant::now();
        let mut pages = opened(version(1, 8), None);
        assert_eq!(pages.look(version(1, 8), None, now), Due::Nothing);
        assert!(!pages.entry(version(2, 8), None), "it has to ask before it reads");
        for _ in 0..2 {
            assert_eq!(pages.look(version(2, 8), None, now), Due::Drop, "until it is done");
        }
        pages.dropped(version(2, 8), None);
        assert_eq!(pages.look(version(2, 8), None, now), Due::Nothing);
    }

    #[test]
    fn pages_of_a_striped_file_are_dropped_when_a_piece_has_changed() {
        let now = Instant::now();
        let mut pages = opened(version(1, 8), None);
        let pieces = |data| Version { data, ..version(1, 8) };
        assert_eq!(pages.look(pieces(5), None, now), Due::Drop, "nobody knows how new they are");
        pages.dropped(pieces(5), None);
        assert_eq!(pages.look(pieces(5), None, now), Due::Nothing);
        assert!(!pages.entry(version(1, 8), None), "it has to ask before it reads");
        assert_eq!(pages.look(pieces(6), None, now), Due::Drop, "another time of the file comes later");
    }

    #[test]
    fn others_wait_until_another_size_is_known() {
        let now = Instant::now();
        let mut pages = opened(version(1, 8), None);
        assert_eq!(pages.look(version(2, 9), None, now), Due::Resized);
        assert_eq!(pages.look(version(2, 9), None, now), Due::Wait(now + DROPS_WITHIN));
        assert!(!pages.entry(version(2, 9), None));
        assert_eq!(pages.look(version(3, 9), None, now), Due::Drop);
        assert_eq!(pages.look(version(2, 9), None, now + DROPS_WITHIN), Due::Nothing);
    }

    #[test]
    fn what_nobody_else_can_have_changed_stays() {
        let now = Instant::now();
        let later = Some(now + DROPS_WITHIN);
        let mut pages = opened(version(1, 8), later);
        assert_eq!(pages.changed(version(2, 8), later, now, false), Due::Nothing);
        assert_eq!(pages.look(version(2, 8), later, now), Due::Nothing);
        assert_eq!(pages.changed(version(3, 8), None, now + DROPS_WITHIN, false), Due::Drop);
        assert_eq!(pages.changed(version(3, 8), None, now + DROPS_WITHIN, true), Due::Nothing);
        assert_eq!(
            pages.look(version(3, 8), None, now + DROPS_WITHIN),
            Due::Drop,
            "cut to the length that it had"
        );
    }

    #[test]
    fn a_file_that_nobody_has_opened_has_no_pages() {
        let now = Instant::now();
        let mut pages = Pages::NONE;
        for n in 1..4 {
            assert_eq!(pages.look(version(n, 8), None, now), Due::Nothing);
            assert_eq!(pages.changed(version(n, 9), None, now, false), Due::Nothing);
        }
    }
}

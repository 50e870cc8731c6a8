//! The order of directories: by a hash of the name, the same on every brick, so that a listing survives a change of
//! primary. Listings are kept, up to a bound of names, and kept up to date.
//!
//! The names of a large directory are read on another thread ([`ListJob`]). What changes meanwhile is noted, and is laid
//! over what was read: of a name that changed nothing that the thread saw counts.

use crate::far_names::each_candidate;
use crate::locks::locked;
use crate::lru::Lru;
use file_system::File;
use ids::Fid;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use wire::name::RESERVED;
use wire::{Errno, Name};

/// The place of a name in its directory: 63 bits, never 0.
pub(crate) fn cookie(name: &[u8]) -> u64 {
    (xxhash_rust::xxh3::xxh3_64(name) >> 1).max(3)
}

/// The position in its directory's order that a name has on every brick.
pub fn name_order(name: &Name) -> u64 {
    cookie(name.as_bytes())
}

/// A name as it was read: its place, where its bytes are, and its type.
struct Slot {
    cookie: u64,
    at: usize,
    len: u8,
    kind: u8,
}

/// Names as they were read, in order: two pieces of memory, however many there are.
#[derive(Default)]
pub(crate) struct Names {
    slots: Vec<Slot>,
    bytes: Vec<u8>,
}

impl Names {
    fn push(&mut self, name: &[u8], kind: u32) {
        let len = u8::try_from(name.len()).unwrap_or(u8::MAX);
        let kind = u8::try_from(kind >> 12).unwrap_or(0);
        self.slots.push(Slot { cookie: cookie(name), at: self.bytes.len(), len, kind });
        self.bytes.extend_from_slice(name);
    }

    fn sort(&mut self) {
        let bytes = &self.bytes;
        self.slots.sort_unstable_by(|a, b| (a.cookie, name_of(bytes, a)).cmp(&(b.cookie, name_of(bytes, b))));
        // What lies in a folder of names and in the copy of its directory is one name.
        self.slots.dedup_by(|a, b| a.cookie == b.cookie && name_of(bytes, a) == name_of(bytes, b));
    }

    /// The names from this place on.
    fn from(&self, cookie: u64) -> impl Iterator<Item = (u64, &[u8], u32)> {
        let start = self.slots.partition_point(|s| s.cookie < cookie);
        let slots = self.slots.get(start..).unwrap_or_default();
        slots.iter().map(|s| (s.cookie, name_of(&self.bytes, s), u32::from(s.kind) << 12))
    }

    fn contains(&self, name: &[u8]) -> bool {
        let at = cookie(name);
        self.from(at).take_while(|(c, ..)| *c == at).any(|(_, n, _)| n == name)
    }
}

fn name_of<'a>(bytes: &'a [u8], slot: &Slot) -> &'a [u8] {
    bytes.get(slot.at..slot.at + usize::from(slot.len)).unwrap_or_default()
}

/// Names that came, with their type bits, and names that went (`None`).
type Changes = BTreeMap<(u64, Box<[u8]>), Option<u32>>;
/// Changes to one listing: beyond it, it is made anew when it is wanted.
const MAX_CHANGES: usize = 32 << 10;

/// A name's place, the name, and its type bits.
type Listed = (u64, Box<[u8]>, u32);

/// A directory's names, each with the type bits that the file system gave (0 if it did not say).
#[derive(Default)]
pub(crate) struct Listing {
    read: Names,
    changes: Changes,
    len: usize,
    used: u32,
}

impl Listing {
    pub(crate) fn new(read: Names) -> Listing {
        Listing { len: read.slots.len(), read, changes: Changes::new(), used: 0 }
    }

    fn contains(&self, key: &(u64, Box<[u8]>)) -> bool {
        self.changes.get(key).map_or_else(|| self.read.contains(&key.1), Option::is_some)
    }

    /// A name came (with its type bits) or went.
    fn change(&mut self, key: (u64, Box<[u8]>), kind: Option<u32>) {
        match (self.contains(&key), kind.is_some()) {
            (false, true) => self.len += 1,
            (true, false) => self.len -= 1,
            _ => {}
        }
        self.changes.insert(key, kind);
    }

    /// All names after a place, in order.
    fn all_after(&self, after: u64) -> impl Iterator<Item = (u64, &[u8], u32)> {
        let start = after.saturating_add(1);
        let mut read = self.read.from(start).filter(|(c, n, _)| !self.is_changed(*c, n)).peekable();
        let changed = self.changes.range((start, Box::default())..);
        let mut came = changed.filter_map(|((c, n), kind)| kind.map(|k| (*c, &n[..], k))).peekable();
        std::iter::from_fn(move || match (read.peek(), came.peek()) {
            (Some(a), Some(b)) if (a.0, a.1) > (b.0, b.1) => came.next(),
            (None, _) => came.next(),
            _ => read.next(),
        })
    }

    fn is_changed(&self, cookie: u64, name: &[u8]) -> bool {
        !self.changes.is_empty() && self.changes.contains_key(&(cookie, name.into()))
    }

    /// The names after `after` whose entries take about `bytes`, each of them `fixed` beside its name: one at least, if there
    /// is one; and whether they are the last. Names of one cookie stay together, whatever their number.
    pub(crate) fn page(&self, after: u64, fixed: usize, bytes: usize) -> (Vec<Listed>, bool) {
        let mut out: Vec<Listed> = Vec::new();
        let mut room = bytes;
        for (cookie, name, kind) in self.all_after(after) {
            if room == 0 && out.last().is_some_and(|l| l.0 != cookie) {
                return (out, false);
            }
            room = room.saturating_sub(fixed + name.len());
            out.push((cookie, name.into(), kind));
        }
        (out, true)
    }

    /// Names after `after` up to `upto`.
    pub(crate) fn between(&self, after: u64, upto: u64) -> Vec<Box<[u8]>> {
        self.all_after(after).take_while(|(c, ..)| *c <= upto).map(|(_, name, _)| name.into()).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

/// What a thread read, when it has.
type Outcome = Arc<Mutex<Option<Result<Names, Errno>>>>;

/// What the names of a directory are read from.
pub(crate) struct NamesOf {
    pub(crate) dir: Arc<File>,
    /// The directory is a folder of names, and this the copy in which some of them lie, as files.
    pub(crate) copy: Option<Arc<File>>,
    /// The one of the two that is in the tree is the brick's root, whose folder `.mortar` is no name.
    pub(crate) root: bool,
}

impl NamesOf {
    /// Reads them.
    pub(crate) fn read(&self) -> Result<Names, Errno> {
        let mut names = Names::default();
        self.dir.list(&mut |name, kind, _| {
            if !(self.root && name == RESERVED) {
                names.push(name, kind);
            }
            true
        })?;
        if let Some(copy) = &self.copy {
            each_candidate(copy, self.root, &mut |name, kind| {
                names.push(name, kind);
                true
            })?;
        }
        names.sort();
        Ok(names)
    }
}

/// Reads the names of a directory. Runs on any thread.
#[must_use = "nothing is read before it has run"]
pub struct ListJob {
    source: NamesOf,
    outcome: Outcome,
}

impl ListJob {
    /// Reads, unless another job for the same directory has, or is about it: then it waits for that. What is wrong with the
    /// directory is told by whoever asks for its names.
    pub fn run(self) {
        let mut outcome = locked(&self.outcome);
        if outcome.is_none() {
            *outcome = Some(self.source.read());
        }
    }
}

/// A listing that is being read.
#[derive(Default)]
struct Reading {
    outcome: Outcome,
    changes: Changes,
    since: u32,
}

/// The listings kept.
pub(crate) struct Listings {
    kept: Lru<Fid, Listing>,
    reading: HashMap<Fid, Reading>,
    names: usize,
    max: usize,
    tick: u32,
}

/// Ticks for which a listing counts as in use after it was asked for.
const IN_USE: u32 = 10;
/// Ticks after which an unused listing is dropped.
const IDLE: u32 = 60;

impl Listings {
    pub(crate) fn new(max: usize) -> Listings {
        Listings { kept: Lru::new(), reading: HashMap::new(), names: 0, max, tick: 0 }
    }

    /// Forgets all listings.
    pub(crate) fn clear(&mut self) {
        *self = Listings::new(self.max);
    }

    pub(crate) fn get(&mut self, dir: Fid) -> Option<&Listing> {
        let tick = self.tick;
        let l = self.kept.get(&dir)?;
        l.used = tick;
        Some(l)
    }

    /// Whether the directory is listed, without counting as use.
    pub(crate) fn peek(&mut self, dir: Fid) -> Option<&Listing> {
        self.kept.peek(&dir).map(|l| &*l)
    }

    pub(crate) fn keep(&mut self, dir: Fid, mut listing: Listing) {
        listing.used = self.tick;
        self.drop_kept(dir);
        let many = listing.len();
        self.names += many;
        self.kept.insert(dir, listing);
        // The newest stays even if it alone is beyond the bound, and so does another one beside small ones while it is in
        // use: re-reading it for every page would cost more.
        let mut spared = 0;
        while self.names - spared > self.max && self.kept.len() > 1 {
            let Some(oldest) = self.kept.oldest() else { break };
            let tick = self.tick;
            let in_use = |l: &&mut Listing| l.len() > self.max && tick.wrapping_sub(l.used) <= IN_USE;
            if many <= self.max
                && spared == 0
                && let Some(large) = self.kept.get(&oldest).filter(in_use)
            {
                spared = large.len();
                continue;
            }
            self.drop_kept(oldest);
        }
    }

    /// Begins to read a directory's names on another thread, or to wait for it.
    pub(crate) fn begin(&mut self, fid: Fid, source: NamesOf) -> ListJob {
        let since = self.tick;
        let reading = self.reading.entry(fid).or_insert_with(|| Reading { since, ..Reading::default() });
        ListJob { source, outcome: reading.outcome.clone() }
    }

    /// Takes over what another thread has read.
    pub(crate) fn take_read(&mut self, dir: Fid) {
        let done = self.reading.get(&dir).is_some_and(|r| r.outcome.try_lock().is_ok_and(|o| o.is_some()));
        let Some(Reading { outcome, changes, .. }) = done.then(|| self.reading.remove(&dir)).flatten() else {
            return;
        };
        let read = locked(&outcome).take();
        if let Some(Ok(names)) = read {
            let mut listing = Listing::new(names);
            changes.into_iter().for_each(|(key, kind)| listing.change(key, kind));
            self.keep(dir, listing);
        }
    }

    fn drop_kept(&mut self, dir: Fid) {
        if let Some(old) = self.kept.remove(&dir) {
            self.names -= old.len();
        }
    }

    pub(crate) fn forget(&mut self, dir: Fid) {
        self.drop_kept(dir);
        self.reading.remove(&dir);
    }

    pub(crate) fn added(&mut self, dir: Fid, name: &[u8], kind: u32) {
        self.change(dir, name, Some(kind));
    }

    pub(crate) fn removed(&mut self, dir: Fid, name: &[u8]) {
        self.change(dir, name, None);
    }

    fn change(&mut self, dir: Fid, name: &[u8], kind: Option<u32>) {
        let key = || (cookie(name), name.into());
        if let Some(reading) = self.reading.get_mut(&dir) {
            reading.changes.insert(key(), kind);
            if reading.changes.len() > MAX_CHANGES {
                self.reading.remove(&dir);
            }
        }
        let Some(l) = self.kept.peek(&dir) else { return };
        self.names -= l.len();
        l.change(key(), kind);
        self.names += l.len();
        if l.changes.len() > MAX_CHANGES {
            self.drop_kept(dir);
        }
    }

    /// Called about once a second: drops what was not used for a minute.
    pub(crate) fn tick(&mut self) {
        self.tick = self.tick.wrapping_add(1);
        while let Some(dir) = self.kept.oldest() {
            let idle = self.kept.peek(&dir).is_some_and(|l| self.tick.wrapping_sub(l.used) > IDLE);
            if !idle {
                break;
            }
            self.drop_kept(dir);
        }
        let tick = self.tick;
        self.reading.retain(|_, r| tick.wrapping_sub(r.since) <= IDLE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ids::SetId;

    fn names(n: u32) -> Names {
        let mut names = Names::default();
        (0..n).for_each(|n| names.push(format!("f{n}").as_bytes(), 0o100_000));
        names.sort();
        names
    }

    fn texts(l: &Listing) -> Vec<String> {
        l.page(0, 0, usize::MAX).0.iter().map(|e| String::from_utf8_lossy(&e.1).into_owned()).collect()
    }

    /// However names come and go, a listing is what the same names would be that were read at once.
    #[test]
    fn changes_lie_over_what_was_read() {
        let mut ls = Listings::new(1000);
        ls.keep(Fid::default(), Listing::new(names(50)));
        let mut there: std::collections::BTreeSet<u32> = (0..50).collect();
        for n in 0..30 {
            there.remove(&(n * 2));
            there.insert(n * 3);
            ls.removed(Fid::default(), format!("f{}", n * 2).as_bytes());
            ls.added(Fid::default(), format!("f{}", n * 3).as_bytes(), 0o100_000);
            ls.added(Fid::default(), format!("f{}", n * 3).as_bytes(), 0o100_000);
        }
        let mut wanted = Names::default();
        there.iter().for_each(|n| wanted.push(format!("f{n}").as_bytes(), 0o100_000));
        wanted.sort();
        let wanted = Listing::new(wanted);
        let l = ls.get(Fid::default()).unwrap();
        assert_eq!((texts(l), l.len()), (texts(&wanted), wanted.len()));
        assert_eq!(ls.names, wanted.len());
    }

    /// What changes while another thread reads counts, and not what that thread saw of it.
    #[test]
    fn what_changes_while_names_are_read_counts() {
        let dir = file_system::FileSystem::open_dir(&file_system::Host, &std::env::temp_dir()).unwrap();
        let mut ls = Listings::new(1000);
        let (fid, dir) = (Fid::default(), Arc::new(dir));
        let source = || NamesOf { dir: dir.clone(), copy: None, root: false };
        let (job, second) = (ls.begin(fid, source()), ls.begin(fid, source()));
        ls.removed(fid, b"f7");
        ls.added(fid, b"new", 0);
        ls.take_read(fid);
        assert!(ls.peek(fid).is_none(), "it is not read yet");
        *job.outcome.lock().unwrap() = Some(Ok(names(10)));
        ls.added(fid, b"newer", 0);
        second.run();
        ls.take_read(fid);
        let l = ls.get(fid).unwrap();
        assert_eq!(l.len(), 11);
        assert!(texts(l).iter().any(|n| n == "newer") && !texts(l).iter().any(|n| n == "f7"));
    }

    #[test]
    fn the_order_is_frozen() {
        // Bricks of different builds serve one directory after the other.
        assert_eq!(cookie(b"a"), xxhash_rust::xxh3::xxh3_64(b"a") >> 1);
        let l = Listing::new(names(100));
        let (all, end) = l.page(0, 0, usize::MAX);
        assert!(end);
        assert_eq!(all.len(), 100);
        assert!(all.is_sorted_by_key(|e| e.0));
        let (first, end) = l.page(0, 30, 320);
        assert!(!end && first == all[..10], "names of two bytes, and one or two of one");
        assert_eq!(l.page(all[9].0, 30, usize::MAX), (all[10..].to_vec(), true));
        assert_eq!(l.page(all[98].0, 30, 1), (all[99..].to_vec(), true), "the last one");
        assert_eq!(l.page(0, 30, 1), (all[..1].to_vec(), false), "one at least");
    }

    /// Whoever lists it comes back for its next page.
    #[test]
    fn a_large_listing_in_use_is_not_dropped_for_small_ones() {
        let mut ls = Listings::new(15);
        let fid = |n| Fid { set: SetId(n), ..Fid::default() };
        ls.keep(fid(9), Listing::new(names(100)));
        for d in 0..5 {
            ls.keep(fid(d), Listing::new(names(10)));
            assert!(ls.get(fid(9)).is_some() && ls.get(fid(d)).is_some());
            assert_eq!((ls.kept.len(), ls.names), (2, 110), "of the small ones the newest stays");
        }
        ls.keep(fid(8), Listing::new(names(200)));
        assert_eq!((ls.get(fid(9)).is_none(), ls.names), (true, 200), "one of them at a time");
        (0..=IN_USE).for_each(|_| ls.tick());
        ls.keep(fid(7), Listing::new(names(10)));
        assert_eq!((ls.get(fid(8)).is_none(), ls.names), (true, 10), "nobody comes back");
    }

    #[test]
    fn the_bound_counts_names() {
        let mut ls = Listings::new(15);
        let fid = |n| Fid { set: SetId(n), ..Fid::default() };
        for d in 0..3 {
            ls.keep(fid(d), Listing::new(names(10)));
        }
        assert!(ls.get(fid(1)).is_none());
        assert_eq!(ls.names, 10);
        ls.added(fid(2), b"x", 0);
        ls.removed(fid(2), b"f0");
        ls.removed(fid(2), b"f0");
        assert_eq!(ls.names, 10);
    }
}

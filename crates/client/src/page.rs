//! Pages of directories, and attributes of what their entries lead to on other sets than their directory's.
//!
//! Nobody needs them: who misses one asks for it by itself. So a page waits for them for some 100 ms at most, and they shorten
//! nobody's grants. What must always be true: an attribute in a page holds as long as the page does.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use client_core::call::IMPATIENCE;
use ids::SetId;
use wire::limits::GETATTRS_MAX;
use wire::reply::DirEntry;
use wire::{Body, Errno, Op};

use crate::call::Client;
use crate::files::{Object, Page, unexpected_reply};
use crate::sets::lock;
use crate::together::together;
use crate::{grant, user};

/// A set that did not answer is not asked again for so long.
const SILENT: Duration = Duration::from_secs(5);
/// Likewise one whose server is too old to know the question.
const OLD: Duration = Duration::from_secs(60);
/// Sets that are asked at the same time: a thread costs as much as an answer from near by.
const AT_ONCE: usize = 3;

/// The entries that lead to one set.
type OfSet<'a> = (SetId, Vec<&'a mut DirEntry>);

/// Sets that are not asked, and until when.
#[derive(Default)]
pub(crate) struct SilentSets(Mutex<HashMap<SetId, Instant>>);

impl SilentSets {
    /// It did not answer, and why.
    fn note(&self, set: SetId, why: Errno) {
        let time = if why == Errno::EINVAL { OLD } else { SILENT };
        lock(&self.0).insert(set, Instant::now() + time);
    }

    fn has(&self, set: SetId) -> bool {
        lock(&self.0).get(&set).is_some_and(|until| Instant::now() < *until)
    }
}

impl Client {
    /// Entries after `cookie` (0: from the start), with attributes if `plus`.
    ///
    /// # Errors
    /// As `getdents`.
    pub fn read_dir(&self, object: Object, cookie: u64, plus: bool) -> Result<Page, Errno> {
        self.core.own_changes.page_asked();
        match self.ask(object.home, Op::ReadDir { fid: object.fid, cookie, plus })? {
            Body::Page { mut entries, end } => {
                if plus {
                    let files = entries.iter().filter(|e| e.kind & 0o170_000 != 0o040_000);
                    files.for_each(|e| self.core.names.note(e.fid, object, &e.name));
                    let own = self.core.homes.of(object.fid, object.home);
                    self.add_attributes(own, &mut entries);
                }
                Ok(Page { entries, end })
            }
            other => Err(unexpected_reply("readdir", &other)),
        }
    }

    /// Likewise on a thread of its own, for this thread's user; `then` gets the page, with when it was asked for.
    ///
    /// # Errors
    /// `EAGAIN` if there is no thread for it.
    pub fn read_dir_aside(
        self: &Arc<Client>,
        object: Object,
        cookie: u64,
        plus: bool,
        then: impl FnOnce(Instant, Result<Page, Errno>) + Send + 'static,
    ) -> Result<(), Errno> {
        let (client, user) = (Arc::clone(self), user::current());
        let ask = move || {
            user::act_as(user);
            grant::begin();
            let asked = Instant::now();
            then(asked, client.read_dir(object, cookie, plus));
        };
        let begun = std::thread::Builder::new().name("listing".into()).spawn(ask);
        begun.map(drop).map_err(|_| Errno::EAGAIN)
    }

    /// Adds attributes to entries of a directory of set `own` that lead to other sets, many with one question.
    pub(crate) fn add_attributes(&self, own: SetId, entries: &mut [DirEntry]) {
        // Each of them would have to be shown first.
        if self.core.names.are_needed() {
            return;
        }
        // Where servers check permissions they leave attributes out of what a user may list but not search.
        let is_checked = self.squash().is_some() || self.users().is_some();
        if is_checked && entries.iter().all(|e| e.attr.is_none()) {
            return;
        }
        let begun = Instant::now();
        let mut elsewhere: BTreeMap<SetId, Vec<&mut DirEntry>> = BTreeMap::new();
        for entry in entries.iter_mut().filter(|e| e.attr.is_none() && e.home != own) {
            elsewhere.entry(entry.home).or_default().push(entry);
        }
        elsewhere.retain(|set, _| !self.core.silent.has(*set) && self.core.current().route(*set).is_some());
        let threads = elsewhere.len().min(AT_ONCE);
        let mut shares: Vec<Vec<OfSet<'_>>> = (0..threads).map(|_| Vec::new()).collect();
        for (n, of_set) in elsewhere.into_iter().enumerate() {
            shares[n % threads].push(of_set);
        }
        let Some(first) = shares.pop() else { return };
        let page = grant::until();
        let add = |share: Vec<OfSet<'_>>| {
            let add = |(set, mut entries): OfSet<'_>| self.add_of_set(set, &mut entries, (page, begun));
            share.into_iter().filter_map(add).min()
        };
        let added = together(first, shares, &add);
        grant::restore(page);
        let Ok((added, others)) = added else { return };
        let others = others.into_iter().filter_map(|(added, _)| added);
        added.into_iter().chain(others).for_each(grant::note_until);
    }

    /// Asks a set for the attributes of its objects, in some questions. Until when what it told holds, if it told any.
    ///
    /// `page`: until when the page holds. `begun`: when the first set was asked.
    fn add_of_set(
        &self,
        set: SetId,
        mut entries: &mut [&mut DirEntry],
        (page, begun): (Option<Instant>, Instant),
    ) -> Option<Instant> {
        let mut holds: Option<Instant> = None;
        while !entries.is_empty() && begun.elapsed() < IMPATIENCE {
            let most = entries.len().min(GETATTRS_MAX);
            let (told, until) = self.add_some(set, entries.split_at_mut(most).0, page);
            if told == 0 {
                break;
            }
            holds = match (holds, until) {
                (Some(before), Some(now)) => Some(before.min(now)),
                (before, now) => before.or(now),
            };
            entries = entries.split_at_mut(told).1;
        }
        holds
    }

    /// Asks a set once; how many of the entries need not be asked for any more, and until when the answer holds.
    fn add_some(
        &self,
        set: SetId,
        entries: &mut [&mut DirEntry],
        page: Option<Instant>,
    ) -> (usize, Option<Instant>) {
        let fids = entries.iter().map(|e| e.fid).collect();
        grant::restore(None);
        let answer = self.ask(set, Op::GetAttrs { fids });
        let until = grant::until();
        let holds = |until: Option<Instant>| until.is_some_and(|until| Instant::now() < until);
        let attrs = match answer {
            Ok(Body::Attrs { attrs }) if holds(until) || !holds(page) => attrs,
            // The set grants nothing, but the page's does: the page shall hold.
            Ok(Body::Attrs { .. }) => return (0, None),
            other => {
                self.core.silent.note(set, other.err().unwrap_or(Errno::EIO));
                return (0, None);
            }
        };
        let (mut attrs, mut told) = (attrs.into_iter().peekable(), 0);
        for (n, entry) in entries.iter_mut().enumerate() {
            if let Some(attr) = attrs.next_if(|attr| attr.fid == entry.fid) {
                entry.attr = Some(attr);
                told = n + 1;
            }
        }
        (told, until)
    }
}

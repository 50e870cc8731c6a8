//! Attributes of what the entries of a page lead to on other sets than their directory's.
//!
//! Nobody needs them: who misses one asks for it by itself. So a page waits for them for some 100 ms at most, and they shorten
//! nobody's grants. What must always be true: an attribute in a page holds as long as the page does.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use client_core::call::IMPATIENCE;
use ids::SetId;
use wire::limits::GETATTRS_MAX;
use wire::reply::DirEntry;
use wire::{Body, Errno, Op};

use crate::call::Client;
use crate::grant;
use crate::sets::lock;

/// A set that did not answer is not asked again for so long.
const SILENT: Duration = Duration::from_secs(5);
/// Likewise one whose server is too old to know the question.
const OLD: Duration = Duration::from_secs(60);

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
        for (set, mut of_set) in elsewhere {
            if self.core.silent.has(set) || self.core.current().route(set).is_none() {
                continue;
            }
            let mut rest = of_set.as_mut_slice();
            while !rest.is_empty() {
                if begun.elapsed() >= IMPATIENCE {
                    return;
                }
                let most = rest.len().min(GETATTRS_MAX);
                let told = self.add_some(set, rest.split_at_mut(most).0);
                if told == 0 {
                    break;
                }
                rest = rest.split_at_mut(told).1;
            }
        }
    }

    /// Asks a set once; how many of the entries need not be asked for any more.
    fn add_some(&self, set: SetId, entries: &mut [&mut DirEntry]) -> usize {
        let page = grant::until();
        let fids = entries.iter().map(|e| e.fid).collect();
        let answer = self.ask(set, Op::GetAttrs { fids });
        let holds = |until: Option<Instant>| until.is_some_and(|until| Instant::now() < until);
        let attrs = match answer {
            Ok(Body::Attrs { attrs }) if holds(grant::until()) || !holds(page) => attrs,
            // The set grants nothing, but the page's does: the page shall hold.
            Ok(Body::Attrs { .. }) => {
                grant::restore(page);
                return 0;
            }
            other => {
                grant::restore(page);
                self.core.silent.note(set, other.err().unwrap_or(Errno::EIO));
                return 0;
            }
        };
        let (mut attrs, mut told) = (attrs.into_iter().peekable(), 0);
        for (n, entry) in entries.iter_mut().enumerate() {
            if let Some(attr) = attrs.next_if(|attr| attr.fid == entry.fid) {
                entry.attr = Some(attr);
                told = n + 1;
            }
        }
        told
    }
}

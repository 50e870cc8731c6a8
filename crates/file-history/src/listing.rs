//! Listings of a directory in several pages: no moment shows them whole.
//!
//! Each entry that is listed was there at some time within its page. What was neither made nor removed while the listing
//! went on is listed exactly once if it was there, and not if it was not.

use crate::{Record, Violation, wrong};
use ids::Fid;
use std::collections::BTreeMap;
use wire::reply::DirEntry;
use wire::{Body, Name, Op};

/// A listing from its beginning to its end.
pub(crate) struct Listing {
    pub(crate) records: Vec<usize>,
    pub(crate) dir: Fid,
    pub(crate) begun: u64,
    pub(crate) ended: u64,
    pub(crate) entries: BTreeMap<Name, Vec<Fid>>,
}

fn page(r: &Record) -> Option<(Fid, u64, &[DirEntry], bool, u64)> {
    let (Op::ReadDir { fid, cookie, .. }, Some((at, Ok((Body::Page { entries, end }, _))))) =
        (&r.op, &r.answer)
    else {
        return None;
    };
    Some((*fid, *cookie, entries, *end, *at))
}

/// The listings of more than one page that came to their end.
pub(crate) fn listings(records: &[Record]) -> Vec<Listing> {
    let mut open: BTreeMap<(u32, Fid, u64), Listing> = BTreeMap::new();
    let mut out = Vec::new();
    for (n, r) in records.iter().enumerate() {
        let Some((dir, cookie, entries, end, at)) = page(r) else { continue };
        if cookie == 0 && end {
            continue;
        }
        let new = || Listing { records: vec![], dir, begun: r.begun, ended: at, entries: BTreeMap::new() };
        let listing = if cookie == 0 { Some(new()) } else { open.remove(&(r.client, dir, cookie)) };
        let Some(mut listing) = listing else { continue };
        listing.records.push(n);
        listing.ended = at;
        for e in entries {
            listing.entries.entry(e.name.clone()).or_default().push(e.fid);
        }
        if end {
            out.push(listing);
        } else if let Some(last) = entries.last() {
            open.insert((r.client, dir, last.cookie), listing);
        }
    }
    out
}

/// Whether a record may change where this name leads.
fn may_change(r: &Record, dir: Fid, name: &Name) -> bool {
    let is = |d: &Fid, n: &Name| *d == dir && n == name;
    match &r.op {
        Op::Create { parent, name, .. }
        | Op::Unlink { parent, name }
        | Op::Rmdir { parent, name }
        | Op::Link { parent, name, .. }
        | Op::LinkIn { parent, name, .. } => is(parent, name),
        Op::Rename { parent, name, to_parent, to_name, .. }
        | Op::MoveIn { parent, name, to_parent, to_name, .. } => is(parent, name) || is(to_parent, to_name),
        _ => false,
    }
}

impl Listing {
    /// Whether the name leads to the same all the time.
    pub(crate) fn is_steady(&self, records: &[Record], name: &Name) -> bool {
        !records.iter().any(|r| {
            let ended = match &r.answer {
                Some((at, Ok(_))) => *at,
                _ => u64::MAX,
            };
            may_change(r, self.dir, name) && r.begun <= self.ended && ended >= self.begun
        })
    }

    /// # Errors
    /// A name is there twice though nobody changed it.
    pub(crate) fn check(&self, records: &[Record]) -> Result<(), Violation> {
        let twice = self.entries.iter().find(|(name, fids)| fids.len() > 1 && self.is_steady(records, name));
        match twice {
            Some((name, _)) => {
                let what = format!("a directory is listed with {name:?} twice");
                Err(wrong(records, &self.records, &what))
            }
            None => Ok(()),
        }
    }
}

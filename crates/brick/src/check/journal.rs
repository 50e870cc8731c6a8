//! The journal's segments, read as far as anything can be read.

use super::{REPAIR, Report};
use crate::error::OpenError;
use crate::open::Site;
use disk_format::journal::{HEAD, HeadError, Rest, classify};
use disk_format::{Record, RecordError, SegmentHead};
use file_system::{File, Opening, S_IFREG};
use ids::{BrickId, Epoch, Lsn};
use std::path::Path;
use wire::Errno;
use wire::peer::Stamp;

const SUFFIX: &str = ".seg";

/// What is wrong with a journal.
pub(super) enum Trouble {
    /// Its last record was being written when everything stopped: the segment ends at `at` from now on.
    Torn { segment: String, at: usize },
    /// Something in the middle is lost: all of it goes, and it begins anew.
    Damaged,
}

/// Reads all segments. The latest position that anything in them names is in `newest`.
pub(super) fn check(
    at: &Site,
    brick: BrickId,
    clean: bool,
    (repair, report): (bool, &mut Report),
    newest: &mut Stamp,
) -> Result<Option<Trouble>, OpenError> {
    let folder = at.folder("journal")?;
    let io = |errno| at.io("read the journal of", errno);
    let read =
        |name: &String| folder.open_at(name.as_bytes(), S_IFREG).and_then(|f| f.read_whole()).map_err(io);
    let files = segments(&folder).map_err(io)?;
    let mut trouble = None;
    let mut before: Option<Lsn> = None;
    let mut expected: Option<Lsn> = None;
    for (n, file) in files.iter().enumerate() {
        let bytes = read(file)?;
        let found = match SegmentHead::decode(&bytes) {
            Ok(h) if h.brick != brick => Some((0, format!("it belongs to brick {}", h.brick))),
            Ok(h)
                if h.previous != Lsn(0)
                    && (before.is_some_and(|b| b != h.previous)
                        || expected.is_some_and(|e| e != h.base.lsn.next())) =>
            {
                Some((0, "the segment before it is missing or cut".into()))
            }
            Ok(h) => {
                before = Some(h.base.lsn.next());
                report.last = h.base.lsn;
                later(newest, &h.base);
                read_records(&bytes, report, newest)
            }
            Err(e) => Some((0, e.to_string())),
        };
        expected = Some(report.last.next());
        let Some((at, why)) = found else { continue };
        let rest = bytes.get(at..).unwrap_or_default();
        if is_newer(rest, at) {
            report.add(
                Path::new(".mortar/journal").join(file),
                format!("at byte {at}: {why}"),
                "check it with the newer program that wrote it",
            );
            return Ok(None);
        }
        // A brick that was closed in order has no record that was being written.
        let torn = n + 1 == files.len() && !clean && classify(rest, report.last) == Rest::Torn;
        let what = if torn { "torn tail" } else { "damage" };
        let shown = Path::new(".mortar/journal").join(file);
        report.add(shown, format!("{what} at byte {at}: {why}"), if repair { "" } else { REPAIR });
        if torn {
            return Ok(Some(Trouble::Torn { segment: file.clone(), at }));
        }
        trouble = Some(Trouble::Damaged);
        // The rest counts for one thing only: no position that it names may be given again.
        for file in files.get(n..).unwrap_or_default() {
            skim(&read(file)?, newest);
            let first = file.strip_suffix(SUFFIX).and_then(|s| u64::from_str_radix(s, 16).ok());
            newest.lsn = newest.lsn.max(Lsn(first.unwrap_or(0).saturating_sub(1)));
        }
        break;
    }
    Ok(trouble)
}

/// The names of the segments, oldest first.
fn segments(folder: &File) -> Result<Vec<String>, Errno> {
    let mut found = Vec::new();
    folder.list(&mut |name, _, _| {
        found.extend(std::str::from_utf8(name).ok().filter(|n| n.ends_with(SUFFIX)).map(str::to_owned));
        true
    })?;
    found.sort();
    Ok(found)
}

/// Whether these bytes are whole, and only unknown here: nothing of that may be thrown away.
fn is_newer(rest: &[u8], at: usize) -> bool {
    match at {
        0 => matches!(SegmentHead::decode(rest), Err(HeadError::Newer(_))),
        _ => matches!(Record::decode(rest), Err(RecordError::Content(_))),
    }
}

fn later(newest: &mut Stamp, stamp: &Stamp) {
    newest.lsn = newest.lsn.max(stamp.lsn);
    newest.epoch = newest.epoch.max(stamp.epoch);
}

fn read_records(bytes: &[u8], report: &mut Report, newest: &mut Stamp) -> Option<(usize, String)> {
    let mut at = HEAD;
    while at < bytes.len() {
        match Record::decode(bytes.get(at..).unwrap_or_default()) {
            Ok((r, _)) if r.stamp.lsn != report.last.next() => {
                return Some((at, format!("change {} follows {}", r.stamp.lsn, report.last)));
            }
            Ok((r, n)) => {
                report.records += 1;
                report.last = r.stamp.lsn;
                later(newest, &r.stamp);
                at += n;
            }
            Err(e) => return Some((at, e.to_string())),
        }
    }
    None
}

/// Looks at every whole record, wherever it lies.
fn skim(bytes: &[u8], newest: &mut Stamp) {
    if let Ok(head) = SegmentHead::decode(bytes) {
        later(newest, &head.base);
    }
    let mut at = HEAD.min(bytes.len());
    while let Some(rest) = bytes.get(at..).filter(|r| !r.is_empty()) {
        match Record::decode(rest) {
            Ok((r, n)) => {
                later(newest, &r.stamp);
                at += n;
            }
            Err(_) => match classify(rest, Lsn(0)) {
                Rest::Damaged { skipped } => at += skipped,
                Rest::Torn => return,
            },
        }
    }
}

/// Cuts a torn tail off; a segment without a whole head goes.
pub(super) fn cut(site: &Site, segment: &str, at: usize) -> Result<(), OpenError> {
    let folder = site.folder("journal")?;
    let cut = || {
        if at < HEAD {
            return folder.unlink(segment.as_bytes());
        }
        let file = folder.open_own(segment.as_bytes(), Opening::AtHand(0o600))?;
        file.truncate(at as u64)?;
        file.sync()
    };
    cut().map_err(|errno| site.io("cut the journal of", errno))
}

/// Begins the journal anew after `newest`: nothing that was ever given is given again.
pub(super) fn begin_anew(at: &Site, brick: BrickId, newest: &Stamp) -> Result<(), OpenError> {
    let folder = at.folder("journal")?;
    let old = segments(&folder).map_err(|e| at.io("read the journal of", e))?;
    let base = Stamp { epoch: newest.epoch.max(Epoch(1)), lsn: newest.lsn };
    let name = format!("{:016x}{SUFFIX}", base.lsn.next().0);
    let head = SegmentHead { brick, base, previous: Lsn(0) }.encode();
    crate::identity::write_durably(&folder, name.as_bytes(), &head)
        .map_err(|e| at.io("begin the journal of", e))?;
    // From the newest on: what is left after a crash begins with what was damaged, and is checked again.
    let mut others = old.iter().rev().filter(|segment| **segment != name);
    others.try_for_each(|s| folder.unlink(s.as_bytes())).map_err(|e| at.io("remove the old journal of", e))
}

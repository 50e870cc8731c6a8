//! Mistakes in a copy of what clients were told of striped files: the checker of striping has to notice them.

use file_history::{Parted, Record};
use ids::Fid;
use std::collections::BTreeMap;
use wire::{Attr, Body, Op};

/// A mistake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Planted {
    /// A read has the bytes of another unit.
    WrongUnit,
    /// A read has zeros where a unit has got a part of a write that was answered.
    LostWrite,
    /// A file has the size of before, though a write or a cut was answered since.
    StaleSize,
}

type Files = BTreeMap<Fid, Parted>;

/// Makes one such mistake; false if the history has no place for it.
pub(crate) fn plant(planted: Planted, records: &mut [Record], files: &Files) -> bool {
    match planted {
        Planted::WrongUnit => records.iter_mut().any(|record| swap_units(record, files)),
        Planted::LostWrite => lose_write(records, files),
        Planted::StaleSize => make_stale(records, files),
    }
}

/// What was read of a striped file: the file, the position, the bytes.
fn read<'a>(record: &Record, files: &'a Files) -> Option<(&'a Parted, Fid, u64, Vec<u8>)> {
    let Op::Read { fid, offset, .. } = record.op else { return None };
    let Some((_, Ok((_, data)))) = &record.answer else { return None };
    Some((files.get(&fid)?, fid, offset, data.to_vec()))
}

fn replace(record: &mut Record, bytes: Vec<u8>) {
    if let Some((_, Ok((_, data)))) = &mut record.answer {
        *data = bytes.into();
    }
}

fn swap_units(record: &mut Record, files: &Files) -> bool {
    let Some((parted, _, offset, data)) = read(record, files) else { return false };
    let unit = usize::try_from(parted.unit).unwrap_or(usize::MAX);
    let first = usize::try_from(offset.next_multiple_of(parted.unit) - offset).unwrap_or(usize::MAX);
    let from = first.min(data.len());
    let units: Vec<&[u8]> = data[from..].chunks_exact(unit).collect();
    let Some(n) = units.windows(2).position(|pair| pair[0] != pair[1]) else { return false };
    let mut swapped = data.clone();
    swapped[from + n * unit..from + (n + 2) * unit].rotate_left(unit);
    replace(record, swapped);
    true
}

fn lose_write(records: &mut [Record], files: &Files) -> bool {
    for w in 0..records.len() {
        let Op::Write { fid, offset, append: false, .. } = records[w].op else { continue };
        let (Some((done, Ok(_))), Some(byte)) = (&records[w].answer, records[w].payload.first().copied())
        else {
            continue;
        };
        let (done, end) = (*done, offset + records[w].payload.len() as u64);
        for record in records.iter_mut().filter(|r| r.begun > done) {
            let Some((parted, of, from, mut data)) = read(record, files) else { continue };
            let is_written = |at: usize, data: &[u8]| {
                of == fid && (offset..end).contains(&(from + at as u64)) && data[at] == byte
            };
            let Some(first) = (0..data.len()).find(|at| is_written(*at, &data)) else { continue };
            let unit = |at: usize| (from + at as u64) / parted.unit;
            for at in first..data.len() {
                if unit(at) == unit(first) && is_written(at, &data) {
                    data[at] = 0;
                }
            }
            replace(record, data);
            return true;
        }
    }
    false
}

fn attr(record: &mut Record) -> Option<&mut Attr> {
    match &mut record.answer {
        Some((_, Ok((Body::Attr { attr } | Body::Written { attr, .. }, _)))) => Some(attr),
        _ => None,
    }
}

fn make_stale(records: &mut [Record], files: &Files) -> bool {
    // When it was begun, and answered; the file; its size.
    let seen: Vec<Option<(u64, u64, Fid, u64)>> = records
        .iter_mut()
        .map(|record| {
            let (begun, ended) = (record.begun, record.answer.as_ref()?.0);
            let attr = attr(record).filter(|attr| files.contains_key(&attr.fid))?;
            Some((begun, ended, attr.fid, attr.size))
        })
        .collect();
    let before = |begun: u64, fid: Fid| {
        let of_file = seen.iter().flatten().filter(move |s| s.2 == fid && s.1 < begun);
        of_file.max_by_key(|s| s.1).copied()
    };
    for (n, last) in seen.iter().enumerate() {
        let Some((begun, _, fid, size)) = *last else { continue };
        let Some((changed, _, _, same)) = before(begun, fid) else { continue };
        let Some((_, _, _, stale)) = before(changed, fid) else { continue };
        if same == size && stale != size {
            return attr(&mut records[n]).map(|attr| attr.size = stale).is_some();
        }
    }
    false
}

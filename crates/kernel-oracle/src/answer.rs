//! The kernel's answers, and Mortar's beside them.

use ids::{Fid, Time};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use wire::{Attr, Body, Errno, Name, Op};

/// A time of an object, as far as it can be told without a common clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moment {
    /// Somebody set it to this.
    At(Time),
    /// The kernel has set it since it was made, or since somebody set it to this.
    Changed(Option<Time>),
}

/// Attributes of an object, as far as they are compared.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    /// The object's name in the tested system; `None` if that has not said it.
    pub fid: Option<Fid>,
    /// Type and permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names, and for directories those beneath.
    pub nlink: u32,
    /// Of devices.
    pub rdev: u32,
    /// Bytes; `None` for directories, whose size is the file system's affair.
    pub size: Option<u64>,
    /// Last access. Only what was set is compared.
    pub atime: Moment,
    /// Last change of the content.
    pub mtime: Moment,
}

/// What the kernel answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// It is done.
    Done,
    /// Attributes of an object.
    Attr(Seen),
    /// Attributes of those objects that are there.
    Attrs(Vec<Seen>),
    /// Data of a file, a link's target, or an attribute's value.
    Data(Vec<u8>),
    /// Names of extended attributes.
    Names(BTreeSet<Name>),
    /// A whole directory.
    Listing(BTreeMap<Name, Seen>),
    /// A count of bytes.
    Offset(u64),
    /// Where data or a hole may be found: file systems differ in what they keep as a hole.
    Sought {
        /// Data is sought, not a hole.
        data: bool,
        /// From there on.
        offset: u64,
        /// Of the file, which is longer than that.
        size: u64,
        /// The runs of bytes from there on that are not zero.
        written: Vec<(u64, u64)>,
    },
    /// A write's size, and the attributes after it.
    Written(u32, Seen),
    /// Room on the disk: of no interest.
    Room,
}

fn same<T: PartialEq + Debug>(what: &str, ours: &T, kernel: &T) -> Result<(), String> {
    if ours == kernel { Ok(()) } else { Err(format!("{what}: {ours:?}, the kernel's {kernel:?}")) }
}

fn same_attr(ours: &Attr, kernel: &Seen) -> Result<(), String> {
    if let Some(fid) = &kernel.fid {
        same("fid", &ours.fid, fid)?;
    }
    let octal = |mode: u32| format!("{mode:o}");
    same("mode", &octal(ours.mode), &octal(kernel.mode))?;
    same("owner", &(ours.uid, ours.gid), &(kernel.uid, kernel.gid))?;
    same("links", &ours.nlink, &kernel.nlink)?;
    same("device", &ours.rdev, &kernel.rdev)?;
    if let Some(size) = &kernel.size {
        same("size", &ours.size, size)?;
    }
    if let Moment::At(time) = &kernel.atime {
        same("atime", &ours.atime, time)?;
    }
    match &kernel.mtime {
        Moment::At(time) => same("mtime", &ours.mtime, time),
        Moment::Changed(Some(before)) if ours.mtime == *before => {
            Err(format!("mtime is still {before:?}, which the kernel has changed"))
        }
        Moment::Changed(_) => Ok(()),
    }
}

fn same_listing(op: &Op, body: &Body, kernel: &BTreeMap<Name, Seen>) -> Result<(), String> {
    let Body::Page { entries, end } = body else { return Err("no page of a directory".to_owned()) };
    for e in entries {
        let Some(seen) = kernel.get(&e.name) else {
            return Err(format!("entry {} is not there for the kernel", e.name));
        };
        if let Some(fid) = &seen.fid {
            same("fid of an entry", &e.fid, fid)?;
        }
        same("kind of an entry", &e.kind, &(seen.mode & 0o170_000))?;
        if let Some(attr) = &e.attr {
            same_attr(attr, seen).map_err(|why| format!("entry {}: {why}", e.name))?;
        }
    }
    let names: BTreeSet<&Name> = entries.iter().map(|e| &e.name).collect();
    same("entries, and different ones", &entries.len(), &names.len())?;
    match op {
        Op::ReadDir { cookie: 0, .. } if *end => same("entries", &names, &kernel.keys().collect()),
        _ => Ok(()),
    }
}

fn same_body(op: &Op, ours: &(Body, impl AsRef<[u8]>), kernel: &Answer) -> Result<(), String> {
    let (body, payload) = (&ours.0, ours.1.as_ref());
    match (body, kernel) {
        (Body::Done, Answer::Done) => Ok(()),
        (Body::Attr { attr }, Answer::Attr(seen)) => same_attr(attr, seen),
        (Body::Attrs { attrs }, Answer::Attrs(all)) => {
            same("objects", &attrs.len(), &all.len())?;
            attrs.iter().zip(all).try_for_each(|(attr, seen)| same_attr(attr, seen))
        }
        (Body::Data, Answer::Data(data)) => same_data(payload, data),
        (Body::Names { names }, Answer::Names(there)) => {
            same("names", &names.iter().cloned().collect(), there)
        }
        (Body::Page { .. }, Answer::Listing(all)) => same_listing(op, body, all),
        (Body::Offset { offset }, Answer::Offset(there)) => same("offset", offset, there),
        (Body::Written { len, attr }, Answer::Written(there, seen)) => {
            same("written", len, there)?;
            same_attr(attr, seen)
        }
        (Body::Room { room }, Answer::Room) => {
            let sound = room.available <= room.free && room.free <= room.total;
            if sound { Ok(()) } else { Err(format!("no sound room: {room:?}")) }
        }
        _ => Err(format!("{body:?}, the kernel's {kernel:?}")),
    }
}

fn same_data(ours: &[u8], kernel: &[u8]) -> Result<(), String> {
    same("bytes of data", &ours.len(), &kernel.len())?;
    match ours.iter().zip(kernel).position(|(a, b)| a != b) {
        None => Ok(()),
        Some(at) => Err(format!("data differs at byte {at}: {:?}, the kernel's {:?}", ours[at], kernel[at])),
    }
}

/// No byte that is not zero lies in what is passed over as a hole, or is called one.
fn may_find(found: Option<u64>, kernel: &Answer) -> Result<(), String> {
    let Answer::Sought { data, offset, size, written } = kernel else { return Err("not sought".to_owned()) };
    let sound = match found {
        Some(at) if *data => *offset <= at && at < *size && written.first().is_none_or(|(w, _)| at <= *w),
        Some(at) => *offset <= at && at <= *size && !written.iter().any(|(w, end)| *w <= at && at < *end),
        None => *data && written.is_empty(),
    };
    if sound { Ok(()) } else { Err(format!("found {found:?} from {offset} on in {size} bytes: {written:?}")) }
}

/// Whether Mortar's answer to `op` is the kernel's.
///
/// # Errors
/// Where the two differ, in words.
pub fn compare<P: AsRef<[u8]>>(
    op: &Op,
    ours: &Result<(Body, P), Errno>,
    kernel: &Result<Answer, Errno>,
) -> Result<(), String> {
    let differs = match (ours, kernel) {
        (Ok((Body::Offset { offset }, _)), Ok(kernel @ Answer::Sought { .. })) => {
            may_find(Some(*offset), kernel)
        }
        (Err(Errno::ENXIO), Ok(kernel @ Answer::Sought { .. })) => may_find(None, kernel),
        (Ok(ours), Ok(kernel)) => same_body(op, ours, kernel),
        // Who asks about an object that is gone may be told what else is wrong: Linux has no such calls.
        (Err(_), Err(Errno::ESTALE)) => Ok(()),
        (Err(ours), Err(kernel)) => same("refusal", ours, kernel),
        (Ok((body, _)), Err(e)) => Err(format!("{body:?}, but the kernel refuses: {e}")),
        (Err(e), Ok(kernel)) => Err(format!("refused: {e}, but the kernel answers {kernel:?}")),
    };
    differs.map_err(|why| format!("{op:?}: {why}"))
}

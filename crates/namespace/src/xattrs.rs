//! Rules of extended attributes.

use crate::decide::{Context, Decision, result_fid, touch};
use crate::tree_state::TreeState;
use alloc::vec::Vec;
use ids::Fid;
use wire::codec::Blob;
use wire::limits::{COPY_NAMES_MAX, XATTR_VALUE_MAX};
use wire::op::{COPY_NAMES, decode_names};
use wire::stripes::{PIECE, PieceOf};
use wire::{Attr, Change, Errno, Name};

/// What the brick knows of an object is not for users to change.
fn check_own(name: &Name) -> Result<(), Errno> {
    if name.as_bytes().starts_with(b"trusted.mortar.") { Err(Errno::EPERM) } else { Ok(()) }
}

/// Names of extended attributes that users may change.
fn check_name(attr: &Attr, name: &Name) -> Result<(), Errno> {
    const PREFIXES: [&[u8]; 4] = [b"user.", b"security.", b"trusted.", b"system.posix_acl_"];
    let is_special = !matches!(attr.mode & 0o170_000, 0o100_000 | 0o040_000);
    if is_special && name.as_bytes().starts_with(b"user.") {
        return Err(Errno::EPERM);
    }
    match PREFIXES.iter().find_map(|p| name.as_bytes().strip_prefix(*p)) {
        // No file system takes it, and none is to find that out after it was journaled.
        Some([]) => Err(Errno::EINVAL),
        Some(_) => Ok(()),
        None => Err(Errno::EOPNOTSUPP),
    }
}

pub(crate) fn set_xattr(
    view: &mut dyn TreeState,
    cx: &Context<'_>,
    fid: Fid,
    name: &Name,
    flags: u32,
) -> Result<Decision, Errno> {
    const CREATE: u32 = 1;
    const REPLACE: u32 = 2;
    let is = |own: &str| name.as_bytes() == own.as_bytes() && (cx.is_arriving)(fid);
    if is(COPY_NAMES) {
        let fit = decode_names(cx.payload).is_ok_and(|names| names.len() <= COPY_NAMES_MAX);
        fit.then_some(()).ok_or(Errno::EINVAL)?;
    } else if is(PIECE) {
        PieceOf::decode(cx.payload).map_err(|_| Errno::EINVAL)?;
    } else {
        check_own(name)?;
    }
    if flags & !(CREATE | REPLACE) != 0 {
        return Err(Errno::EINVAL);
    }
    if cx.payload.len() > XATTR_VALUE_MAX {
        return Err(Errno::ERANGE);
    }
    let attr = view.attr(fid)?;
    check_name(&attr, name)?;
    match view.xattr(fid, name)? {
        Some(_) if flags & CREATE != 0 => return Err(Errno::EEXIST),
        None if flags & REPLACE != 0 => return Err(Errno::ENODATA),
        _ => {}
    }
    let value = Blob(Vec::from(cx.payload));
    result_fid(fid, Change::SetXattr { fid, name: name.clone(), value, time: touch(&attr, cx.now) })
}

pub(crate) fn remove_xattr(
    view: &mut dyn TreeState,
    cx: &Context<'_>,
    fid: Fid,
    name: &Name,
) -> Result<Decision, Errno> {
    check_own(name)?;
    let attr = view.attr(fid)?;
    check_name(&attr, name)?;
    view.xattr(fid, name)?.ok_or(Errno::ENODATA)?;
    result_fid(fid, Change::RemoveXattr { fid, name: name.clone(), time: touch(&attr, cx.now) })
}

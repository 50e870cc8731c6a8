//! A brick's top directory. On disk it is root's and closed to all others, so that users of the server's machine do not get at
//! the volume's data by the modes of files; what users of the volume see of it is kept beside it
//! ([design 28](../../../docs/design/0028-closed-bricks.md)).
//!
//! An access list of the top directory stays where it is, with entries that allow nobody anything: those that are also
//! permission bits are kept as bits, as the kernel does it.

use crate::object::{OpenObject, S_IFMT, Stat};
use disk_format::Top;
use disk_format::top::TOP;
use file_system::File;
use std::path::Path;
use wire::Errno;

/// The permission bits of a top directory on disk.
const CLOSED: u32 = 0o700;
const BITS: u32 = 0o7777;

/// What users see, if that is not what the directory has.
pub(crate) fn read(file: &File) -> Result<Option<Top>, Errno> {
    let Some(bytes) = file.whole_xattr(TOP.as_bytes())? else { return Ok(None) };
    Top::decode(&bytes).map(Some).map_err(|error| {
        tracing::error!(%error, "owner and mode of a brick's top directory cannot be read");
        Errno::EIO
    })
}

/// Notes what users see.
pub(crate) fn write(file: &File, top: Top) -> Result<(), Errno> {
    file.set_xattr(TOP.as_bytes(), &top.encode())
}

/// The attributes with what users see.
pub(crate) fn show(stat: Stat, top: Top) -> Stat {
    Stat { mode: stat.mode & S_IFMT | top.mode, uid: top.uid, gid: top.gid, ..stat }
}

fn is_closed(stat: &Stat) -> bool {
    (stat.mode & BITS, stat.uid, stat.gid) == (CLOSED, 0, 0)
}

/// What there was to do to close a brick's directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Closing {
    /// Nothing.
    Was,
    /// It was open.
    Done,
    /// What users saw of it was damaged, and is unknown.
    Damaged,
}

/// Closes the directory. What it was is what users see from then on, unless that is known already: then somebody opened it
/// behind our back, or we were stopped half-way.
fn close(root: &OpenObject) -> Result<Closing, Errno> {
    let file: &File = root;
    let (stat, known) = (file.stat()?, read(file));
    if is_closed(&stat) && known.is_ok() {
        return Ok(Closing::Was);
    }
    if !matches!(known, Ok(Some(_))) {
        write(file, Top { mode: stat.mode & BITS, uid: stat.uid, gid: stat.gid })?;
        file.sync()?;
    }
    file.chmod(CLOSED)?;
    file.chown(Some(0), Some(0))?;
    Ok(if known.is_ok() { Closing::Done } else { Closing::Damaged })
}

/// [`close`] of a brick that is opened. One that cannot be closed serves all the same. Whether owner and mode are to be fetched
/// from another brick.
pub(crate) fn close_brick(path: &Path, root: &OpenObject) -> bool {
    let closed = close(root);
    match closed {
        Ok(Closing::Was) => {}
        Ok(Closing::Done) => {
            tracing::info!(brick = %path.display(), "only root can enter its directory from now on")
        }
        Ok(Closing::Damaged) => {
            tracing::error!(brick = %path.display(), "owner and mode of its top directory are lost")
        }
        Err(e) => tracing::warn!(
            brick = %path.display(), error = %e,
            "users of this machine can enter its directory, and it cannot be closed: \
             put it beneath a folder of mode 0700"
        ),
    }
    closed == Ok(Closing::Damaged)
}

/// Closes the directory of a new brick, which users see like this.
pub(crate) fn begin(root: &OpenObject, top: Top) -> Result<(), Errno> {
    let file: &File = root;
    write(file, top)?;
    file.chmod(CLOSED)?;
    file.chown(Some(0), Some(0))
}

/// The directory is no brick any more: it gets what users saw.
pub(crate) fn open_again(root: &OpenObject) -> Result<(), Errno> {
    let file: &File = root;
    if let Some(top) = read(file)? {
        file.chown(Some(top.uid), Some(top.gid))?;
        file.chmod(top.mode)?;
        root.remove_xattr(TOP.as_bytes())?;
    }
    Ok(())
}

/// A note that an earlier brick left in a directory which somebody opened meanwhile means nothing.
pub(crate) fn forget_old(root: &OpenObject) -> Result<(), Errno> {
    let file: &File = root;
    if is_closed(&file.stat()?) { Ok(()) } else { root.remove_xattr(TOP.as_bytes()) }
}

const USER_OBJ: u16 = 0x01;
const GROUP_OBJ: u16 = 0x04;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// The entries of an access list that are permission bits too, and by how much those are shifted: which one the bits of the
/// group are depends on whether there is a mask.
fn shared_entries(list: &mut [u8]) -> impl Iterator<Item = (&mut [u8], u32)> {
    const VERSION: usize = 4;
    const ENTRY: usize = 8;
    let tag = |entry: &[u8]| match entry {
        [a, b, ..] => u16::from_le_bytes([*a, *b]),
        _ => 0,
    };
    let entries = list.get_mut(VERSION..).unwrap_or_default();
    let group = if entries.chunks(ENTRY).any(|e| tag(e) == MASK) { MASK } else { GROUP_OBJ };
    entries.chunks_exact_mut(ENTRY).filter_map(move |entry| {
        let shift = match tag(entry) {
            USER_OBJ => 6,
            OTHER => 0,
            t if t == group => 3,
            _ => return None,
        };
        Some((entry.get_mut(2..4)?, shift))
    })
}

/// An access list for a closed directory, and the permission bits that it sets.
pub(crate) fn hide_list(list: &[u8]) -> (Vec<u8>, u32) {
    let (mut hidden, mut mode) = (list.to_vec(), 0);
    for (bits, shift) in shared_entries(&mut hidden) {
        if let [low, _] = bits {
            mode |= u32::from(*low & 0o7) << shift;
            // What is no list of the kernel's stays so: other bits are refused by it.
            *low = *low & !0o7 | u8::try_from(CLOSED >> shift & 0o7).unwrap_or(0);
        }
    }
    (hidden, mode)
}

/// The access list that users see of a closed directory which shows these permission bits.
pub(crate) fn show_list(mut list: Vec<u8>, mode: u32) -> Vec<u8> {
    for (bits, shift) in shared_entries(&mut list) {
        if let [low, _] = bits {
            *low = *low & !0o7 | u8::try_from(mode >> shift & 0o7).unwrap_or(0);
        }
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let entry = |(tag, bits, id): &(u16, u16, u32)| {
            [&tag.to_le_bytes()[..], &bits.to_le_bytes(), &id.to_le_bytes()].concat()
        };
        [2u32.to_le_bytes().to_vec(), entries.iter().flat_map(entry).collect()].concat()
    }

    const NOBODY: u32 = u32::MAX;

    #[test]
    fn a_list_is_hidden_and_shown() {
        let seen = list(&[
            (USER_OBJ, 7, NOBODY),
            (2, 6, 1000),
            (GROUP_OBJ, 5, NOBODY),
            (MASK, 4, NOBODY),
            (OTHER, 1, NOBODY),
        ]);
        let (hidden, mode) = hide_list(&seen);
        assert_eq!(mode, 0o741);
        let closed = list(&[
            (USER_OBJ, 7, NOBODY),
            (2, 6, 1000),
            (GROUP_OBJ, 5, NOBODY),
            (MASK, 0, NOBODY),
            (OTHER, 0, NOBODY),
        ]);
        assert_eq!(hidden, closed, "the mask takes from users and groups what they have");
        assert_eq!(show_list(hidden.clone(), mode), seen);
        // chmod 0550.
        let changed = show_list(hidden, 0o550);
        assert_eq!(hide_list(&changed).1, 0o550);
    }

    #[test]
    fn a_list_without_a_mask_is_bits_only() {
        let seen = list(&[(USER_OBJ, 6, NOBODY), (GROUP_OBJ, 4, NOBODY), (OTHER, 4, NOBODY)]);
        let (hidden, mode) = hide_list(&seen);
        assert_eq!(mode, 0o644);
        assert_eq!(hidden, list(&[(USER_OBJ, 7, NOBODY), (GROUP_OBJ, 0, NOBODY), (OTHER, 0, NOBODY)]));
    }

    #[test]
    fn what_is_no_list_does_no_harm() {
        for bytes in
            [&b""[..], b"\x02", b"\x02\0\0\0", b"\x02\0\0\0\x01", b"\x02\0\0\0\x01\0\xff\xff\0\0\0\0\x10"]
        {
            let (hidden, mode) = hide_list(bytes);
            assert_eq!(hidden.len(), bytes.len());
            assert!(mode <= 0o777);
            show_list(hidden, 0o755);
        }
    }
}

//! Whether a change can be carried out, as far as only the file system knows: asked before it is journaled anywhere, so
//! that what a user asks for amiss is an error to the user and not a failure of the brick.

use crate::object::{OpenObject, S_IFDIR, S_IFLNK};
use crate::open::Brick;
use crate::room::kept_files;
use crate::stubs::mark_of_leaver;
use disk_format::tag;
use disk_format::top::{self, TOP};
use file_system::Opening;
use ids::Fid;
use wire::change::Replaced;
use wire::op::{COPY_NAMES, Intent, Successor};
use wire::{Change, Errno};

/// ext4's bound; all bricks keep to the smallest.
const LINK_MAX: u32 = 65000;
/// With more room than this nobody looks closer.
const PLENTY: u64 = 1 << 30;
/// Room for what a change needs beside its data.
const BESIDE: u64 = 256 << 10;
/// Files of all kinds that bricks lie on may be this long: ext4's old block maps, with the smallest blocks, end here.
const ANY_KIND: u64 = 16 << 30;
/// Lengths are asked about in steps of this, so that a file that grows is asked about once in a while only.
const STEP: u64 = 1 << 30;
/// The kind of fallocate that moves what is behind: `FALLOC_FL_INSERT_RANGE`.
const INSERT: u32 = 0x20;
/// With places for more files than this nobody looks closer: nobody makes so many in a second.
const MANY_FILES: u64 = 100_000;

/// What is known of the lengths that files here may have.
#[derive(Debug, Default)]
pub(crate) struct Lengths {
    /// Any file may be this long: it was asked about.
    allowed: u64,
}

impl Lengths {
    /// Whether a file may end there; asks the file system only if that is not known.
    fn check(&mut self, end: u64, mut ask: impl FnMut(u64) -> Result<(), Errno>) -> Result<(), Errno> {
        if end <= self.allowed {
            return Ok(());
        }
        if end <= ANY_KIND {
            let more = end.next_multiple_of(STEP);
            if ask(more).is_ok() {
                self.allowed = more;
                return Ok(());
            }
        }
        ask(end)
    }
}

impl Brick {
    /// Whether the file system would refuse the change for what it is (a malformed ACL, too many links, attributes that do
    /// not fit, data that there is no room for). The primary asks before it journals.
    ///
    /// # Errors
    /// The refusal.
    pub fn validate(&mut self, change: &Change) -> Result<(), Errno> {
        match change {
            // The file's other names may not be on disk: a power cut would take it with this one.
            Change::Unlink { fid, .. }
            | Change::Rename { replaced: Some(Replaced { fid, dir: false, .. }), .. }
            | Change::Enter { replaced: Some(Replaced { fid, .. }), .. }
            | Change::Swap { out: Replaced { fid, .. }, .. }
            | Change::DepartAll { fid, .. }
                if !self.has_names_on_disk(*fid) =>
            {
                Err(Errno::EAGAIN)
            }
            // A power cut may bring back the mark with which what is here of the file lost a name.
            Change::Enter { fid, .. } | Change::Swap { next: Successor { fid, .. }, .. }
                if !self.has_names_on_disk(*fid) =>
            {
                Err(Errno::EAGAIN)
            }
            Change::Create { .. } | Change::PrepareMkdir { .. } | Change::TakeDir { .. } => self.has_place(),
            Change::Link { fid, .. } if self.fresh(*fid)?.1.nlink >= LINK_MAX => Err(Errno::EMLINK),
            Change::PrepareFile { fid, intent }
            | Change::PrepareMove { fid, intent, .. }
            | Change::PrepareLeave { fid, intent }
            | Change::PrepareExchange { fid, intent, .. }
            | Change::PrepareSwap { fid, intent, .. } => {
                // The intent takes the place of the last one, which a power cut may still bring back.
                let durable = self.durable().lsn;
                if !self.load(*fid)?.has_ended(durable) {
                    return Err(Errno::EAGAIN);
                }
                // Its entry is to lead to a stub or a copy, which is made when there is no way back.
                if matches!(change, Change::PrepareExchange { .. } | Change::PrepareSwap { .. }) {
                    self.has_place()?;
                }
                if intent.drop.is_none() && self.fresh(*fid)?.1.nlink >= LINK_MAX {
                    return Err(Errno::EMLINK);
                }
                let names = mark_of_leaver(change, self.identity.set).map(|(_, names, _)| names);
                self.mark_fits(*fid, intent, names.as_deref())
            }
            Change::Leave { fid, .. } => {
                if !self.has_names_on_disk(*fid) {
                    return Err(Errno::EAGAIN);
                }
                let (_, names, intent) = mark_of_leaver(change, self.identity.set).ok_or(Errno::EINVAL)?;
                self.mark_fits(*fid, &intent, Some(&names))
            }
            Change::SetXattr { fid, name, value, .. } => {
                let open = self.open_fid(*fid)?;
                if name.as_bytes().starts_with(b"system.") {
                    return self.probe(&open, name.as_bytes(), &value.0);
                }
                attributes_fit(&open, name.as_bytes(), value.0.len())
            }
            Change::Write { fid, offset, len, .. } => self.fits(*fid, *offset, (*len).into()),
            Change::CopyRange { to, to_offset, len, .. } => self.fits(*to, *to_offset, *len),
            Change::Fallocate { fid, mode: INSERT, len, .. } => {
                let size = self.fresh(*fid)?.1.size;
                self.may_be_long(*fid, size.saturating_add(*len))
            }
            // A range that no file can have is refused also where the file becomes no longer.
            Change::Fallocate { fid, offset, len, .. } => self.may_be_long(*fid, offset.saturating_add(*len)),
            Change::SetAttr { fid, size: Some(size), .. } => self.may_be_long(*fid, *size),
            _ => Ok(()),
        }
    }

    /// Whether the names that the last transaction gave the file are on disk.
    fn has_names_on_disk(&mut self, fid: Fid) -> bool {
        let durable = self.durable().lsn;
        self.load(fid).map_or(true, |node| node.has_ended(durable))
    }

    /// Whether what a mark means fits beside the file, with a successor, the stamp of its end, and what is there with it.
    fn mark_fits(&mut self, fid: Fid, intent: &Intent, names: Option<&[u8]>) -> Result<(), Errno> {
        let open = self.open_fid(fid)?;
        let beside = names.map_or(0, |names| names.len() + 16 + COPY_NAMES.len());
        attributes_fit(&open, tag::INTENT.as_bytes(), tag::encode_intent(intent).len() + 40 + beside)
    }

    /// Whether the file system holds files of that length, and this process may write them.
    fn may_be_long(&mut self, fid: Fid, end: u64) -> Result<(), Errno> {
        let open = self.open_fid(fid)?;
        self.lengths.check(end, |size| open.check_size(size))
    }

    /// Whether another file or directory can be made here, with what the brick itself makes.
    fn has_place(&mut self) -> Result<(), Errno> {
        let room = self.room()?;
        if room.files_free > MANY_FILES || room.files == 0 {
            return Ok(());
        }
        let free = self.root.space()?.files_free;
        if free > kept_files(room.files) { Ok(()) } else { Err(Errno::ENOSPC) }
    }

    /// Whether this data can be written: a disk that is full after the first half of it leaves a file that is neither old
    /// nor new. What others write meanwhile may still take the room.
    fn fits(&mut self, fid: Fid, offset: u64, len: u64) -> Result<(), Errno> {
        let end = offset.saturating_add(len);
        self.may_be_long(fid, end)?;
        if self.room()?.available > PLENTY.saturating_add(len) {
            return Ok(());
        }
        if self.root.space()?.available > len.saturating_add(BESIDE) {
            return Ok(());
        }
        // Data that lies within the file, where it has no holes, takes no new room.
        let inside = end <= self.fresh(fid)?.1.size;
        let open = self.open_fid(fid)?;
        match open.next_hole(offset) {
            Ok(Some(hole)) if inside && hole >= end => Ok(()),
            _ => Err(Errno::ENOSPC),
        }
    }

    /// Tries an attribute on a file or directory of our own.
    fn probe(&self, like: &OpenObject, name: &[u8], value: &[u8]) -> Result<(), Errno> {
        const AT: &[u8] = b"probe";
        let lost_found = self.folders.lost_found();
        let open = match like.kind {
            S_IFDIR => {
                let _ = lost_found.make_dir(AT, 0o700);
                lost_found.open_at(AT, S_IFDIR)
            }
            S_IFLNK => return Err(Errno::EOPNOTSUPP),
            _ => lost_found.open_own(AT, Opening::AtHand(0o700)),
        };
        let tried = open.and_then(|o| o.set_xattr(name, value));
        let _ = if like.is_dir() { lost_found.remove_dir(AT) } else { lost_found.unlink(AT) };
        tried
    }
}

/// ext4 keeps an object's attributes in one block, Mortar's own among them, which do not show.
fn attributes_fit(open: &OpenObject, name: &[u8], len: usize) -> Result<(), Errno> {
    let space = open.space()?;
    if !space.attributes_in_one_block {
        return Ok(());
    }
    let cost = |name: usize, value: usize| 16 + name.next_multiple_of(4) + value.next_multiple_of(4);
    let top = if open.is_top() { cost(TOP.len(), top::SIZE) } else { 0 };
    let own = cost(tag::XATTR.len(), tag::SIZE) + top;
    let mut sum = 36 + own + cost(name.len(), len);
    for n in open.healed_xattrs()?.iter().filter(|n| *n != name) {
        sum += cost(n.len(), open.whole_xattr(n)?.map_or(0, |v| v.len()));
    }
    let block = usize::try_from(space.block).unwrap_or(4096);
    if sum > block { Err(Errno::ENOSPC) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u64 = 5 << 29;

    fn ask(asked: &mut Vec<u64>, size: u64) -> Result<(), Errno> {
        asked.push(size);
        if size > LIMIT { Err(Errno::EFBIG) } else { Ok(()) }
    }

    #[test]
    fn a_growing_file_is_asked_about_once_a_step() {
        let (mut lengths, mut asked) = (Lengths::default(), Vec::new());
        for end in (0..=2 * STEP).step_by(64 << 20) {
            assert_eq!(lengths.check(end, |size| ask(&mut asked, size)), Ok(()));
        }
        assert_eq!(asked, [STEP, 2 * STEP]);
    }

    #[test]
    fn what_lies_within_a_step_is_asked_about_exactly() {
        let (mut lengths, mut asked) = (Lengths::default(), Vec::new());
        let mut check = |end| lengths.check(end, |size| ask(&mut asked, size));
        assert_eq!((check(LIMIT), check(LIMIT + 1)), (Ok(()), Err(Errno::EFBIG)));
        assert_eq!(check(u64::MAX), Err(Errno::EFBIG));
    }

    #[test]
    fn no_file_speaks_for_another_of_great_length() {
        let (mut lengths, mut asked) = (Lengths::default(), Vec::new());
        let great = ANY_KIND + 1;
        for _ in 0..2 {
            let check = lengths.check(great, |size| {
                asked.push(size);
                Ok(())
            });
            assert_eq!(check, Ok(()));
        }
        assert_eq!(asked, [great, great]);
    }
}

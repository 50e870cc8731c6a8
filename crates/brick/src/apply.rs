//! Carrying out a change.
//!
//! Each step first looks whether it is done already, so that the last record of the journal can be applied again after the
//! server was killed in the middle of it. What a change does to times and versions is said in one place, for applying and
//! for recovering alike (`effects`).

use crate::effects::effects;
use crate::making::NewObject;
use crate::object::OpenObject;
use crate::open::Brick;
use crate::tree::At;
use disk_format::tag::{PENDING, Version};
use ids::{Fid, OpId};
use wire::op::Node as Kind;
use wire::peer::Stamp;
use wire::{Change, Errno};

/// Changes of the index after which a sync is wanted, and is waited for: they are kept in memory until then.
const INDEX_MANY: usize = 1 << 17;
const INDEX_MAX: usize = 1 << 20;

impl Brick {
    /// Journals a change and carries it out. `stamp` must follow the last one.
    ///
    /// If it fails before anything was changed, its record is taken back and the change never was. Otherwise the change is
    /// left in part ([`Brick::is_partial`]): its record stays, and no other change is taken, until the caller has said what
    /// becomes of it, with [`Brick::record_partial`] or [`Brick::abandon_partial`]. What has to be done besides (to bound the
    /// journal and memory) never fails a change that was carried out.
    ///
    /// # Errors
    /// The file system's: `ENOSPC`, `EIO`, `EROFS` and the like; `EINVAL` if the payload does not fit the change; `EIO`
    /// if the stamp does not follow, or the tree is not as the change expects it.
    pub fn apply(
        &mut self,
        stamp: Stamp,
        op: OpId,
        result_fid: Option<Fid>,
        change: &Change,
        payload: &[u8],
    ) -> Result<(), Errno> {
        if self.is_partial() {
            tracing::error!(brick = %self.path.display(), lsn = %stamp.lsn, "the change before it is left in part");
            return Err(Errno::EIO);
        }
        let data_crc = match change {
            Change::Write { .. } if self.identity.arbiter => 0,
            Change::Write { len, .. } if *len as usize != payload.len() => return Err(Errno::EINVAL),
            Change::Write { .. } => disk_format::crc64(&[payload]),
            _ => 0,
        };
        let rolled = self.journal.append(&stamp, op, data_crc, result_fid, change)?;
        self.progress.begins();
        if let Err(e) = self.perform(&stamp, change, Some(payload)) {
            tracing::error!(brick = %self.path.display(), lsn = %stamp.lsn, error = %e, ?change, "a change could not be applied");
            if self.progress.has_begun() {
                self.progress.leave_in_part(change);
            } else if let Err(why) = self.journal.take_back() {
                tracing::error!(brick = %self.path.display(), lsn = %stamp.lsn, %why, "its record could not be taken back");
                self.progress.leave_in_part(change);
            }
            return Err(e);
        }
        if rolled {
            self.bound_journal();
        }
        if self.index.dirty() > INDEX_MAX
            && let Err(e) = self.begin_sync(None).and_then(|job| job.run())
        {
            self.note_late(e);
        }
        Ok(())
    }

    /// Whether so much waits for a sync of everything that it should not wait for its time.
    pub fn wants_sync(&self) -> bool {
        self.index.dirty() > INDEX_MANY
    }

    /// Carries a change out; without payload where the data is there already.
    pub(crate) fn perform(
        &mut self,
        stamp: &Stamp,
        change: &Change,
        payload: Option<&[u8]>,
    ) -> Result<(), Errno> {
        tracing::debug!(brick = %self.path.display(), lsn = %stamp.lsn, ?change, "applies");
        let version = Version::from(stamp);
        self.act(version, change, payload)?;
        for (fid, e) in effects(change) {
            self.touch(fid, version, e)?;
        }
        Ok(())
    }

    fn act(&mut self, version: Version, change: &Change, payload: Option<&[u8]>) -> Result<(), Errno> {
        match change {
            Change::Nop => Ok(()),
            Change::Create { parent, name, fid, home, node, mode, uid, gid, time } => {
                let (fid, home, mode, uid, gid, time) = (*fid, *home, *mode, *uid, *gid, *time);
                let what = NewObject { fid, home, node, mode, uid, gid, time, flags: 0, version };
                self.progress.begins_later();
                self.create(*parent, name.as_bytes(), &what)
            }
            Change::Unlink { parent, name, fid, orphan, .. } => {
                self.unlink(*parent, name.as_bytes(), *fid, *orphan)
            }
            Change::Rmdir { parent, name, fid, .. } => self.rmdir(*parent, name.as_bytes(), *fid),
            Change::Rename { parent, name, fid, to_parent, to_name, replaced, .. } => {
                let out = replaced.as_ref().map(|r| (r.fid, r.orphan));
                self.rename_entry((*parent, name), *fid, (*to_parent, to_name), out)
            }
            Change::Exchange { parent, name, fid, to_parent, to_name, to_fid, .. } => {
                self.exchange((*parent, name, *fid), (*to_parent, to_name, *to_fid))
            }
            Change::Link { fid, parent, name, .. } => self.link(*fid, *parent, name.as_bytes()),
            Change::SetAttr { fid, mode, uid, gid, size, .. } => {
                self.set_attr(*fid, *mode, (*uid, *gid), *size)
            }
            Change::Write { .. } => self.write_data(change, payload),
            Change::Fallocate { fid, mode, offset, len, .. } => self.fallocate(*fid, *mode, *offset, *len),
            Change::SetXattr { fid, name, value, .. } => {
                self.loaded(*fid)?.set_xattr(name.as_bytes(), &value.0)
            }
            Change::RemoveXattr { fid, name, .. } => self.loaded(*fid)?.remove_xattr(name.as_bytes()),
            Change::CopyRange { from, from_offset, to, to_offset, len, .. } => {
                self.copy_range((*from, *from_offset), (*to, *to_offset), *len)
            }
            Change::DropOrphan { fid } => self.drop_orphan(*fid),
            Change::PrepareMkdir { .. } => self.prepare_mkdir(change, version),
            Change::PrepareFile { .. }
            | Change::PrepareExchange { .. }
            | Change::PrepareMove { .. }
            | Change::PrepareSwap { .. } => self.prepare_file(change),
            Change::PrepareLeave { .. } | Change::Leave { .. } => self.mark_leaver(change),
            Change::EndFile { fid, drop, add, orphan, time } => {
                self.end_file(*fid, (drop.as_ref(), add.as_ref()), *orphan, (version, *time))
            }
            Change::Enter { parent, name, fid, home, kind, replaced, time } => {
                let out = replaced.as_ref().map(|r| (r.fid, r.orphan));
                self.enter_stub((*parent, name), (*fid, *home, *kind), out, (version, *time))
            }
            Change::Arrive { .. }
            | Change::Depart { .. }
            | Change::DepartAll { .. }
            | Change::EndCopy { .. }
            | Change::Redirect { .. }
            | Change::ComeHome { .. } => self.travel(change, version),
            Change::MoveOut { .. } | Change::MoveOn { .. } | Change::Swap { .. } => {
                self.move_entry(change, version)
            }
            Change::PrepareRmdir { fid } => self.prepare_rmdir(*fid),
            Change::TakeDir { .. } => self.take_dir(change, version),
            Change::GiveDir { fid, to, time } => self.give_dir(*fid, *to, (version, *time)),
            Change::EndTransaction { keep: true, fid } => self.end_taken(*fid),
            Change::EndTransaction { keep: false, fid } => self.remove_prepared(*fid),
            Change::Relocate { fid, path, name } => self.relocate(*fid, path, name, version),
            Change::Touch { .. } | Change::Partial { .. } => self.keep_times_of(&change.touched()),
        }
    }

    /// [`Change::Write`].
    fn write_data(&mut self, change: &Change, payload: Option<&[u8]>) -> Result<(), Errno> {
        let Change::Write { fid, offset, len, mode, .. } = change else { return Err(Errno::EINVAL) };
        self.progress.begins_later();
        if let Some(p) = payload {
            self.write(*fid, *offset, *len, p)?;
        }
        self.progress.begins();
        mode.map_or(Ok(()), |m| self.open_fid(*fid)?.chmod(m))
    }

    /// The entry of a directory goes to another set, or comes from there.
    fn move_entry(&mut self, change: &Change, version: Version) -> Result<(), Errno> {
        match change {
            Change::MoveOut { .. } => self.move_out(change),
            Change::MoveOn { .. } => self.move_on(change),
            _ => self.swap(change, version),
        }
    }

    /// [`Change::PrepareMkdir`].
    fn prepare_mkdir(&mut self, change: &Change, version: Version) -> Result<(), Errno> {
        let Change::PrepareMkdir { path, name, fid, mode, uid, gid, time } = change else {
            return Err(Errno::EINVAL);
        };
        let (fid, mode, uid, gid, time, flags) = (*fid, *mode, *uid, *gid, *time, PENDING);
        let (home, node) = (self.identity.set, &Kind::Dir);
        self.place(path, name, &NewObject { fid, home, node, mode, uid, gid, time, flags, version })
    }

    /// An object whose tag is in memory, from before it changes.
    pub(crate) fn loaded(&mut self, fid: Fid) -> Result<OpenObject, Errno> {
        self.load(fid)?;
        self.open_fid(fid)
    }

    /// Like [`Brick::keep_times`], of those that are here.
    pub(crate) fn keep_times_of(&mut self, objects: &[Fid]) -> Result<(), Errno> {
        for fid in objects {
            match self.keep_times(*fid) {
                Ok(()) | Err(Errno::ESTALE | Errno::ENOENT) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// The tree is not as the change expects. After a kill that only means "done already".
    pub(crate) fn diverged(&self, parent: Fid, name: &[u8], found: At) -> Result<(), Errno> {
        if self.progress.is_replaying() {
            return Ok(());
        }
        let name = String::from_utf8_lossy(name);
        tracing::error!(brick = %self.path.display(), dir = %parent, %name, ?found, "the brick's tree is not as the change expects");
        Err(Errno::EIO)
    }
}

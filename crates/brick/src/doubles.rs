//! One object under all of its names: what interrupted healings made twice becomes one again.

use crate::object::S_IFDIR;
use crate::open::Brick;
use file_system::File;
use ids::Fid;
use wire::Errno;
use wire::reply::DirEntry;

impl Brick {
    /// Whether a name leads to something that has an object's tag and is not the object. An interrupted healing made it: a
    /// kill may keep what was made from the index, and the next healing made it anew under another name.
    pub(crate) fn is_double(&mut self, dir: &File, name: &[u8], fid: Fid) -> Result<bool, Errno> {
        let Some(known) = self.index.get(fid)? else { return Ok(false) };
        let here = match dir.handle_at(name) {
            Err(Errno::ENOENT) => return Ok(false),
            other => other?,
        };
        Ok(known.handle != here && self.is_known(fid)?)
    }

    /// A file with several names is one file under all of them. A stub that has gone and was made again under another name
    /// is the new one only: a power cut may have left both.
    pub(crate) fn unite(&mut self, dir: Fid, e: &DirEntry) -> Result<(), Errno> {
        let linked = e.attr.as_ref().is_some_and(|a| a.nlink > 1) || e.home != self.identity.set;
        let parent = self.open_dir(dir)?;
        if e.kind == S_IFDIR || !linked || !self.is_double(&parent, e.name.as_bytes(), e.fid)? {
            return Ok(());
        }
        parent.unlink(e.name.as_bytes())?;
        self.link_again(e, dir)
    }
}

//! What the daemon asks of a brick beside changes and reads: its place in the tree, its orphans, its beginning and its end.

use crate::adopt::give_up;
use crate::error::{FormatError, io_errno};
use crate::identity::{check_around, check_file_system, check_inside, own, read_identity};
use crate::marks::MarksJob;
use crate::object::{OpenObject, S_IFDIR};
use crate::open::Brick;
use disk_format::Identity;
use disk_format::tag::ORPHAN;
use file_system::{FileSystem, Host};
use ids::{Fid, SetId};
use std::path::{Path, PathBuf};
use wire::op::EntryName;
use wire::peer::Stamp;
use wire::{Errno, Name};

/// Where a directory hangs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirLocation {
    /// The set that answers for the directory.
    pub home: SetId,
    /// The directory above.
    pub parent: Fid,
    /// The set that answers for the directory above.
    pub parent_home: SetId,
    /// Its name there.
    pub name: Name,
}

impl Brick {
    /// Where a directory hangs in this brick's tree; a copy of another set's directory will do. One of this set that lies in
    /// lost+found is where its entry is, and so is one whose entry has moved to another set than it hangs on.
    ///
    /// # Errors
    /// `ESTALE` if it is not here, or lies in lost+found and its entry is not known.
    pub fn location_of(&mut self, fid: Fid) -> Result<DirLocation, Errno> {
        let home = self.load(fid)?.tag().home;
        let at = self.location(fid)?;
        let Some(parent) = at.parent else { return self.kept_location(fid) };
        let parent_home = self.load(parent)?.tag().home;
        let own = self.identity.set;
        if home == own
            && parent_home != own
            && let Some((parent_home, EntryName { dir: parent, name })) =
                self.kept_elsewhere(fid, parent_home)?
        {
            return Ok(DirLocation { home, parent, parent_home, name });
        }
        let name = Name::new(&at.name).map_err(|_| Errno::ESTALE)?;
        Ok(DirLocation { home, parent, parent_home, name })
    }

    /// Where an object probably is in the volume, for people: its path from the root, if the kernel knows it.
    pub fn path_hint(&mut self, fid: Fid) -> Option<String> {
        let (top, path) = (self.root.path_hint()?, self.open_fid(fid).ok()?.path_hint()?);
        let rest = path.strip_prefix(top.as_slice())?;
        let rest = String::from_utf8_lossy(rest).into_owned();
        match rest.as_str() {
            "" => Some("/".to_owned()),
            r if !r.starts_with('/') || r.ends_with(" (deleted)") || r.starts_with("/.mortar") => None,
            _ => Some(rest),
        }
    }

    /// Bytes of the journal.
    pub fn journal_bytes(&self) -> u64 {
        self.journal.bytes()
    }

    /// Whether the object has no name and is kept only for those who hold it open.
    pub fn is_orphan(&mut self, fid: Fid) -> bool {
        self.load(fid).is_ok_and(|n| n.tag().flags & ORPHAN != 0)
    }

    /// The last change that is in an object; `None` if it is not here.
    pub fn version(&mut self, fid: Fid) -> Option<Stamp> {
        self.load(fid).ok().map(|n| Stamp::from(n.tag().version))
    }

    /// Writes everything out and notes that the brick was closed in order. Nothing may be applied after it.
    ///
    /// # Errors
    /// The kernel's, if something could not be brought to disk.
    pub fn shut(&mut self) -> Result<(), Errno> {
        let trimmed = self.journal.trim();
        self.flush_attrs()?;
        self.begin_marks().map_or(Ok(()), MarksJob::run)?;
        self.begin_sync(None)?.run()?;
        if self.nodes.holds_marks() {
            // Their ends are on disk only now.
            self.flush_attrs()?;
            self.begin_sync(None)?.run()?;
        }
        trimmed?;
        if self.is_partial() {
            // The next opening has to look at the last change again.
            return Err(Errno::EIO);
        }
        self.shared.close()
    }
}

/// Whether [`crate::format`] could make a brick of this directory. Leaves nothing behind.
///
/// # Errors
/// Why it could not.
pub fn check_path(path: &Path) -> Result<(), FormatError> {
    check_around(path)?;
    let io = |doing, e: Errno| match e {
        Errno::EROFS => FormatError::ReadOnly { path: path.to_path_buf() },
        errno => FormatError::Io { path: path.to_path_buf(), doing, errno },
    };
    let made = match std::fs::symlink_metadata(path) {
        Ok(m) if !m.is_dir() => return Err(FormatError::NotDirectory { path: path.to_path_buf() }),
        Ok(_) => {
            check_inside(path)?;
            false
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            std::fs::create_dir(path).map_err(|e| io("create the directory", io_errno(&e)))?;
            true
        }
        Err(e) => return Err(io("look at it", io_errno(&e))),
    };
    let opened = Host.open_dir(path).map_err(|e| io("open", e));
    let checked = opened.and_then(|dir| check_file_system(path, &OpenObject::new(dir, S_IFDIR)));
    if made {
        std::fs::remove_dir(path).map_err(|e| io("remove the trial directory", io_errno(&e)))?;
    }
    checked
}

/// Takes a brick apart: the users' files stay, what makes it a brick goes. Fine if that is gone already.
///
/// # Errors
/// One line that says why it cannot be done.
pub fn release(path: &Path, identity: &Identity) -> Result<(), String> {
    match read_identity(path) {
        Ok(Some(i)) if (i.pool, i.brick) == (identity.pool, identity.brick) => {
            if crate::foreign::is_at_work(path) {
                return Err(format!(
                    "{}: .mortar/foreign holds files that were being adopted: move them out, and remove .mortar",
                    path.display()
                ));
            }
            let root = Host.open_dir(path).map(OpenObject::top);
            let opened = root.and_then(|root| crate::top::open_again(&root));
            opened.map_err(|e| format!("{}: set owner and mode: {e}", path.display()))?;
            std::fs::remove_dir_all(own(path)).map_err(|e| format!("{}: {e}", own(path).display()))
        }
        Ok(Some(i)) => {
            Err(format!("{} is brick {} of volume {} now", path.display(), i.brick, i.volume_name))
        }
        Ok(None) => give_up(path, identity).map_err(|e| format!("{}: {e}", path.display())),
        Err(e) => Err(format!("{}: {e}", path.display())),
    }
}

/// Where the file system of a directory is mounted: the highest directory above it on the same device.
///
/// # Errors
/// The kernel's: mostly that there is no such directory.
pub fn mount_point(path: &Path) -> std::io::Result<PathBuf> {
    use std::os::unix::fs::MetadataExt;
    let path = path.canonicalize()?;
    let device = path.metadata()?.dev();
    let same = |p: &&Path| p.metadata().is_ok_and(|m| m.dev() == device);
    Ok(path.ancestors().take_while(same).last().unwrap_or(&path).to_path_buf())
}

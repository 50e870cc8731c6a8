//! The folders in `.mortar` that hold objects: files without a name, directories that lost their place (lost+found), and
//! what a healing took out of its place. An object's name there is its fid.

use crate::error::OpenError;
use crate::object::S_IFDIR;
use crate::open::Site;
use file_system::{File, Renaming};
use ids::{Fid, SetId};
use std::ops::Deref;
use std::sync::Arc;
use wire::Errno;

/// The name of an object in `.mortar/orphans` and `.mortar/limbo`.
pub(crate) fn hidden_name(fid: Fid) -> String {
    format!("{:08x}{:08x}{:016x}", fid.set.0, fid.epoch.0, fid.lsn.0)
}

/// The reverse of [`hidden_name`].
pub(crate) fn hidden_fid(name: &[u8]) -> Option<Fid> {
    let text = std::str::from_utf8(name).ok().filter(|t| t.len() == 32)?;
    let part = |r: std::ops::Range<usize>| text.get(r).and_then(|s| u64::from_str_radix(s, 16).ok());
    Some(Fid {
        set: SetId(u32::try_from(part(0..8)?).ok()?),
        epoch: ids::Epoch(u32::try_from(part(8..16)?).ok()?),
        lsn: ids::Lsn(part(16..32)?),
    })
}

/// One of the folders.
pub(crate) struct Folder(Arc<File>);

impl Deref for Folder {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl Folder {
    /// For work on other threads.
    pub(crate) fn share(&self) -> Arc<File> {
        self.0.clone()
    }

    /// Moves an object here from its name in a directory.
    pub(crate) fn receive(&self, dir: &File, name: &[u8], fid: Fid) -> Result<(), Errno> {
        dir.rename(name, &self.0, hidden_name(fid).as_bytes(), Renaming::Replace)
    }

    /// Moves a directory here although an older one with its fid may lie here: what it holds goes into that one then. A file
    /// keeps each name that it has until the end, where it may be looked for.
    pub(crate) fn receive_again(&self, dir: &File, name: &[u8], fid: Fid) -> Result<(), Errno> {
        match self.receive(dir, name, fid) {
            Err(Errno::ENOTEMPTY | Errno::EEXIST) => {}
            other => return other,
        }
        let older = self.0.open_at(hidden_name(fid).as_bytes(), S_IFDIR)?;
        let newer = dir.open_at(name, S_IFDIR)?;
        for held in crate::scan::names(&newer)? {
            let mut to = held.clone();
            let mut number = 0_u32;
            while let Err(e) = newer.rename(&held, &older, &to, Renaming::NoReplace) {
                if e != Errno::EEXIST {
                    return Err(e);
                }
                to = format!("{}-{number}", hidden_name(fid)).into_bytes();
                number = number.saturating_add(1);
            }
        }
        dir.remove_dir(name)
    }

    /// Gives an object that lies here this name.
    pub(crate) fn release(&self, fid: Fid, to: &File, name: &[u8]) -> Result<(), Errno> {
        self.0.rename(hidden_name(fid).as_bytes(), to, name, Renaming::Replace)
    }

    /// Gives an object one more name, here.
    pub(crate) fn link_here(&self, object: &File, fid: Fid) -> Result<(), Errno> {
        object.link(&self.0, hidden_name(fid).as_bytes())
    }

    /// Takes the name here from a file.
    pub(crate) fn remove(&self, fid: Fid) -> Result<(), Errno> {
        self.0.unlink(hidden_name(fid).as_bytes())
    }

    /// Whether the object lies here.
    pub(crate) fn holds(&self, fid: Fid) -> Result<bool, Errno> {
        match self.0.stat_at(hidden_name(fid).as_bytes()) {
            Ok(_) => Ok(true),
            Err(Errno::ENOENT) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Goes over the objects that lie here, until `each` answers false.
    pub(crate) fn each(&self, each: &mut dyn FnMut(Fid) -> bool) -> Result<(), Errno> {
        self.0.list(&mut |name, _, _| hidden_fid(name).is_none_or(&mut *each))
    }

    /// What lists the objects that lie here; `None` if none does.
    pub(crate) fn begin_list(&self) -> Result<Option<HiddenJob>, Errno> {
        let mut any = false;
        self.each(&mut |_| {
            any = true;
            false
        })?;
        Ok(any.then(|| HiddenJob(self.share())))
    }
}

/// Lists the objects in one of Mortar's own folders, of which there may be very many. Runs on any thread.
#[must_use = "nothing is read before it has run"]
pub struct HiddenJob(Arc<File>);

impl HiddenJob {
    /// Does it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn run(self) -> Result<Vec<Fid>, Errno> {
        let mut found = Vec::new();
        self.0.list(&mut |name, _, _| {
            found.extend(hidden_fid(name));
            true
        })?;
        Ok(found)
    }
}

/// The folders of a brick.
pub(crate) struct Folders {
    orphans: Folder,
    lost_found: Folder,
    heal_trash: Folder,
    /// What was forgotten of the heal trash since it was listed.
    forgotten: Option<Vec<Fid>>,
}

impl Folders {
    pub(crate) fn open(at: &Site) -> Result<Folders, OpenError> {
        let folder = |name| at.folder(name).map(|file| Folder(Arc::new(file)));
        Ok(Folders {
            orphans: folder("orphans")?,
            lost_found: folder("limbo")?,
            heal_trash: folder("aside")?,
            forgotten: None,
        })
    }

    /// Files without a name.
    pub(crate) fn orphans(&self) -> &Folder {
        &self.orphans
    }

    /// Directories that lost their place, and what is not ours and was in the way.
    pub(crate) fn lost_found(&self) -> &Folder {
        &self.lost_found
    }

    /// What was forgotten of the heal trash since it was listed, if it was.
    pub(crate) fn forgotten(&mut self) -> &mut Option<Vec<Fid>> {
        &mut self.forgotten
    }

    /// What a healing took out of its place.
    pub(crate) fn heal_trash(&self) -> &Folder {
        &self.heal_trash
    }

    /// All of them.
    pub(crate) fn all(&self) -> [&Folder; 3] {
        [&self.orphans, &self.lost_found, &self.heal_trash]
    }
}

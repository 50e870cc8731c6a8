//! Files that somebody put into a brick in use, and that are to join the volume: `mortar volume adopt` (docs/design/0020).
//!
//! What has no tag is nobody's, and its name is taken. It is moved to `.mortar/foreign` first, with a note of where it
//! belongs; then it is made anew through the volume, and goes when all bricks have it on disk. What is there after a crash
//! says where to go on.
//!
//! Any thread may do this: what has no tag is not touched by the brick's own thread.

mod object;

pub use disk_format::adoption::Became;
pub use object::{ForeignAttribute, ForeignObject};

use crate::identity::own;
use crate::object::{OpenObject, S_IFDIR, S_IFMT, tag_at};
use crate::scan::names;
use disk_format::adoption::{PLACE, Parent};
use disk_format::tag::PENDING;
use file_system::{File, FileSystem, Handle, Host, Renaming, Stat};
use ids::{Fid, SetId};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wire::name::RESERVED;
use wire::{Errno, Name};

/// The folder in `.mortar`. In each folder in it lies one object under its name; the note of where it belongs is an attribute
/// of that folder, not of the object: a file may have several names.
pub(crate) const FOLDER: &[u8] = b"foreign";
/// What changed less than so many seconds ago may be a change's that is at work: it gets its tag after it was made.
const FRESH: i64 = 2;

/// Where something belongs in the volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ForeignPlace {
    /// The directory.
    pub dir: Fid,
    /// The set that answers for it.
    pub home: SetId,
    /// The name there.
    pub name: Name,
}

/// Something without a tag.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FoundForeign {
    /// From the brick's top.
    pub path: PathBuf,
    /// Where it belongs.
    pub place: ForeignPlace,
    /// It changed just now: it may be what a change at work has made, and gets its tag at once.
    pub fresh: bool,
    at: Handle,
}

/// What is foreign in one brick.
#[derive(Debug)]
pub struct ForeignFiles {
    path: PathBuf,
    root: OpenObject,
    folder: Arc<File>,
}

impl ForeignFiles {
    /// Of the brick at `path`.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open(path: &Path) -> Result<ForeignFiles, Errno> {
        let root = OpenObject::top(Host.open_dir(path)?);
        let meta = root.open_at(RESERVED, S_IFDIR)?;
        crate::identity::make_folder(&meta, FOLDER)?;
        let folder = Arc::new(meta.open_at(FOLDER, S_IFDIR)?);
        Ok(ForeignFiles { path: path.to_path_buf(), root, folder })
    }

    /// Calls `each` with whatever has no tag beneath `below`, a path from the brick's top, until it answers false. What is
    /// in a directory without a tag is not told of its own.
    ///
    /// # Errors
    /// `ENOENT` if there is no such path; else the kernel's.
    pub fn find(&self, below: &Path, each: &mut dyn FnMut(FoundForeign) -> bool) -> Result<(), Errno> {
        let mut todo: Vec<(Handle, PathBuf)> = Vec::new();
        match self.start(below)? {
            Seen::Dir(handle, path) => todo.push((handle, path)),
            Seen::Foreign(found) => {
                each(*found);
            }
            Seen::Ours => {}
        }
        while let Some((at, path)) = todo.pop() {
            let dir = match self.root.open_handle(&at, S_IFDIR) {
                Err(Errno::ESTALE) => continue,
                other => OpenObject::new(other?, S_IFDIR),
            };
            let top = path.as_os_str().is_empty();
            for name in names(&dir)?.into_iter().filter(|n| !(top && is_kept(n))) {
                let full = path.join(OsStr::from_bytes(&name));
                match look(&dir, &name, full) {
                    Err(Errno::ENOENT | Errno::ESTALE) => {}
                    Ok(Seen::Foreign(found)) => {
                        if !each(*found) {
                            return Ok(());
                        }
                    }
                    Ok(Seen::Dir(handle, path)) => todo.push((handle, path)),
                    Ok(Seen::Ours) => {}
                    Err(e) => return Err(e),
                }
            }
        }
        Ok(())
    }

    /// Where a search begins.
    fn start(&self, below: &Path) -> Result<Seen, Errno> {
        let mut dir = self.root.clone();
        let mut at = PathBuf::new();
        for name in below.iter() {
            at.push(name);
            match look(&dir, name.as_bytes(), at.clone())? {
                Seen::Dir(handle, _) => dir = OpenObject::new(dir.open_handle(&handle, S_IFDIR)?, S_IFDIR),
                other => return Ok(other),
            }
        }
        Ok(Seen::Dir(dir.handle()?, at))
    }

    /// Moves it to `.mortar/foreign`. `None`: it has a tag now, or is gone, or is too new to be told from a change that is at
    /// work: look again a little later.
    ///
    /// # Errors
    /// The kernel's.
    pub fn take_out(&self, found: &FoundForeign) -> Result<Option<ForeignObject>, Errno> {
        let name = found.place.name.as_bytes();
        let dir = match self.root.open_handle(&found.at, S_IFDIR) {
            Err(Errno::ESTALE) => return Ok(None),
            other => other?,
        };
        let stat = match dir.stat_at(name) {
            Err(Errno::ENOENT) => return Ok(None),
            other => other?,
        };
        if is_fresh(&dir, &stat) || tag_at(&dir, name)?.is_some() {
            return Ok(None);
        }
        let (number, folder) = self.new_folder()?;
        let place = Parent { dir: found.place.dir, home: found.place.home };
        folder.set_xattr(PLACE.as_bytes(), &place.encode())?;
        folder.sync()?;
        dir.rename(name, &folder, name, Renaming::NoReplace)?;
        if tag_at(&folder, name)?.is_some() {
            // A change was at work on it after all.
            folder.rename(name, &dir, name, Renaming::NoReplace)?;
            self.folder.remove_dir(number.as_bytes())?;
            return Ok(None);
        }
        dir.sync()?;
        folder.sync()?;
        self.folder.sync()?;
        ForeignObject::new(Arc::new(folder), name.to_vec(), self.folder_path().join(number)).map(Some)
    }

    fn new_folder(&self) -> Result<(String, File), Errno> {
        for n in 0u32..u32::MAX {
            let name = n.to_string();
            match self.folder.make_dir(name.as_bytes(), 0o700) {
                Ok(()) => return Ok((name.clone(), self.folder.open_at(name.as_bytes(), S_IFDIR)?)),
                Err(Errno::EEXIST) => {}
                Err(e) => return Err(e),
            }
        }
        Err(Errno::ENOSPC)
    }

    /// What lies in `.mortar/foreign`, and where it belongs. Folders of what has gone go, too.
    ///
    /// # Errors
    /// The kernel's.
    pub fn kept(&self) -> Result<Vec<(ForeignPlace, ForeignObject)>, Errno> {
        let mut all = Vec::new();
        let mut numbers = names(&self.folder)?;
        numbers.sort();
        for number in numbers {
            let folder = Arc::new(self.folder.open_at(&number, S_IFDIR)?);
            let mut inside = names(&folder)?;
            let Some(name) = inside.pop() else {
                self.folder.remove_dir(&number)?;
                continue;
            };
            let Some(place) = folder.whole_xattr(PLACE.as_bytes())? else { continue };
            if let (Ok(Parent { dir, home }), Ok(own_name)) = (Parent::decode(&place), Name::new(&name)) {
                let place = ForeignPlace { dir, home, name: own_name };
                let path = self.folder_path().join(OsStr::from_bytes(&number));
                all.push((place, ForeignObject::new(folder, name, path)?));
            }
        }
        Ok(all)
    }

    fn folder_path(&self) -> PathBuf {
        own(&self.path).join(OsStr::from_bytes(FOLDER))
    }
}

/// Whether anything that is being adopted lies in the brick at `path`.
pub(crate) fn is_at_work(path: &Path) -> bool {
    let folder = own(path).join(OsStr::from_bytes(FOLDER));
    std::fs::read_dir(folder).is_ok_and(|mut names| names.next().is_some())
}

/// At the top: Mortar's own folder, and the one that mkfs makes.
fn is_kept(name: &[u8]) -> bool {
    name == RESERVED || name == b"lost+found"
}

/// What a search meets.
enum Seen {
    Dir(Handle, PathBuf),
    Foreign(Box<FoundForeign>),
    Ours,
}

fn look(dir: &OpenObject, name: &[u8], path: PathBuf) -> Result<Seen, Errno> {
    let stat = dir.stat_at(name)?;
    let is_tagged = match tag_at(dir, name) {
        // A damaged tag is for `brick check`.
        Err(Errno::EIO) => true,
        other => other?.is_some(),
    };
    if is_tagged {
        let is_dir = stat.mode & S_IFMT == S_IFDIR;
        return if is_dir { Ok(Seen::Dir(dir.handle_at(name)?, path)) } else { Ok(Seen::Ours) };
    }
    let tag = match dir.tag() {
        Err(Errno::EIO) => None,
        other => other?,
    };
    let (Some(tag), Ok(name)) = (tag, Name::new(name)) else { return Ok(Seen::Ours) };
    // A directory that waits for the end of a transaction takes no entries.
    if tag.flags & PENDING != 0 {
        return Ok(Seen::Ours);
    }
    let place = ForeignPlace { dir: tag.fid, home: tag.home, name };
    let fresh = is_fresh(dir, &stat);
    Ok(Seen::Foreign(Box::new(FoundForeign { path, place, fresh, at: dir.handle()? })))
}

/// What a change at work has made has one name. Of a file with several, each name that is moved makes the others look new.
fn is_fresh(dir: &File, stat: &Stat) -> bool {
    let linked = stat.nlink > 1 && stat.mode & S_IFMT != S_IFDIR;
    !linked && stat.ctime.sec + FRESH > dir.now().sec
}

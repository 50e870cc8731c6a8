//! One foreign object is made anew through the volume, and goes.
//!
//! A file is made under a name of its own, filled and synced; then it gets its name, if that is still free, and that is
//! synced, too; then the old one goes. The note of what it became makes it the same file if this is done again, and if the
//! old one has further names.

use super::Run;
use brick::{Became, ForeignObject};
use client::{Client, NewEntry, Object, Span};
use ids::Time;
use std::time::{Duration, Instant};
use wire::op::{Node, SetAttr, SetTime, rename_flags};
use wire::{Errno, Name};

/// Bytes that are copied at a time; at least as long as that took nothing is done afterwards.
const SLICE: u64 = 256 << 10;
/// The longest of these pauses.
const PAUSE: Duration = Duration::from_millis(200);
/// What a new object may have got from its directory, and the old one does not have.
const INHERITED: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];

/// Why something is left where it is.
#[derive(Debug, thiserror::Error)]
enum Left {
    #[error(
        "the volume has that name by now: move this out of the brick, or remove the other one and run this again"
    )]
    Taken,
    #[error("it changed while it was read: run this again")]
    Changed,
    #[error("{0}")]
    Errno(#[from] Errno),
}

/// See the module.
pub(super) struct Taker<'a> {
    client: &'a Client,
    run: &'a Run,
}

impl<'a> Taker<'a> {
    pub(super) fn new(client: &'a Client, run: &'a Run) -> Taker<'a> {
        Taker { client, run }
    }

    /// Whether nothing of it is left.
    pub(super) fn take(&self, parent: Object, name: &Name, object: ForeignObject) -> bool {
        let path = object.path().to_path_buf();
        let begun = Instant::now();
        let done = if object.is_dir() {
            self.take_dir(parent, name, object)
        } else {
            self.take_file(parent, name, object).map(|()| true)
        };
        std::thread::sleep(begun.elapsed().min(PAUSE));
        done.unwrap_or_else(|why| {
            self.run.left(&path, &why.to_string());
            false
        })
    }

    fn take_dir(&self, parent: Object, name: &Name, object: ForeignObject) -> Result<bool, Left> {
        let (dir, made) = self.make_dir(parent, name, &object)?;
        let mut whole = true;
        for (name, child) in object.children()? {
            whole &= Name::new(&name).is_ok_and(|name| self.take(dir, &name, child));
        }
        if whole {
            if let Some(made) = made {
                self.client.setattr(dir, times(made.atime, made.mtime))?;
            }
            self.client.fsync(dir)?;
            object.remove()?;
            self.run.took(|report| report.directories += 1);
        }
        Ok(whole)
    }

    /// What it became when this was done before, if the volume has that still.
    fn known(&self, object: &ForeignObject) -> Result<Option<(Object, Became)>, Errno> {
        let Some(became) = object.became()? else { return Ok(None) };
        let known = Object { fid: became.fid, home: became.home };
        match self.client.getattr(known) {
            Ok(_) => Ok(Some((known, became))),
            Err(Errno::ESTALE | Errno::ENOENT) => Ok(None),
            Err(why) => Err(why),
        }
    }

    /// A directory that the volume has by now takes in what this one holds.
    fn make_dir(
        &self,
        parent: Object,
        name: &Name,
        object: &ForeignObject,
    ) -> Result<(Object, Option<Became>), Left> {
        if let Some((dir, made)) = self.known(object)? {
            return Ok((dir, Some(made)));
        }
        match self.client.create(parent, entry(name.clone(), Node::Dir, object)) {
            Ok(attr) => {
                let dir = Object::from(&attr);
                self.dress(object, dir)?;
                Ok((dir, Some(note_became(object, dir)?)))
            }
            Err(Errno::EEXIST) => {
                let attr = self.client.lookup(parent, name)?;
                let is_dir = attr.mode & file_system::S_IFMT == file_system::S_IFDIR;
                if is_dir { Ok((Object::from(&attr), None)) } else { Err(Left::Taken) }
            }
            Err(why) => Err(why.into()),
        }
    }

    fn take_file(&self, parent: Object, name: &Name, object: ForeignObject) -> Result<(), Left> {
        let own = format!(".mortar-adopt-{:x}", object.stat().ino);
        let own = Name::new(own.as_bytes()).map_err(|_| Errno::EINVAL)?;
        match self.known(&object)? {
            Some((known, _)) => {
                match self.client.lookup(parent, name) {
                    Ok(attr) if attr.fid == known.fid => {}
                    Ok(_) => return Err(Left::Taken),
                    Err(Errno::ENOENT) => {
                        self.client.link(known, parent, name.clone())?;
                    }
                    Err(why) => return Err(why.into()),
                }
                self.unlink(parent, &own)?;
                self.client.fsync(known)?;
            }
            None => self.make_file(parent, (own, name), &object)?,
        }
        object.remove()?;
        self.run.took(|report| report.files += 1);
        Ok(())
    }

    fn make_file(
        &self,
        parent: Object,
        (own, name): (Name, &Name),
        object: &ForeignObject,
    ) -> Result<(), Left> {
        self.unlink(parent, &own)?;
        let new = entry(own.clone(), object.node()?, object);
        let file = Object::from(&self.client.create(parent, new)?);
        let filled = self.fill(object, file);
        if filled.is_err() {
            self.unlink(parent, &own)?;
        }
        filled?;
        let to = (parent, name.clone());
        match self.client.rename((parent, own.clone()), to, rename_flags::NOREPLACE) {
            Ok(()) => Ok(self.client.fsync(file)?),
            Err(Errno::EEXIST) => {
                self.unlink(parent, &own)?;
                Err(Left::Taken)
            }
            Err(why) => Err(why.into()),
        }
    }

    fn fill(&self, object: &ForeignObject, file: Object) -> Result<(), Left> {
        if object.is_file() {
            self.copy(object, file)?;
        }
        self.dress(object, file)?;
        let stat = object.stat();
        self.client.setattr(file, times(stat.atime, stat.mtime))?;
        if !object.is_unchanged()? {
            return Err(Left::Changed);
        }
        self.client.fsync(file)?;
        note_became(object, file)?;
        Ok(())
    }

    fn copy(&self, object: &ForeignObject, to: Object) -> Result<(), Left> {
        let (from, size) = (object.open()?, object.stat().size);
        let mut at = 0;
        while at < size {
            let Some(data) = from.next_data(at)? else { break };
            let end = from.next_hole(data)?.unwrap_or(size).min(size);
            at = data;
            while at < end {
                let begun = Instant::now();
                let len = (end - at).min(SLICE);
                let part = from.read(at, usize::try_from(len).unwrap_or(usize::MAX), false)?;
                if part.is_empty() {
                    return Err(Left::Changed);
                }
                self.write(to, at, &part)?;
                at += part.len() as u64;
                self.run.took(|report| report.bytes += part.len() as u64);
                std::thread::sleep(begun.elapsed().min(PAUSE));
            }
        }
        self.client.setattr(to, SetAttr { size: Some(size), ..unchanged() })?;
        Ok(())
    }

    fn write(&self, to: Object, offset: u64, data: &[u8]) -> Result<(), Left> {
        let mut done = 0;
        while let Some(rest) = data.get(done..).filter(|rest| !rest.is_empty()) {
            let at = Span { offset: offset + done as u64, ..Span::default() };
            match self.client.write(to, at, rest)?.0 {
                0 => return Err(Errno::EIO.into()),
                n => done += n as usize,
            }
        }
        Ok(())
    }

    /// Owner, mode, ACLs and attributes.
    fn dress(&self, object: &ForeignObject, new: Object) -> Result<(), Left> {
        let (stat, wanted) = (object.stat(), object.attributes()?);
        let is_link = stat.mode & file_system::S_IFMT == file_system::S_IFLNK;
        for name in INHERITED.into_iter().filter(|n| !is_link && !wanted.iter().any(|w| w.name == *n)) {
            match self.client.removexattr(new, Name::new(name).map_err(|_| Errno::EINVAL)?) {
                Ok(()) | Err(Errno::ENODATA | Errno::EOPNOTSUPP) => {}
                Err(why) => return Err(why.into()),
            }
        }
        self.client.setattr(new, SetAttr { uid: Some(stat.uid), gid: Some(stat.gid), ..unchanged() })?;
        for attribute in &wanted {
            let name = Name::new(&attribute.name).map_err(|_| Errno::EINVAL)?;
            self.client.setxattr(new, name, &attribute.value, 0)?;
        }
        if !is_link {
            self.client.setattr(new, SetAttr { mode: Some(stat.mode & 0o7777), ..unchanged() })?;
        }
        Ok(())
    }

    fn unlink(&self, parent: Object, name: &Name) -> Result<(), Errno> {
        match self.client.unlink(parent, name.clone()) {
            Err(Errno::ENOENT) => Ok(()),
            other => other,
        }
    }
}

/// Notes what it became, with the times that it had.
fn note_became(object: &ForeignObject, new: Object) -> Result<Became, Errno> {
    let stat = object.stat();
    let became = Became { fid: new.fid, home: new.home, atime: stat.atime, mtime: stat.mtime };
    object.note_became(&became)?;
    Ok(became)
}

fn entry(name: Name, node: Node, object: &ForeignObject) -> NewEntry {
    let stat = object.stat();
    NewEntry { name, node, mode: stat.mode & 0o7777, umask: 0, uid: stat.uid, gid: stat.gid }
}

fn unchanged() -> SetAttr {
    SetAttr { mode: None, uid: None, gid: None, size: None, atime: None, mtime: None, kill_suid: false }
}

fn times(atime: Time, mtime: Time) -> SetAttr {
    let at = |time| Some(SetTime::At { time });
    SetAttr { atime: at(atime), mtime: at(mtime), ..unchanged() }
}

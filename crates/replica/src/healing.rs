//! A healing under way: what [`crate::heal`] decides, done on a brick, whichever it is.

use crate::heal::{Ask, Healer, Live, Order};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use ids::{Fid, Lsn, OpId, SetId};
use wire::codec::Blob;
use wire::peer::{Object, PeerBody, Stamp};
use wire::reply::DirEntry;
use wire::{Change, Errno};

const DIR: u32 = 0o040_000;

/// A brick, as far as healing needs it: the daemon's, or the simulator's model of one.
///
/// Errors are the kernel's. `ESTALE` and `ENOENT` say that there is no such object here; after any other the brick cannot
/// go on.
#[allow(clippy::missing_errors_doc, reason = "said once for all")]
pub trait Patient {
    /// The order of names in a directory, the same on every brick.
    const ORDER: Order;

    /// Its set.
    fn set(&self) -> SetId;
    /// The volume's root, if this set answers for it.
    fn own_root(&self) -> Option<Fid>;
    /// Whether it holds no file data.
    fn is_arbiter(&self) -> bool;
    /// Objects in doubt beside what the journal says; `None` if nothing is in doubt.
    fn doubtful(&self) -> Option<Vec<Fid>>;
    /// The file to which the last change may have been done by half.
    fn incomplete(&self) -> Option<Fid>;
    /// Shows the journal's changes after a position.
    fn changes_after(&mut self, lsn: Lsn, each: &mut dyn FnMut(&Change)) -> Result<(), Errno>;
    /// From now on the tree may not be as the journal says from that position on, nor these objects. Known after any crash.
    fn begin_heal(&mut self, from: Lsn, objects: &[Fid]) -> Result<(), Errno>;
    /// Cuts the journal's end off, what comes after `common`.
    fn cut_journal(&mut self, common: &Stamp) -> Result<(), Errno>;
    /// Begins the journal anew after this position.
    fn reset_journal(&mut self, last: &Stamp) -> Result<(), Errno>;
    /// Journals a change.
    fn note(&mut self, change: Arriving<'_>) -> Result<(), Errno>;
    /// Journals a change and carries it out.
    fn apply(&mut self, change: Arriving<'_>) -> Result<(), Errno>;
    /// The last change in an object.
    fn version(&mut self, fid: Fid) -> Option<Stamp>;
    /// Gives an object these attributes. False if there is no such object here.
    fn take_object(&mut self, fid: Fid, object: &Object) -> Result<bool, Errno>;
    /// Makes the entries of a directory after `after` and up to `upto` (to the end if `None`) those given. What is there
    /// beside them is put aside. Answers what was missing and is made now, still empty.
    fn take_entries(
        &mut self,
        dir: Fid,
        after: u64,
        upto: Option<u64>,
        entries: &[DirEntry],
        targets: &[(Fid, Blob)],
    ) -> Result<Vec<Made>, Errno>;
    /// Takes over file data.
    fn take_data(&mut self, fid: Fid, offset: u64, data: &[u8]) -> Result<(), Errno>;
}

/// An object that a directory's comparison found missing here, and made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Made {
    /// The object.
    pub fid: Fid,
    /// Whether it is a directory.
    pub dir: bool,
}

/// A brick's healing, from the primary's welcome until nothing is dirty.
#[derive(Clone, Debug)]
pub struct Healing {
    healer: Healer,
    full: bool,
    live: bool,
    /// Something was in doubt before: an object's version does not say what is in it.
    doubted: bool,
    /// With a full comparison: objects whose version here no longer says what is in them.
    taken: BTreeSet<Fid>,
}

/// A change of the primary's stream.
#[derive(Clone, Copy, Debug)]
pub struct Arriving<'a> {
    /// Its place in the order.
    pub stamp: &'a Stamp,
    /// The operation it came from.
    pub op: OpId,
    /// The object that its answer is about.
    pub about: Option<Fid>,
    /// What changes.
    pub change: &'a Change,
    /// Its data.
    pub payload: &'a [u8],
}

impl Healing {
    /// The primary says where the journals part: what this brick has beyond is in doubt, and leaves its journal (with
    /// `full` the whole journal does, once the primary's position is known).
    ///
    /// # Errors
    /// The kernel's.
    pub fn begin<P: Patient>(brick: &mut P, common: &Stamp, full: bool) -> Result<Healing, Errno> {
        let mut healer = Healer::new(P::ORDER, full);
        let mut cut: Vec<Fid> = Vec::new();
        if !full {
            brick.changes_after(common.lsn, &mut |change| {
                cut.extend(change.touched());
                healer.mark(change);
            })?;
        }
        let doubted = brick.doubtful().is_some();
        // What a change left by half is in doubt even after it was cut off, or this process has ended.
        cut.extend(brick.incomplete());
        brick.begin_heal(if full { Lsn(0) } else { common.lsn }, &cut)?;
        for fid in brick.doubtful().unwrap_or_default() {
            healer.mark_unknown(fid);
        }
        if !full {
            brick.cut_journal(common)?;
        }
        Ok(Healing { healer, full, live: false, doubted, taken: BTreeSet::new() })
    }

    /// The primary sent all that was missed up to `last`; `placed` is what a comparison from the root does not meet.
    ///
    /// # Errors
    /// The kernel's.
    pub fn go_live<P: Patient>(&mut self, brick: &mut P, last: &Stamp, placed: &[Fid]) -> Result<(), Errno> {
        self.live = true;
        if self.full {
            if let Some(root) = brick.own_root() {
                self.healer.mark_dir(root);
            }
            for fid in placed {
                self.healer.mark_unknown(*fid);
            }
            brick.reset_journal(last)?;
        }
        Ok(())
    }

    /// Whether everything is compared, because the primary's journal does not reach back.
    pub fn is_full(&self) -> bool {
        self.full
    }

    /// Whether nothing is dirty any more.
    pub fn is_done(&self) -> bool {
        self.live && self.healer.is_done()
    }

    /// Objects healed, objects known to need it, bytes copied.
    pub fn progress(&self) -> (u64, u64, u64) {
        (self.healer.done, self.healer.done + self.healer.left(), self.healer.bytes)
    }

    /// The next question to the primary, if one may go out now.
    pub fn ask(&mut self) -> Option<PeerBody> {
        if !self.live {
            return None;
        }
        Some(match self.healer.ask()? {
            Ask::Meta(fid) => PeerBody::AskObject { fid },
            Ask::Entries(fid, after) => PeerBody::AskEntries { fid, after },
            Ask::Data(fid, offset, len) => PeerBody::AskData { fid, offset, len },
        })
    }

    /// A change of the stream: journaled, and applied if all it needs is clean.
    ///
    /// # Errors
    /// The kernel's: the brick cannot go on.
    pub fn apply<P: Patient>(&mut self, brick: &mut P, a: Arriving<'_>) -> Result<(), Errno> {
        if !self.live {
            self.healer.mark(a.change);
            return brick.note(a);
        }
        if self.healer.live(a.change) == Live::Skip {
            return brick.note(a);
        }
        if self.full {
            // A new name or the loss of one gives an object the version of that change, whatever is in it.
            self.taken.extend(a.change.touched());
        }
        match brick.apply(a) {
            // The tree here is not as it should be: compared anew.
            Err(e) if !matches!(e, Errno::ENOSPC | Errno::EROFS) => {
                self.healer.mark(a.change);
                brick.note(a)
            }
            other => other,
        }
    }

    /// The primary's answer to a question.
    ///
    /// # Errors
    /// The kernel's: the brick cannot go on.
    pub fn take<P: Patient>(
        &mut self,
        brick: &mut P,
        answer: &PeerBody,
        payload: &[u8],
    ) -> Result<(), Errno> {
        match answer {
            PeerBody::Object { fid, object } => self.take_object(brick, *fid, object.as_ref()),
            PeerBody::Entries { fid, after, upto, entries, targets } => {
                self.take_entries(brick, *fid, (*after, *upto), entries, targets)
            }
            PeerBody::Data { fid, offset, len, end } => match brick.take_data(*fid, *offset, payload) {
                Err(Errno::ESTALE | Errno::ENOENT) => {
                    self.healer.got_nothing(*fid);
                    Ok(())
                }
                other => {
                    other?;
                    self.healer.got_data(*fid, *offset, *len, *end);
                    Ok(())
                }
            },
            _ => Ok(()),
        }
    }

    fn take_object<P: Patient>(
        &mut self,
        brick: &mut P,
        fid: Fid,
        object: Option<&Object>,
    ) -> Result<(), Errno> {
        let Some(object) = object else {
            self.healer.got_nothing(fid);
            return Ok(());
        };
        let seen = self.full && !self.taken.insert(fid);
        let trusted = self.full && !seen && !self.doubted && !self.healer.is_fresh(fid);
        let same =
            trusted && object.version.lsn > Lsn(0) && brick.version(fid).as_ref() == Some(&object.version);
        if !brick.take_object(fid, object)? {
            self.healer.got_nothing(fid);
            return Ok(());
        }
        let regular = object.attr.mode & 0o170_000 == 0o100_000;
        let data = regular && !same && !brick.is_arbiter();
        self.healer.got_meta(fid, if data { object.attr.size } else { 0 }, object.attr.is_dir());
        Ok(())
    }

    fn take_entries<P: Patient>(
        &mut self,
        brick: &mut P,
        fid: Fid,
        (after, upto): (u64, Option<u64>),
        entries: &[DirEntry],
        targets: &[(Fid, Blob)],
    ) -> Result<(), Errno> {
        let made = match brick.take_entries(fid, after, upto, entries, targets) {
            Err(Errno::ESTALE | Errno::ENOENT) => {
                self.healer.got_nothing(fid);
                return Ok(());
            }
            other => other?,
        };
        if self.full {
            let own = brick.set();
            for e in entries.iter().filter(|e| e.home == own) {
                self.healer.mark_met(e.fid, e.kind == DIR);
            }
        }
        for m in made {
            if m.dir { self.healer.mark_dir(m.fid) } else { self.healer.mark_file(m.fid, true) }
        }
        self.healer.got_entries(fid, upto);
        Ok(())
    }
}

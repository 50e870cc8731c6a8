//! A healing under way: what [`replica::heal`] decides, done on a brick.

use crate::{Brick, name_order};
use ids::{Fid, Lsn, OpId};
use replica::heal::{Ask, Healer, Live};
use std::collections::BTreeSet;
use wire::codec::Blob;
use wire::peer::{Object, PeerBody, Stamp};
use wire::reply::DirEntry;
use wire::{Change, Errno};

const DIR: u32 = 0o040_000;

/// A brick's healing, from the primary's welcome until nothing is dirty.
pub struct Healing {
    healer: Healer,
    full: bool,
    live: bool,
    /// With a full comparison: objects whose version here no longer says what is in them.
    taken: BTreeSet<Fid>,
}

/// A change of the primary's stream.
#[derive(Clone, Copy)]
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
    pub fn begin(brick: &mut Brick, common: &Stamp, full: bool) -> Result<Healing, Errno> {
        let mut healer = Healer::new(name_order, full);
        let mut cut: Vec<Fid> = Vec::new();
        if !full {
            for record in brick.iterate(common.lsn.next()) {
                let change = record?.change;
                cut.extend(change.touched());
                healer.mark(&change);
            }
        }
        brick.begin_heal(if full { Lsn(0) } else { common.lsn }, &cut)?;
        for fid in brick.doubt().map(|b| b.objects.clone()).unwrap_or_default() {
            healer.mark_unknown(fid);
        }
        if let Some(fid) = brick.found().incomplete {
            healer.mark_file(fid, false);
        }
        if !full {
            brick.truncate_after(common.lsn)?;
        }
        Ok(Healing { healer, full, live: false, taken: BTreeSet::new() })
    }

    /// The primary sent all that was missed up to `last`; `placed` is what a comparison from the root does not meet.
    ///
    /// # Errors
    /// The kernel's.
    pub fn go_live(&mut self, brick: &mut Brick, last: &Stamp, placed: &[Fid]) -> Result<(), Errno> {
        self.live = true;
        if self.full {
            let identity = brick.identity();
            if identity.root_home == identity.set {
                self.healer.mark_dir(identity.root);
            }
            for fid in placed {
                self.healer.mark_unknown(*fid);
            }
            brick.reset_journal(last.clone())?;
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
    pub fn apply(&mut self, brick: &mut Brick, a: Arriving<'_>) -> Result<(), Errno> {
        if !self.live {
            self.healer.mark(a.change);
            return brick.note(a.stamp, a.op, a.about, a.change);
        }
        if self.healer.live(a.change) == Live::Skip {
            return brick.note(a.stamp, a.op, a.about, a.change);
        }
        if self.full {
            // A new name or the loss of one gives an object the version of that change, whatever is in it.
            self.taken.extend(a.change.touched());
        }
        match brick.apply(a.stamp.clone(), a.op, a.about, a.change, a.payload) {
            Err(e) if !matches!(e, Errno::ENOSPC | Errno::EROFS) => {
                tracing::warn!(brick = %brick.path().display(), lsn = %a.stamp.lsn, error = %e, "while healing: compared anew");
                self.healer.mark(a.change);
                brick.note(a.stamp, a.op, a.about, a.change)
            }
            other => other,
        }
    }

    /// The primary's answer to a question.
    ///
    /// # Errors
    /// The kernel's: the brick cannot go on.
    pub fn take(&mut self, brick: &mut Brick, answer: &PeerBody, payload: &[u8]) -> Result<(), Errno> {
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

    fn take_object(&mut self, brick: &mut Brick, fid: Fid, object: Option<&Object>) -> Result<(), Errno> {
        let Some(object) = object else {
            self.healer.got_nothing(fid);
            return Ok(());
        };
        let seen = self.full && !self.taken.insert(fid);
        let trusted = self.full && !seen && !brick.found().rebooted && !self.healer.is_fresh(fid);
        let same =
            trusted && object.version.lsn > Lsn(0) && brick.version(fid).as_ref() == Some(&object.version);
        if !brick.take_object(fid, object)? {
            self.healer.got_nothing(fid);
            return Ok(());
        }
        let regular = object.attr.mode & 0o170_000 == 0o100_000;
        let data = regular && !same && !brick.identity().arbiter;
        self.healer.got_meta(fid, if data { object.attr.size } else { 0 }, object.attr.is_dir());
        Ok(())
    }

    fn take_entries(
        &mut self,
        brick: &mut Brick,
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

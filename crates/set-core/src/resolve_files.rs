//! Ends transactions about files of this set whose coordinator has not told the end: the entry that decides is asked for, and
//! has to be on disk before it counts (docs/design/0016). Of a stub of this set the file's home is asked (docs/design/0019).

use crate::brick::LocalBrick;
use crate::core::{Cx, SetCore};
use crate::elsewhere::Asking;
use crate::hand_over::HAND_OVER;
use crate::io::ReplyTo;
use crate::joint::{TWO_SETS, is_gone};
use crate::resolve::OLD;
use core::time::Duration;
use ids::{Fid, SessionId, SetId};
use wire::op::Intent;
use wire::{Body, Change, Errno, Fail, Op};

/// How many files are looked at in one step whose mark an earlier process may have seen again.
const LOOKS: usize = 64;

/// How far the question is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// No transaction may commit any more that began before.
    First,
    /// What was found then is on disk.
    Sync,
    /// It is still so.
    Second,
    /// The set that was asked has no such entry, but may have given the directory away with it.
    Given,
}

/// A marked file whose transaction is ended as the entry says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct FileResolve {
    fid: Fid,
    intent: Intent,
    stage: Stage,
}

impl FileResolve {
    pub(crate) fn stage(&self) -> Stage {
        self.stage
    }
}

impl<B: LocalBrick, R: ReplyTo> SetCore<B, R> {
    /// Marked files whose transaction should be over.
    pub(crate) fn resolve_files(&mut self, cx: &mut Cx<'_, B, R>) {
        if !self.is_primary() {
            return;
        }
        self.look_for_marks(cx.at.now);
        for fid in self.pending.ask_about_files(cx.at.now, OLD) {
            if !self.waits_for_names(cx.at.now, fid) {
                self.pending.forget_file(fid);
                // A directory may have left, and its mark be there still.
                self.find_marked(cx.at.now, fid);
                continue;
            }
            if self.send_leaver(cx, fid) {
                continue;
            }
            let Ok(intent) = self.brick.intent(fid) else {
                self.pending.file_asked(fid);
                continue;
            };
            match intent.filter(|intent| intent.decider().is_some()) {
                Some(intent) => self.ask_outcome(cx, FileResolve { fid, intent, stage: Stage::First }),
                // A power cut has taken what was meant, and with it what had agreed; or nothing of it is left to be done.
                None => {
                    // Nobody is asked. If the change comes to nothing the mark stays, and the next look orders it again.
                    self.pending.file_asked(fid);
                    if self.next.is_empty() {
                        let time = cx.at.wall;
                        let end = Change::EndFile { fid, drop: None, add: None, orphan: false, time };
                        self.order_own(cx, end);
                    }
                }
            }
        }
    }

    /// Looks at some of the files that may be marked: the directories that they are about to leave wait from then on.
    pub(crate) fn look_for_marks(&mut self, now: Duration) {
        for fid in self.pending.some_ended(LOOKS) {
            self.find_marked(now, fid);
        }
    }

    fn ask_outcome(&mut self, cx: &mut Cx<'_, B, R>, resolve: FileResolve) {
        let Some((entry, _)) = resolve.intent.decider() else { return self.pending.file_asked(resolve.fid) };
        let (mut set, fid) = (resolve.intent.coordinator, resolve.fid);
        if !resolve.intent.is_of_stub() && self.goes_by_an_entry(fid) && self.brick.attr(entry.dir).is_ok() {
            // The directory has come here since, with what was decided: the set that has given it away would ask this one for it,
            // and hear that it waits for this file's mark.
            set = self.set;
        }
        let op = match resolve.stage {
            // A stub is marked only while its file is: when that is not any more the transaction is over. As long as the stub
            // is, none can change what the home says of its name.
            Stage::First if resolve.intent.is_of_stub() => Op::CheckMark { fid, tx: resolve.intent.tx },
            Stage::First | Stage::Second
                if self.settings.level >= HAND_OVER && resolve.intent.is_of_stub() && self.is_copy(fid) =>
            {
                Op::CheckOwner { fid, set: self.set }
            }
            Stage::Given => Op::CheckName { parent: entry.dir, name: entry.name, fid, tx: resolve.intent.tx },
            Stage::First | Stage::Second
                if self.settings.level >= HAND_OVER && self.goes_by_an_entry(fid) =>
            {
                Op::CheckName { parent: entry.dir, name: entry.name, fid, tx: resolve.intent.tx }
            }
            Stage::First | Stage::Second if self.settings.level >= TWO_SETS => {
                Op::CheckOutcome { parent: entry.dir, name: entry.name, fid, tx: resolve.intent.tx }
            }
            Stage::First | Stage::Second => Op::CheckEntry { parent: entry.dir, name: entry.name, fid },
            // Of a copy that is to get several names entries in all of their directories count.
            Stage::Sync if self.has_names_of_copy(fid) => Op::SyncFs,
            // Which entry leads to a directory is told by where it is on its own set.
            Stage::Sync if resolve.intent.is_of_stub() && self.is_copy(fid) => Op::SyncFs,
            Stage::Sync => Op::Fsync { fid: entry.dir },
        };
        self.ask(cx, Asking::Outcome(resolve), set, op, None);
    }

    /// Whether an entry of a directory decides about the file, wherever that is by now. About a copy with several names the set
    /// does that leaves it: by a name that it has of it, or by an entry of its own.
    fn goes_by_an_entry(&mut self, fid: Fid) -> bool {
        self.brick.attr(fid).is_ok_and(|attr| !attr.is_dir())
            && self.brick.names_of_copy(fid).is_ok_and(|names| names.is_empty())
    }

    /// Whether the file is a copy that is to get several names.
    fn has_names_of_copy(&mut self, fid: Fid) -> bool {
        self.brick.names_of_copy(fid).is_ok_and(|names| !names.is_empty())
    }

    fn is_copy(&mut self, fid: Fid) -> bool {
        self.brick.attr_of_any(fid).is_ok_and(|attr| attr.is_dir() && attr.home != self.set)
    }

    /// The coordinator's set has answered.
    pub(crate) fn on_outcome(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        resolve: FileResolve,
        answer: Result<Body, Fail>,
    ) {
        let there = match answer {
            Ok(_) => true,
            Err(Fail::Errno { errno }) if is_gone(errno) => false,
            Err(fail) => {
                tracing::debug!("ask how the transaction about {} ended: {fail:?}", resolve.fid);
                return self.pending.file_asked(resolve.fid);
            }
        };
        let FileResolve { fid, intent, stage } = resolve;
        match stage {
            Stage::First if intent.is_of_stub() && there => self.pending.file_asked(fid),
            Stage::First => self.ask_outcome(cx, FileResolve { fid, intent, stage: Stage::Sync }),
            Stage::Sync => self.ask_outcome(cx, FileResolve { fid, intent, stage: Stage::Second }),
            Stage::Second if !there && self.settings.level >= HAND_OVER && self.has_names_of_copy(fid) => {
                self.ask_outcome(cx, FileResolve { fid, intent, stage: Stage::Given });
            }
            Stage::Second | Stage::Given => {
                let commit = intent.decider().is_some_and(|(_, wanted)| wanted == there);
                let (tx, by, home) = (intent.tx, SessionId(0), self.set);
                self.ask(cx, Asking::FileEnded(home, fid), home, Op::EndFile { fid, tx, commit, by }, None);
            }
        }
    }

    /// A home, or this set, was told how the transaction about a file ended.
    pub(crate) fn on_file_ended(
        &mut self,
        now: Duration,
        (home, fid): (SetId, Fid),
        answer: &Result<Body, Fail>,
    ) {
        if let Err(fail) = answer {
            tracing::debug!("end the transaction about {fid} on set {home}: {fail:?}");
            if home == self.set {
                self.note_room_for(now, fid, fail);
            }
        }
        if home == self.set {
            self.pending.file_asked(fid);
        }
    }

    /// What ends the transaction about a file takes a little room, on this set or on another one: perhaps there was none.
    pub(crate) fn note_room_for(&mut self, now: Duration, fid: Fid, fail: &Fail) {
        if let Fail::Errno { errno } = fail
            && [Errno::ENOSPC.0, Errno::EDQUOT.0].contains(errno)
        {
            self.pending.note_no_room(now, fid);
        }
    }
}

//! What a run has reached: counted, so that a simulator that no longer reaches something is noticed.

use ids::SessionId;
use std::collections::BTreeMap;
use wire::peer::{PeerBody, PeerMessage};
use wire::{Call, Change, Op};

/// What an entry led to, and what it leads to since an exchange with another set.
fn swapped(goes: bool, kind: u32) -> &'static str {
    match (goes, kind == 0o040_000) {
        (true, true) => "directory exchanged for a directory",
        (true, false) => "directory exchanged for a file",
        _ => "file exchanged for a directory",
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Coverage(BTreeMap<&'static str, u64>);

impl Coverage {
    pub(crate) fn count(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }

    pub(crate) fn add(&mut self, what: &'static str, times: u64) {
        *self.0.entry(what).or_default() += times;
    }

    /// A request arrived at a set that is open there.
    pub(crate) fn asked(&mut self, call: &Call) {
        match &call.op {
            Op::PrepareMkdir { .. } | Op::PrepareRmdir { .. } => self.count("transaction prepared"),
            Op::PrepareFile { fid: Some(fid), coordinator, drop: Some(_), add: None, .. }
                if *coordinator == fid.set =>
            {
                self.count("stub asked to go");
            }
            Op::PrepareFile { fid: Some(fid), coordinator, drop: Some(_), add: Some(_), .. }
                if *coordinator == fid.set =>
            {
                self.count("file asked to come home");
            }
            Op::PrepareFile { .. } => self.count("transaction about a file prepared"),
            Op::PrepareExchange { .. } => self.count("exchange between sets prepared"),
            // Nobody has told the stub's set: it has asked the home.
            Op::EndFile { fid, commit, by: SessionId(0), .. } if fid.set != call.set => {
                self.count(if *commit {
                    "stub went as its home said"
                } else {
                    "stub stayed as its home said"
                });
            }
            Op::EndFile { commit: true, .. } => self.count("transaction about a file committed"),
            Op::EndFile { commit: false, .. } => self.count("transaction about a file given up"),
            Op::CheckRight { .. } => self.count("right asked for"),
            Op::CheckMark { .. } => self.count("home asked for a mark"),
            Op::PathOf { .. } => self.count("path of a directory asked for"),
            Op::Arrive => self.count("copy of a file begun"),
            Op::Depart { .. } => self.count("file copied"),
            Op::Retarget { .. } => self.count("file of a name elsewhere copied"),
            Op::PrepareLeave { .. } => self.count("file asked to leave"),
            Op::DepartAll { names, .. } if crate::moves::are_scattered(names) => {
                self.count("file of names elsewhere copied");
            }
            Op::Redirect { .. } => self.count("entries redirected"),
            Op::DepartAll { .. } => self.count("file of several names copied"),
            Op::TakeDir { .. } => self.count("directory offered to another set"),
            Op::GiveDir { .. } => self.count("directory given away"),
            Op::EndTaking { keep: false, .. } => self.count("directory stayed after all"),
            Op::CheckGiven { .. } => self.count("asked whether a directory was given"),
            Op::CheckOwner { .. } => self.count("asked whether an entry is still there"),
            // Asked by whoever aborts one, and about one that should be over by the set that has the directory.
            Op::CheckEntry { .. } | Op::CheckOutcome { .. } | Op::CheckName { .. } => {
                self.count("transaction resolved")
            }
            _ => {}
        }
    }

    /// A message between bricks arrived.
    pub(crate) fn heard(&mut self, message: &PeerMessage) {
        self.count(match &message.body {
            PeerBody::Replicate { change: Change::Exchange { parent, .. }, .. } if parent.is_names() => {
                "names changed places at their home"
            }
            PeerBody::Replicate { change: Change::PrepareExchange { .. }, .. } => {
                "entry marked for an exchange"
            }
            PeerBody::Replicate { change: Change::PrepareSwap { .. }, .. } => {
                "directory marked for an exchange"
            }
            PeerBody::Replicate { change: Change::Swap { out, next, .. }, .. } => swapped(out.dir, next.kind),
            PeerBody::Replicate { change: Change::MoveOut { .. }, .. } => "directory left its set's entries",
            PeerBody::Replicate { change: Change::MoveOn { .. }, .. } => {
                "directory left a third set's entries"
            }
            PeerBody::Replicate { change: Change::Enter { replaced: Some(out), .. }, .. }
                if out.dir && out.fid.set != message.set =>
            {
                "another set's directory gave way"
            }
            PeerBody::Replicate { change: Change::Enter { kind: 0o040_000, home, .. }, .. } => {
                if *home == message.set { "directory came home" } else { "directory of another set entered" }
            }
            PeerBody::Replicate { .. } => "replicated change",
            PeerBody::Ack { .. } => "acknowledgement",
            PeerBody::Failed { .. } => "change failed on a brick",
            PeerBody::Sync { .. } | PeerBody::Synced { .. } => "sync between bricks",
            PeerBody::StateQuery | PeerBody::StateReport { .. } => "state of a brick",
            PeerBody::SendTail { .. } => "tail fetched",
            PeerBody::Committed { .. } => "committed",
            PeerBody::Join { .. } => "join",
            PeerBody::JoinAccepted { full: true, .. } => "full comparison",
            PeerBody::JoinAccepted { .. } => "healing by journal",
            PeerBody::CatchUp { .. } => "missed change",
            PeerBody::CaughtUp { .. } => "live",
            PeerBody::Healed { .. } => "healed",
            _ => "question of healing",
        });
    }

    pub(crate) fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.0.clone()
    }
}

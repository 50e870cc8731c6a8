//! A replica under test: inputs in, outputs as words.

use core::time::Duration;
use ids::{BrickId, Epoch, Fid, Lsn, OpId, SessionId, SetId};
use replica::{Admission, ChangeBody, Input, LogEntry, Message, Output, Replica, Results, Role, View};
use wire::peer::Stamp;

/// A change that touches one object.
#[derive(Clone, Debug)]
pub(crate) struct Change(pub(crate) Fid);

impl ChangeBody for Change {
    fn touched(&self) -> Vec<Fid> {
        vec![self.0]
    }
    fn size(&self) -> usize {
        1
    }
    fn amount(&self) -> u64 {
        self.0.lsn.0
    }
}

pub(crate) fn fid(n: u64) -> Fid {
    Fid { set: SetId(1), epoch: Epoch(0), lsn: Lsn(n) }
}

pub(crate) fn op(seq: u64) -> OpId {
    OpId { session: SessionId(7), seq }
}

pub(crate) fn view(epoch: u32, primary: u32, in_sync: &[u32]) -> View {
    View {
        epoch: Epoch(epoch),
        primary: (primary > 0).then_some(BrickId(primary)),
        in_sync: in_sync.iter().map(|b| BrickId(*b)).collect(),
        arbiters: Default::default(),
        leaving: Default::default(),
        lost_before: Epoch(0),
        quorum: 1,
    }
}

pub(crate) fn stamp(epoch: u32, lsn: u64) -> Stamp {
    Stamp { epoch: Epoch(epoch), lsn: Lsn(lsn) }
}

pub(crate) fn entry(epoch: u32, lsn: u64, object: u64) -> LogEntry<Change> {
    LogEntry { stamp: stamp(epoch, lsn), op: op(lsn), result_fid: None, body: Change(fid(object)) }
}

/// One brick, its clock, and words for what it does.
pub(crate) struct Rig {
    pub(crate) replica: Replica<Change>,
    pub(crate) now: Duration,
}

impl Rig {
    /// Brick `me` with an empty journal, opened in epoch 0, its lease good for an hour.
    pub(crate) fn new(me: u32) -> Rig {
        Rig::with_journal(me, 0, stamp(0, 0))
    }

    pub(crate) fn with_journal(me: u32, floor: u32, last: Stamp) -> Rig {
        let replica = Replica::new(BrickId(me), Epoch(floor), last, Lsn(0), Results::default());
        let mut rig = Rig { replica, now: Duration::from_secs(1) };
        rig.give(Input::Lease(Duration::from_secs(3600)));
        rig
    }

    /// A primary that has the others' word already.
    pub(crate) fn primary(me: u32, in_sync: &[u32]) -> Rig {
        let mut rig = Rig::new(me);
        rig.view(1, me, in_sync);
        for other in in_sync.iter().filter(|b| **b != me) {
            rig.peer(*other, 1, Message::StateReport { last: stamp(0, 0), durable: Lsn(0), kept: Lsn(0) });
        }
        assert_eq!(rig.replica.role(), Role::Primary);
        rig
    }

    pub(crate) fn give(&mut self, input: Input<Change>) -> Vec<String> {
        let mut out = Vec::new();
        self.replica.step(self.now, input, &mut out);
        out.iter().map(words).collect()
    }

    pub(crate) fn view(&mut self, epoch: u32, primary: u32, in_sync: &[u32]) -> Vec<String> {
        self.give(Input::View(view(epoch, primary, in_sync)))
    }

    pub(crate) fn peer(&mut self, from: u32, epoch: u32, message: Message) -> Vec<String> {
        self.give(Input::Peer { from: BrickId(from), epoch: Epoch(epoch), message })
    }

    pub(crate) fn ack(&mut self, from: u32, epoch: u32, lsn: u64) -> Vec<String> {
        self.peer(from, epoch, Message::Ack { lsn: Lsn(lsn), durable: Lsn(0), available: 9 })
    }

    pub(crate) fn replicate(&mut self, from: u32, epoch: u32, entry: LogEntry<Change>) -> Vec<String> {
        self.give(Input::Replicate { from: BrickId(from), epoch: Epoch(epoch), commit: Lsn(0), entry })
    }

    pub(crate) fn decide(&mut self, ticket: u64, object: u64) -> Vec<String> {
        let body = Change(fid(object));
        self.give(Input::Decided { ticket, op: op(ticket), result_fid: None, body })
    }

    pub(crate) fn reply_when_committed(&mut self, ticket: u64, object: u64) -> Vec<String> {
        self.give(Input::ReadReply { ticket, objects: vec![fid(object)] })
    }

    pub(crate) fn applied(&mut self, lsn: u64) -> Vec<String> {
        self.give(Input::Applied { lsn: Lsn(lsn) })
    }

    pub(crate) fn apply_failed(&mut self, lsn: u64) -> Vec<String> {
        self.give(Input::ApplyFailed { lsn: Lsn(lsn), errno: 28 })
    }

    pub(crate) fn tick(&mut self, after_ms: u64) -> Vec<String> {
        self.now += Duration::from_millis(after_ms);
        self.give(Input::Tick)
    }

    pub(crate) fn admit(&mut self, epoch: u32, seq: u64) -> Admission {
        self.replica.admit(self.now, Epoch(epoch), op(seq), 0)
    }
}

fn words(output: &Output<Change>) -> String {
    match output {
        Output::Apply(e, _) => format!("apply {}.{}", e.stamp.epoch, e.stamp.lsn),
        Output::Replicate { to, epoch, entry, .. } => {
            format!("replicate {}.{} to {to} in {epoch}", entry.stamp.epoch, entry.stamp.lsn)
        }
        Output::Send { to, epoch, message } => match message {
            Message::Ack { lsn, .. } => format!("ack {lsn} to {to} in {epoch}"),
            Message::Failed { errno } => format!("failed {errno} to {to}"),
            Message::Sync { ticket, lsn, .. } => format!("sync {ticket} at {lsn} to {to}"),
            Message::Synced { ticket, errno } => format!("synced {ticket} ({errno}) to {to}"),
            Message::StateQuery => format!("state query to {to}"),
            Message::Healed { lsn, .. } => format!("healed at {lsn} to {to}"),
            Message::SendTail { after } => format!("send what follows {}.{}, {to}", after.epoch, after.lsn),
            Message::Committed { lsn } => format!("committed {lsn} to {to}"),
            Message::StateReport { last, .. } => {
                format!("state report of {}.{} to {to}", last.epoch, last.lsn)
            }
        },
        Output::Sync { token, .. } => format!("sync {token:?}"),
        Output::Complete(t) => format!("complete {t}"),
        Output::Fail(t, errno) => format!("fail {t} ({errno})"),
        Output::Redirect(t) => format!("redirect {t}"),
        Output::Propose(p) => {
            let ids: Vec<u32> = p.in_sync.iter().map(|b| b.0).collect();
            format!("propose {:?} of {ids:?} after {}", p.primary.map(|b| b.0), p.expect)
        }
        Output::AdoptHistory => "adopt history".to_owned(),
        Output::Diverged => "diverged".to_owned(),
    }
}

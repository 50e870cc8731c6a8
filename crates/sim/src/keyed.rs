//! A client whose key is for one user, whose permissions the servers check. All that clients make in such a run is his, and the
//! root is open to him: so nothing may be refused to him, and the history has to be that of a client who is trusted.

use crate::rng::Prng;
use crate::world::World;
use bytes::Bytes;
use ids::SessionId;
use namespace::permission::take_as;
use wire::op::{SetAttr, rename_flags};
use wire::{Errno, Op, User};

/// He.
const USER: User = User::of_one_group(1000, 1000);
/// In so many of 1,000 runs there is one, if there is a client besides.
const RUNS: usize = 150;

/// Makes it another chance than others. None of the seeds that tests name has such a client: they show what they have found.
const SALT: u64 = 0x6b65_7965_6400;

/// See the module.
#[derive(Debug)]
pub(crate) struct Keyed {
    /// Who has the key: the last client.
    client: usize,
    session: SessionId,
    /// The calls of the first client that open the root, and sync that.
    opens: Option<usize>,
    syncs: Option<usize>,
}

/// What a call came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Came {
    /// It has no answer yet.
    Open,
    Done,
    Failed,
}

impl Keyed {
    /// Whether there is one, which the seed says alone: other runs stay what they are.
    pub(crate) fn draw(seed: u64, sessions: &[SessionId]) -> Option<Keyed> {
        let is = Prng::new(seed ^ SALT).chance(RUNS);
        let (session, others) = sessions.split_last()?;
        let keyed = Keyed { client: others.len(), session: *session, opens: None, syncs: None };
        (is && !others.is_empty()).then_some(keyed)
    }
}

impl World {
    /// As whom a request counts that came on a connection of that session.
    pub(crate) fn user_of(&mut self, session: SessionId) -> Option<User> {
        if self.keyed.as_ref().is_none_or(|keyed| keyed.session != session) {
            return None;
        }
        self.count("request of a checked user");
        Some(USER)
    }

    /// Whether the client may begin: he who is checked waits until the root is open to him, for which the first one asks.
    pub(crate) fn may_begin(&mut self, c: usize) -> bool {
        let Some(Keyed { client, opens, syncs, .. }) = &self.keyed else { return true };
        let [opened, synced] = [opens, syncs].map(|call| self.came_to(*call));
        let (is_open, checked) = (synced == Some(Came::Done), *client == c);
        if c == 0 && !is_open && ![opened, synced].contains(&Some(Came::Open)) {
            let syncs = opened == Some(Came::Done) && synced.is_none();
            self.open_root(syncs);
            return false;
        }
        is_open || !checked
    }

    fn came_to(&self, call: Option<usize>) -> Option<Came> {
        let record = self.history.get(call?)?;
        Some(match record.answer {
            None => Came::Open,
            Some((_, Ok(_))) => Came::Done,
            Some((_, Err(_))) => Came::Failed,
        })
    }

    /// The first client opens the root, or sees to it that a power cut does not close it again.
    fn open_root(&mut self, syncs: bool) {
        let ((fid, set), record) = (self.history.root(), self.history.len());
        let Some(keyed) = &mut self.keyed else { return };
        let op = if syncs {
            keyed.syncs = Some(record);
            Op::Fsync { fid }
        } else {
            (keyed.opens, keyed.syncs) = (Some(record), None);
            Op::SetAttr { fid, set: SetAttr { mode: Some(0o777), ..crate::workload::nothing() } }
        };
        self.call(0, set, op, Bytes::new());
    }

    /// Makes what a client does such that the user may do it, too.
    pub(crate) fn for_user(&self, c: usize, op: &mut Op) {
        let Some(keyed) = &self.keyed else { return };
        match op {
            Op::Create { mode, uid, gid, .. } => {
                *mode |= 0o700;
                (*uid, *gid) = (USER.uid, USER.gid);
            }
            Op::SetAttr { set, .. } => set.uid = None,
            _ => {}
        }
        if keyed.client == c {
            take_as(&USER, op);
        }
    }

    /// Nothing is refused to him.
    pub(crate) fn check_right(&mut self, c: usize, record: usize, answer: Option<Errno>) {
        if self.keyed.as_ref().is_none_or(|keyed| keyed.client != c) {
            return;
        }
        let op = self.history.get(record).map(|record| record.op.clone());
        if let (Some(Op::MoveIn { flags: rename_flags::EXCHANGE, .. }), None) = (&op, answer) {
            self.count("exchange between sets by a checked user");
        }
        if let Some(Errno::EACCES | Errno::EPERM) = answer {
            self.fail(format!("client {c} may not do call {record}, all is his: {answer:?} {op:?}"));
        }
    }
}

//! A set with its brick on a file system in memory, in one of the roles that a brick has.

use super::keyed::known_elsewhere;
use super::messages::{Known, Messages};
use crate::pool::{MINE, SET, THEIRS, pool, view};
use brick::{Brick, Options, Work};
use bytes::Bytes;
use ids::{Epoch, Fid, Lsn, OpId, ServerId, SessionId, SetId, Time};
use memory_fs::MemoryFs;
use namespace::placement::SetRoom;
use server_core::{OpenSet, Place, identity, pool_bytes, settings};
use set_core::{Input, LocalBrick, Moment, Output, Outside, ReplyTo, Request, SetCore};
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::time::Duration;
use wire::op::Node;
use wire::peer::{PeerMessage, Stamp};
use wire::{Call, Change, Errno, Fail, Frame, Kind, Name, Op, User, Wire};

/// What the brick is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// The only one in sync.
    Alone,
    /// Leads another one.
    Primary,
    /// Follows another one.
    Secondary,
    /// Is not in sync.
    Joiner,
}

/// Who asks; everybody waits for the answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker;

impl ReplyTo for Asker {
    fn is_given_up(&self) -> bool {
        false
    }
}

#[derive(Default)]
struct Around(Cell<u64>);

impl Outside for Around {
    fn queued(&self, _: ServerId) -> usize {
        0
    }
    fn last_call(&self) -> Duration {
        Duration::ZERO
    }
    fn room(&self, set: SetId) -> Option<SetRoom> {
        Some(SetRoom::new(set, 1 << 30, 1 << 31))
    }
    fn next_id(&self) -> OpId {
        self.0.set(self.0.get() + 1);
        OpId { session: SessionId(99), seq: self.0.get() }
    }
}

pub(crate) struct Set {
    core: SetCore<Brick, Asker>,
    around: Around,
    now: Duration,
    works: Vec<(u64, Work)>,
    asks: Vec<u64>,
    /// What no answer may contain.
    pub(crate) forbidden: Vec<Vec<u8>>,
    /// Answers that did.
    pub(crate) leaked: Vec<String>,
    /// The last answer, and what came with it.
    told: Option<Vec<u8>>,
    pub(crate) answered: usize,
    pub(crate) refused: usize,
    pub(crate) sent: usize,
    pub(crate) worked: usize,
}

pub(super) fn fid(lsn: u64) -> Fid {
    Fid { set: SET, epoch: Epoch(1), lsn: Lsn(lsn) }
}

/// A file, a directory and a symbolic link in the root, a file below.
fn fill(brick: &mut Brick, by: SessionId) {
    let root = Fid::root(SET);
    let symlink = Node::Symlink { target: wire::codec::Blob(b"file".to_vec()) };
    let all = [
        (root, "file", Node::File),
        (root, "dir", Node::Dir),
        (root, "link", symlink),
        (fid(2), "b", Node::File),
    ];
    for ((parent, name, node), lsn) in all.into_iter().zip(1..) {
        let (name, home, mode) = (Name::new(name.as_bytes()).unwrap(), SET, 0o755);
        let (uid, gid, time) = (0, 0, Time::default());
        let change = Change::Create { parent, name, fid: fid(lsn), home, node, mode, uid, gid, time };
        apply(brick, (by, lsn), &change, b"");
    }
}

fn apply(brick: &mut Brick, (session, lsn): (SessionId, u64), change: &Change, payload: &[u8]) {
    let stamp = Stamp { epoch: Epoch(1), lsn: Lsn(lsn) };
    let op = OpId { session, seq: lsn };
    brick.apply(stamp, op, Some(fid(lsn)), change, payload).unwrap();
}

impl Set {
    pub(crate) fn new(role: Role, seed: u64) -> Set {
        Set::with(role, seed, &[])
    }

    /// One whose brick has further changes.
    pub(crate) fn with(role: Role, seed: u64, more: &[(Change, &[u8])]) -> Set {
        let mut state = pool();
        let fs = MemoryFs::new(1 << 30);
        fs.make_dirs(Path::new("/b1")).unwrap();
        let set = state.sets.get(&SET).unwrap();
        let volume = state.volumes.get(&set.volume).unwrap();
        let identity = identity(pool_bytes(&state), volume, set, set.brick(MINE).unwrap());
        brick::format_on(&fs, Path::new("/b1"), &identity, ids::Time::default()).unwrap();
        let options = Options { seed: Some(seed), ..Options::default() };
        let open = OpenSet::new(SET, MINE, &state, &options, true).unwrap();
        let mount_point = |_: &Path| Ok(PathBuf::from("/"));
        let mut start = open
            .run(Place { fs: &fs, mount_point: &mount_point, adopted: &|_| () }, Duration::ZERO)
            .unwrap()
            .start();
        // What a client has asked for it is told again.
        let by = SessionId(if more.is_empty() { 1 } else { 1 << 40 });
        fill(&mut start.brick, by);
        for ((change, payload), lsn) in more.iter().zip(start.brick.last().lsn.0 + 1..) {
            apply(&mut start.brick, (by, lsn), change, payload);
        }
        match role {
            Role::Alone => view(&mut state, MINE, &[MINE]),
            Role::Primary => view(&mut state, MINE, &[MINE, THEIRS]),
            Role::Secondary => view(&mut state, THEIRS, &[MINE, THEIRS]),
            Role::Joiner => view(&mut state, THEIRS, &[THEIRS]),
        }
        let now = Duration::from_secs(1000);
        let mut set = Set {
            core: SetCore::new(start, now),
            around: Around::default(),
            now,
            works: Vec::new(),
            asks: Vec::new(),
            forbidden: Vec::new(),
            leaked: Vec::new(),
            told: None,
            answered: 0,
            refused: 0,
            sent: 0,
            worked: 0,
        };
        set.step(Input::Settings(settings(&state, SET).unwrap()));
        set.step(Input::Link(ServerId(2), true));
        set.step(Input::Tick);
        set
    }

    pub(crate) fn known(&mut self) -> Known {
        let epoch = self.core.report(self.now).epoch;
        let last = self.core.brick_mut().last().lsn;
        let fids = [Fid::root(SET), fid(1), fid(2), fid(3), fid(4), fid(last.0), fid(u64::MAX)];
        Known { epoch, last, fids: fids.into() }
    }

    fn moment(&self) -> Moment {
        let lease = Some(self.now + Duration::from_secs(60));
        Moment { now: self.now, wall: Time { sec: 1_700_000_000, nsec: 0 }, lease }
    }

    fn step(&mut self, input: Input<Asker>) {
        if self.core.has_failed() {
            return;
        }
        let mut out = Vec::new();
        self.core.step(self.moment(), input, &self.around, &mut out);
        for _ in 0..1000 {
            if !self.core.is_busy() {
                break;
            }
            self.core.go_on(self.moment(), &self.around, &mut out);
        }
        out.into_iter().for_each(|output| self.perform(output));
    }

    fn perform(&mut self, output: Output<Work, Asker>) {
        match output {
            Output::Reply { reply, payload, .. } => {
                match reply.0 {
                    Ok(_) => self.answered += 1,
                    Err(_) => self.refused += 1,
                }
                let bytes = [&reply.to_bytes()[..], &payload].concat();
                for word in &self.forbidden {
                    if bytes.windows(word.len()).any(|part| part == word.as_slice()) {
                        self.leaked.push(format!("{reply:?} tells {:?}", String::from_utf8_lossy(word)));
                    }
                }
                Frame::with_payload(Kind::Reply, 1, reply.to_bytes(), payload).head();
                self.told = Some(bytes);
            }
            Output::Send { message, payload, .. } => {
                self.sent += 1;
                Frame::with_payload(Kind::Peer, 0, message.to_bytes(), payload).head();
            }
            Output::Start { id, work } => self.works.push((id, work)),
            Output::Ask { id, .. } => self.asks.push(id),
            Output::Propose(_) | Output::Room(_) | Output::Promised(_) => {}
        }
    }

    /// Time goes on, and what was begun ends.
    pub(crate) fn go_on(&mut self, messages: &mut Messages) {
        self.now += Duration::from_millis([0, 1, 60, 1200][messages.below(4)]);
        if self.core.next_wake().is_some_and(|at| at <= self.now) {
            self.step(Input::Wake);
        }
        match messages.below(8) {
            0 => self.step(Input::Tick),
            1 => self.step(Input::Maintenance),
            2 => self.step(Input::SessionEnded(SessionId(2))),
            _ => {}
        }
        while !self.works.is_empty() && !messages.chance(4) {
            let (id, work) = self.works.remove(0);
            self.worked += 1;
            self.step(Input::Worked(id, <Brick as LocalBrick>::run(work)));
        }
        while !self.asks.is_empty() && !messages.chance(3) {
            let id = self.asks.remove(0);
            let known = self.known();
            // Of a client with a key something is hidden: other sets do not tell it.
            let known = if self.forbidden.is_empty() { known } else { known_elsewhere(&known) };
            let answer = messages.answer(&known);
            self.step(Input::Answered(id, answer));
        }
    }

    pub(crate) fn request(&mut self, call: Call, payload: Bytes) {
        let session = SessionId(call.id.session.0);
        self.request_of(call, payload, (session, None, None));
    }

    /// A request of somebody whose permissions count, and who may ask for what lies beneath a directory.
    pub(crate) fn request_of(
        &mut self,
        call: Call,
        payload: Bytes,
        (session, user, beneath): (SessionId, Option<User>, Option<Fid>),
    ) {
        self.step(Input::Request(Request { call, payload, to: Asker, session, user, beneath }));
    }

    /// The answer to somebody who may have everything, after all that was begun has ended: other sets know nothing.
    pub(crate) fn ask_as_server(&mut self, op: Op) -> Vec<u8> {
        let id = OpId { session: SessionId(1 << 41), seq: self.around.next_id().seq };
        let call = Call { set: SET, epoch: self.known().epoch, id, finished: 0, op };
        for _ in 0..1000 {
            self.end_works();
            self.told = None;
            self.request_of(call.clone(), Bytes::new(), (id.session, None, None));
            self.end_works();
            if let Some(told) = self.told.take() {
                return told;
            }
            self.now += Duration::from_millis(100);
            self.step(Input::Wake);
        }
        panic!("no answer to {call:?}");
    }

    fn end_works(&mut self) {
        while !self.works.is_empty() || !self.asks.is_empty() {
            for (id, work) in std::mem::take(&mut self.works) {
                self.step(Input::Worked(id, <Brick as LocalBrick>::run(work)));
            }
            for id in std::mem::take(&mut self.asks) {
                self.step(Input::Answered(id, Err(Fail::Errno { errno: Errno::ENOENT.0 })));
            }
        }
    }

    pub(crate) fn peer(&mut self, message: PeerMessage, payload: Bytes) {
        self.step(Input::Peer(message, payload));
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.core.has_failed()
    }
}

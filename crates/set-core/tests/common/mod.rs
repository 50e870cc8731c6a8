//! A core with a brick in memory, and its outputs as lines.
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

pub(crate) mod brick;

use brick::{Memory, ROOT, SET, Work};
use bytes::Bytes;
use ids::{BrickId, Epoch, Fid, OpId, ServerId, SessionId, SetId, Time};
use namespace::placement::SetRoom;
use replica::{Results, View};
use set_core::{
    Input, Moment, Output, Outside, Pending, RebalanceSettings, ReplyTo, Request, SetCore, Settings, Start,
};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use wire::op::Node;
use wire::peer::{PeerBody, PeerMessage};
use wire::{Attr, Body, Call, Errno, Fail, Name, Op, Reply, User, Wire};

pub(crate) const ME: BrickId = BrickId(1);

thread_local! {
    /// Requests that are asked on another connection by now.
    pub(crate) static GIVEN_UP: RefCell<BTreeSet<u64>> = const { RefCell::new(BTreeSet::new()) };
}

/// A request's name for the script; given up if it is asked on another connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct To(pub u64);

impl ReplyTo for To {
    fn is_given_up(&self) -> bool {
        self.0 == 0 || GIVEN_UP.with_borrow(|all| all.contains(&self.0))
    }
}

#[derive(Default)]
pub(crate) struct World {
    pub(crate) rooms: RefCell<BTreeMap<SetId, SetRoom>>,
    pub(crate) queued: Cell<usize>,
    pub(crate) last_call: Cell<Duration>,
    seq: Cell<u64>,
}

impl Outside for World {
    fn queued(&self, _: ServerId) -> usize {
        self.queued.get()
    }
    fn last_call(&self) -> Duration {
        self.last_call.get()
    }
    fn room(&self, set: SetId) -> Option<SetRoom> {
        self.rooms.borrow().get(&set).copied()
    }
    fn next_id(&self) -> OpId {
        self.seq.set(self.seq.get() + 1);
        OpId { session: SessionId(99), seq: self.seq.get() }
    }
}

pub(crate) struct Rig {
    pub(crate) core: SetCore<Memory, To>,
    pub(crate) world: World,
    pub(crate) now: Duration,
    pub(crate) lease: Duration,
    /// How long each change takes on the brick.
    pub(crate) slow: Duration,
    epoch: u32,
    seq: u64,
}

pub(crate) fn name(s: &str) -> Name {
    Name::new(s.as_bytes()).unwrap()
}

impl Rig {
    /// The primary of a set with these other bricks in sync, of a volume with sets 1 and 2; grants of predecessors are over.
    pub(crate) fn primary(others: &[u32]) -> Rig {
        Rig::with(Memory::default(), others)
    }

    pub(crate) fn with(brick: Memory, others: &[u32]) -> Rig {
        Rig::with_pending(brick, Pending::default(), others)
    }

    /// With what an earlier process's journal says of transactions.
    pub(crate) fn with_pending(brick: Memory, pending: Pending, others: &[u32]) -> Rig {
        let start = Start {
            set: SET,
            me: ME,
            floor: Epoch(0),
            uncertain: false,
            brick,
            results: Results::default(),
            pending,
            history: BTreeMap::new(),
        };
        let now = Duration::from_secs(1000);
        let mut rig = Rig {
            core: SetCore::new(start, now),
            world: World::default(),
            now,
            lease: now + Duration::from_secs(60),
            slow: Duration::ZERO,
            epoch: 0,
            seq: 0,
        };
        rig.lead(others);
        if !others.is_empty() {
            for other in others {
                rig.peer(
                    *other,
                    PeerBody::StateReport {
                        last: Memory::default_stamp(),
                        durable: ids::Lsn(0),
                        kept: ids::Lsn(0),
                    },
                );
            }
        }
        rig.now += Duration::from_secs(1);
        rig
    }

    /// A new view in which this brick leads.
    pub(crate) fn lead(&mut self, others: &[u32]) -> Vec<String> {
        let in_sync = others.iter().copied().chain([ME.0]).map(BrickId).collect();
        self.view(ME, in_sync)
    }

    /// A new view in which another brick leads, alone.
    pub(crate) fn follow(&mut self, primary: u32) -> Vec<String> {
        self.view(BrickId(primary), [BrickId(primary)].into())
    }

    fn view(&mut self, primary: BrickId, in_sync: BTreeSet<BrickId>) -> Vec<String> {
        let input = self.new_view(primary, in_sync);
        self.step(input)
    }

    fn new_view(&mut self, primary: BrickId, in_sync: BTreeSet<BrickId>) -> Input<To> {
        self.epoch += 1;
        Input::Settings(self.settings(primary, in_sync))
    }

    /// Settings of the present epoch.
    pub(crate) fn settings(&self, primary: BrickId, in_sync: BTreeSet<BrickId>) -> Settings {
        let view =
            View { epoch: Epoch(self.epoch), primary: Some(primary), in_sync, quorum: 1, ..View::default() };
        Settings {
            name: "set 1 of volume v".to_owned(),
            view,
            members: (1..=3).map(|b| (BrickId(b), ServerId(b.into()))).collect(),
            min_free_percent: 1,
            read_only: false,
            sync_interval: Duration::from_secs(5),
            sets: vec![(SetId(1), true), (SetId(2), true)],
            rebalance: RebalanceSettings::default(),
            large: None,
            stripes: None,
            level: 4,
        }
    }

    /// A new view in which this brick is in sync and another one leads.
    pub(crate) fn second(&mut self, primary: u32) -> Vec<String> {
        self.view(BrickId(primary), [BrickId(primary), ME].into())
    }

    /// What this brick tells others when it comes into such a view.
    pub(crate) fn second_says(&mut self, primary: u32) -> Vec<PeerBody> {
        let input = self.new_view(BrickId(primary), [BrickId(primary), ME].into());
        self.messages(input)
    }

    pub(crate) fn step(&mut self, input: Input<To>) -> Vec<String> {
        self.outputs(input).into_iter().map(line).collect()
    }

    /// Like [`Rig::step`], with all that the outputs say.
    pub(crate) fn outputs(&mut self, input: Input<To>) -> Vec<Output<Work, To>> {
        let mut out = Vec::new();
        self.core.step(self.moment(), input, &self.world, &mut out);
        while self.core.is_busy() {
            self.core.go_on(self.moment(), &self.world, &mut out);
            self.now += self.slow;
        }
        out
    }

    /// The messages to other bricks that follow from an input.
    pub(crate) fn messages(&mut self, input: Input<To>) -> Vec<PeerBody> {
        let sent = |output| if let Output::Send { message, .. } = output { Some(message.body) } else { None };
        self.outputs(input).into_iter().filter_map(sent).collect()
    }

    fn moment(&self) -> Moment {
        Moment { now: self.now, wall: Time { sec: 7, nsec: 0 }, lease: Some(self.lease) }
    }

    /// A session asks something.
    pub(crate) fn ask(&mut self, session: u64, op: Op) -> Vec<String> {
        self.seq += 1;
        self.ask_as(session, self.seq, op)
    }

    pub(crate) fn ask_as(&mut self, session: u64, seq: u64, op: Op) -> Vec<String> {
        self.ask_in(self.epoch, session, seq, op)
    }

    /// A session that knows the view of that epoch asks something.
    pub(crate) fn ask_in(&mut self, epoch: u32, session: u64, seq: u64, op: Op) -> Vec<String> {
        let id = OpId { session: SessionId(session), seq };
        let call = Call { set: SET, epoch: Epoch(epoch), id, finished: 0, op };
        let session = SessionId(session);
        self.step(Input::Request(Request {
            call,
            payload: Bytes::new(),
            to: To(seq),
            session,
            user: None,
            beneath: None,
        }))
    }

    /// A session asks something that is taken as this user's.
    pub(crate) fn ask_of(&mut self, user: User, op: Op) -> Vec<String> {
        self.seq += 1;
        let (session, to) = (SessionId(7), To(self.seq));
        let call =
            Call { set: SET, epoch: Epoch(self.epoch), id: OpId { session, seq: self.seq }, finished: 0, op };
        let (payload, user) = (Bytes::new(), Some(user));
        self.step(Input::Request(Request { call, payload, to, session, user, beneath: None }))
    }

    /// A session asks something under this number, taken as that user's, with a key for what lies beneath that directory: all
    /// that the outputs say.
    pub(crate) fn ask_limited(
        &mut self,
        (session, seq): (u64, u64),
        (user, beneath): (Option<User>, Option<Fid>),
        op: Op,
    ) -> Vec<Output<Work, To>> {
        let (to, session) = (To(seq), SessionId(session));
        let call = Call { set: SET, epoch: Epoch(self.epoch), id: OpId { session, seq }, finished: 0, op };
        self.outputs(Input::Request(Request { call, payload: Bytes::new(), to, session, user, beneath }))
    }

    /// A session whose key is for what lies beneath a directory asks something.
    pub(crate) fn ask_beneath(&mut self, session: u64, root: Fid, op: Op) -> Vec<String> {
        self.seq += 1;
        self.ask_beneath_as(session, root, self.seq, op)
    }

    pub(crate) fn ask_beneath_as(&mut self, session: u64, root: Fid, seq: u64, op: Op) -> Vec<String> {
        let id = OpId { session: SessionId(session), seq };
        let call = Call { set: SET, epoch: Epoch(self.epoch), id, finished: 0, op };
        let (to, session, beneath) = (To(seq), SessionId(session), Some(root));
        self.step(Input::Request(Request { call, payload: Bytes::new(), to, session, user: None, beneath }))
    }

    /// The objects whose attributes come with the answer.
    pub(crate) fn told(&mut self, session: u64, op: Op) -> Vec<Fid> {
        self.seq += 1;
        let (session, to) = (SessionId(session), To(self.seq));
        let id = OpId { session, seq: self.seq };
        let call = Call { set: SET, epoch: Epoch(self.epoch), id, finished: 0, op };
        let told = |output| if let Output::Reply { payload, .. } = output { Some(payload) } else { None };
        let out = self.outputs(Input::Request(Request {
            call,
            payload: Bytes::new(),
            to,
            session,
            user: None,
            beneath: None,
        }));
        let attrs =
            out.into_iter().filter_map(told).flat_map(|p| Vec::<Attr>::from_bytes(&p).unwrap_or_default());
        attrs.map(|attr| attr.fid).collect()
    }

    pub(crate) fn mkfile(&mut self, session: u64, s: &str) -> Vec<String> {
        self.ask(session, create(s, Node::File))
    }

    pub(crate) fn peer(&mut self, from: u32, body: PeerBody) -> Vec<String> {
        let epoch = Epoch(self.epoch);
        let m = PeerMessage { set: SET, from: BrickId(from), to: ME, epoch, body };
        self.step(Input::Peer(m, Bytes::new()))
    }

    pub(crate) fn ack(&mut self, from: u32, lsn: u64) -> Vec<String> {
        let (lsn, durable) = (ids::Lsn(lsn), ids::Lsn(0));
        self.peer(from, PeerBody::Ack { lsn, durable, available: 1 << 39 })
    }

    /// A second has passed, and nameless files are listed.
    pub(crate) fn maintain(&mut self) -> Vec<String> {
        let out = self.step(Input::Maintenance);
        let listing = |l: &String| l.strip_prefix("start ")?.strip_suffix(": orphans")?.parse().ok();
        match out.iter().find_map(listing) {
            Some(id) => {
                let found = self.core.brick_mut().orphans.iter().copied().collect();
                self.step(Input::Worked(id, Ok(set_core::Done::Hidden(found))))
            }
            None => out,
        }
    }

    /// The time of the next wake comes.
    pub(crate) fn wake(&mut self) -> Vec<String> {
        self.now = self.now.max(self.core.next_wake().expect("a time is set"));
        self.step(Input::Wake)
    }
}

impl Memory {
    pub(crate) fn default_stamp() -> wire::peer::Stamp {
        set_core::LocalBrick::last(&Memory::default())
    }
}

/// Another set answers.
pub(crate) fn answer(rig: &mut Rig, id: u64, answer: Result<Body, Fail>) -> Vec<String> {
    rig.step(Input::Answered(id, answer))
}

pub(crate) fn done(rig: &mut Rig, id: u64) -> Vec<String> {
    answer(rig, id, Ok(Body::Done))
}

pub(crate) fn errno(e: Errno) -> Result<Body, Fail> {
    Err(Fail::Errno { errno: e.0 })
}

/// What a mark's primary asks when the coordinator has said nothing.
pub(crate) fn asked(rig: &mut Rig) -> Vec<String> {
    rig.now += Duration::from_secs(4);
    let outputs = rig.step(Input::Maintenance);
    outputs.into_iter().filter(|l| l.starts_with("ask")).collect()
}

pub(crate) fn create(s: &str, node: Node) -> Op {
    Op::Create { parent: ROOT, name: name(s), node, mode: 0o755, umask: 0, uid: 0, gid: 0, open: false }
}

pub(crate) fn line(output: Output<Work, To>) -> String {
    match output {
        Output::Reply { to, reply: Reply(reply), grant, .. } => {
            let said = match reply {
                Ok(Body::Attr { attr }) => format!("attr {}", attr.fid),
                Ok(Body::Attrs { attrs }) => {
                    let fids: Vec<_> = attrs.iter().map(|attr| attr.fid.to_string()).collect();
                    format!("attrs [{}]", fids.join(", "))
                }
                Ok(body) => format!("{body:?}").to_lowercase(),
                Err(Fail::Errno { errno }) => {
                    Errno(errno).to_string().split(" (").next().unwrap_or_default().to_owned()
                }
                Err(fail) => format!("{fail:?}").to_lowercase(),
            };
            let grant = if grant > 0 { format!(" for {grant} ms") } else { String::new() };
            format!("reply {}: {said}{grant}", to.0)
        }
        Output::Send { server, message, .. } => {
            let body = format!("{:?}", message.body);
            let what = body.split([' ', '{', '(']).next().unwrap_or_default().to_lowercase();
            match message.body {
                PeerBody::Join { join_id: number, .. } => format!("send {server}: join {number}"),
                PeerBody::Placed { placed, .. } | PeerBody::CaughtUp { placed, .. } if !placed.is_empty() => {
                    let placed: Vec<_> = placed.iter().map(|f| format!("{}.{}", f.set.0, f.lsn.0)).collect();
                    match placed.len() {
                        0..10 => format!("send {server}: {what} [{}]", placed.join(", ")),
                        many => format!("send {server}: {what} {many}"),
                    }
                }
                _ => format!("send {server}: {what}"),
            }
        }
        Output::Start { id, work } => format!("start {id}: {work:?}").to_lowercase(),
        Output::Ask { id, set, op, name, .. } => {
            let op = format!("{op:?}");
            let what = op.split([' ', '{', '(']).next().unwrap_or_default().to_lowercase();
            let name = name.map(|n| format!(" as {}", n.seq)).unwrap_or_default();
            let keep = match op {
                op if op.contains("keep: false") => ", gone",
                op if op.contains("commit: false") => ", given up",
                _ => "",
            };
            format!("ask {id}: {what} of {}{name}{keep}", set.0)
        }
        Output::Propose(p) => format!("propose: {}", p.reason),
        Output::Room(_) => "room".to_owned(),
        Output::Promised(set) => format!("promised {}", set.0),
    }
}

//! A volume of one set with one brick on a file system in memory, without network: the core, and what carries out its outputs.

use brick::{Brick, Options};
use bytes::Bytes;
use disk_format::Identity;
use ids::{BrickId, Epoch, Fid, Lsn, OpId, ServerId, SessionId, SetId, Time, VolumeId};
use memory_fs::MemoryFs;
use namespace::placement::SetRoom;
use replica::{Results, View};
use set_core::{
    Input, Moment, Output, Outside, Pending, RebalanceSettings, ReplyTo, Request, SetCore, Settings, Start,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;
use std::time::Duration;
use wire::op::Node;
use wire::{Body, Call, Errno, Fail, Op, Reply};

const SET: SetId = SetId(1);
pub(crate) const ROOT: Fid = Fid { set: SET, epoch: Epoch(0), lsn: Lsn(0) };
const ME: BrickId = BrickId(1);
const SESSION: SessionId = SessionId(7);
const PATH: &str = "/b";

pub(crate) type Ours = Result<(Body, Bytes), Errno>;

struct Nobody;

impl ReplyTo for Nobody {
    fn is_given_up(&self) -> bool {
        false
    }
}

struct Alone;

impl Outside for Alone {
    fn queued(&self, _: ServerId) -> usize {
        0
    }
    fn last_call(&self) -> Duration {
        Duration::ZERO
    }
    fn room(&self, _: SetId) -> Option<SetRoom> {
        None
    }
    fn next_id(&self) -> OpId {
        OpId { session: SessionId(99), seq: 1 }
    }
}

pub(crate) struct Rig {
    core: SetCore<Brick, Nobody>,
    fs: MemoryFs,
    now: Duration,
    epoch: Epoch,
    seq: u64,
    /// What the session holds open, to tell it to a server that was started anew.
    opens: BTreeSet<Fid>,
}

fn identity() -> Identity {
    Identity {
        pool: [1; 16],
        volume: VolumeId(1),
        set: SET,
        brick: ME,
        arbiter: false,
        volume_name: "home".into(),
        root: ROOT,
        root_home: SET,
    }
}

/// Small bounds, so that what is kept in memory has to leave it.
fn open(fs: &MemoryFs, epoch: Epoch) -> Brick {
    let options = Options {
        fd_limit: 6,
        nodes: 8,
        names: 10,
        dirty: 5,
        listing_names: 6,
        segment_size: 64 << 10,
        seed: Some(epoch.0.into()),
        ..Options::default()
    };
    Brick::open_on(fs, Path::new(PATH), &identity(), options).unwrap()
}

fn core(brick: Brick, now: Duration) -> SetCore<Brick, Nobody> {
    let start = Start {
        set: SET,
        me: ME,
        floor: Epoch(0),
        uncertain: false,
        brick,
        results: Results::default(),
        pending: Pending::default(),
        history: BTreeMap::new(),
    };
    SetCore::new(start, now)
}

impl Rig {
    pub(crate) fn new() -> Rig {
        let fs = MemoryFs::new(64 << 30);
        fs.make_dirs(Path::new(PATH)).unwrap();
        fs.set_time(Time { sec: 1_700_000_000, nsec: 0 });
        brick::format_on(&fs, Path::new(PATH), &identity(), ids::Time::default()).unwrap();
        let now = Duration::from_secs(1000);
        let core = core(open(&fs, Epoch(0)), now);
        let mut rig = Rig { core, fs, now, epoch: Epoch(0), seq: 0, opens: BTreeSet::new() };
        rig.lead();
        rig
    }

    /// A new view in which this brick leads alone.
    fn lead(&mut self) {
        self.epoch = self.epoch.next();
        let epoch = self.epoch;
        let view = View { epoch, primary: Some(ME), in_sync: [ME].into(), quorum: 1, ..View::default() };
        self.step(Input::Settings(Settings {
            name: "set 1 of volume v".to_owned(),
            view,
            members: [(ME, ServerId(1))].into(),
            min_free_percent: 1,
            read_only: false,
            sync_interval: Duration::from_secs(5),
            sets: vec![(SET, true)],
            rebalance: RebalanceSettings::default(),
            large: None,
            stripes: None,
            level: 1,
        }));
        self.now += Duration::from_secs(1);
    }

    /// The server is stopped in order and started again; the session tells it in time what it holds open.
    pub(crate) fn restart(mut self) -> Rig {
        self.core.brick_mut().shut().unwrap();
        let Rig { core: stopped, fs, now, epoch, seq, opens } = self;
        drop(stopped);
        let core = core(open(&fs, epoch), now);
        let mut rig = Rig { core, fs, now, epoch, seq, opens };
        rig.lead();
        for fid in rig.opens.clone() {
            rig.ask(&Op::Open { fid }, b"").unwrap_or_else(|e| panic!("{fid} was open: {e}"));
        }
        rig.now += set_core::CLAIM_TIME;
        rig.rest();
        rig
    }

    /// Some time passes.
    pub(crate) fn rest(&mut self) {
        self.now += Duration::from_secs(1);
        self.step(Input::Tick);
        self.step(Input::Maintenance);
    }

    /// The session asks something and waits for the answer.
    pub(crate) fn ask(&mut self, op: &Op, payload: &[u8]) -> Ours {
        self.now += Duration::from_millis(10);
        self.seq += 1;
        let id = OpId { session: SESSION, seq: self.seq };
        let call = Call { set: SET, epoch: self.epoch, id, finished: self.seq - 1, op: op.clone() };
        let payload = Bytes::copy_from_slice(payload);
        let request = Request { call, payload, to: Nobody, session: SESSION, user: None, beneath: None };
        let mut reply = self.step(Input::Request(request));
        while reply.is_none() {
            self.now = self.core.next_wake().expect("somebody waits, so a time is set").max(self.now);
            reply = self.step(Input::Wake);
        }
        let answer = match reply {
            Some((Reply(Ok(body)), payload)) => Ok((body, payload)),
            Some((Reply(Err(Fail::Errno { errno })), _)) => Err(Errno(errno)),
            other => panic!("{op:?} is answered {other:?}"),
        };
        self.note(op, &answer);
        answer
    }

    fn note(&mut self, op: &Op, answer: &Ours) {
        assert!(!self.core.has_failed(), "the brick gave up at {op:?}");
        let brick = self.core.brick_mut();
        let last = brick.last().lsn;
        let record = (last > Lsn(0)).then(|| brick.iterate(last).last()).flatten().map(Result::unwrap);
        assert!(
            record.is_none_or(|r| !r.change.is_invalidation()),
            "{op:?} was let in and then refused by the file system: {answer:?}"
        );
        match (op, answer) {
            (
                Op::Create { node: Node::File, open: true, .. } | Op::Open { .. },
                Ok((Body::Attr { attr }, _)),
            ) if attr.mode & 0o170_000 == 0o100_000 => {
                self.opens.insert(attr.fid);
            }
            (Op::Release { fid }, _) => {
                self.opens.remove(fid);
            }
            _ => {}
        }
    }

    fn moment(&self) -> Moment {
        let (sec, nsec) = (1_700_000_000 + self.now.as_secs().cast_signed(), self.now.subsec_nanos());
        let wall = Time { sec, nsec };
        self.fs.set_time(wall);
        Moment { now: self.now, wall, lease: Some(self.now + Duration::from_secs(60)) }
    }

    /// Gives the core an input and does what it says; the answer that it lets go.
    fn step(&mut self, input: Input<Nobody>) -> Option<(Reply, Bytes)> {
        let (mut answer, mut out) = (None, Vec::new());
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            self.core.step(self.moment(), input, &Alone, &mut out);
            loop {
                for output in out.drain(..) {
                    match output {
                        Output::Reply { reply, payload, .. } => {
                            assert!(answer.replace((reply, payload)).is_none(), "two answers");
                        }
                        Output::Start { id, work } => {
                            inputs.push_back(Input::Worked(id, <Brick as set_core::LocalBrick>::run(work)));
                        }
                        Output::Room(_) | Output::Promised(_) => {}
                        Output::Propose(p) => panic!("the brick proposes a view: {}", p.reason),
                        Output::Send { .. } | Output::Ask { .. } => panic!("there is nobody to send to"),
                    }
                }
                if !self.core.is_busy() {
                    break;
                }
                self.core.go_on(self.moment(), &Alone, &mut out);
            }
        }
        answer
    }
}

//! Clients: sessions with several operations under way, which send again until they are answered.

use crate::Mutant;
use crate::answer::Answer;
use crate::check::Record;
use crate::log::say;
use crate::rng::Prng;
use crate::server::{Request, ToServer};
use crate::store::ToStore;
use crate::tree::{FIRST_DIRS, bytes, first_dir, name};
use crate::world::{Event, World, server_of, set_id};
use core::time::Duration;
use ids::{Epoch, Fid, OpId, SessionId};
use replica::View;
use std::collections::{BTreeMap, BTreeSet};
use wire::op::{Node, SetAttr, SetTime, rename_flags};
use wire::{Fail, Name, Op};

/// How names of files begin that only their maker touches.
const OWN: &[u8] = b"own file ";

/// An answer on its way.
pub(crate) struct Reply {
    pub(crate) server: usize,
    pub(crate) conn: u64,
    pub(crate) record: usize,
    pub(crate) result: Result<Answer, Fail>,
}

pub(crate) enum ToClient {
    Think,
    Reply(Reply),
    Timeout { record: usize, tries: u32 },
    Resend { record: usize, tries: u32 },
    View(usize, View),
    Views(Vec<View>),
}

/// An operation without an answer.
#[derive(Clone, Copy)]
struct Open {
    tries: u32,
    /// Server and connection it was last sent on.
    sent: Option<(usize, u64)>,
}

pub(crate) struct Client {
    id: usize,
    width: usize,
    pub(crate) timeout: Duration,
    views: Vec<View>,
    open: BTreeMap<usize, Open>,
    seq: u64,
    done: BTreeSet<u64>,
    finished: u64,
    conns: BTreeMap<usize, u64>,
    known: Vec<(usize, Fid)>,
    /// Files of its own, to be synced, with their newest writes and the epochs they were sent in.
    own: BTreeMap<Fid, (Name, u64, Epoch)>,
    owned: BTreeSet<Fid>,
    /// A server it cannot talk to.
    pub(crate) cut: Option<usize>,
    /// It hears nothing of new views.
    pub(crate) deaf: bool,
}

impl Client {
    pub(crate) fn new(id: usize, rng: &mut Prng, views: &[View]) -> Client {
        Client {
            id,
            width: 1 + rng.below(4),
            timeout: rng.millis(300, 2500),
            views: views.to_vec(),
            open: BTreeMap::new(),
            seq: 0,
            done: BTreeSet::new(),
            finished: 0,
            conns: BTreeMap::new(),
            known: Vec::new(),
            own: BTreeMap::new(),
            owned: BTreeSet::new(),
            cut: None,
            deaf: false,
        }
    }

    pub(crate) fn waits(&self) -> usize {
        self.open.len()
    }

    fn finish(&mut self, seq: u64) {
        self.done.insert(seq);
        while self.done.remove(&(self.finished + 1)) {
            self.finished += 1;
        }
    }

    fn learn(&mut self, set: usize, fid: Fid) {
        if self.owned.contains(&fid) {
            return;
        }
        if self.known.len() >= 12 {
            self.known.remove(0);
        }
        self.known.push((set, fid));
    }
}

impl World {
    pub(crate) fn on_client(&mut self, c: usize, what: ToClient) {
        match what {
            ToClient::Think => self.think(c),
            ToClient::Reply(reply) => self.replied(c, reply),
            ToClient::Timeout { record, tries } => self.timed_out(c, record, tries),
            ToClient::Resend { record, tries } => {
                if self.clients[c].open.get(&record).is_some_and(|o| o.tries == tries) {
                    self.transmit(c, record);
                }
            }
            ToClient::View(..) | ToClient::Views(_) if self.clients[c].deaf => {}
            ToClient::View(set, view) => {
                let known = &mut self.clients[c].views[set];
                if view.epoch > known.epoch {
                    *known = view;
                }
            }
            ToClient::Views(views) => {
                for (set, view) in views.into_iter().enumerate() {
                    self.on_client(c, ToClient::View(set, view));
                }
            }
        }
    }

    fn think(&mut self, c: usize) {
        if self.calm && !(self.busy && self.heals()) {
            return;
        }
        if self.clients[c].open.len() < self.clients[c].width {
            let set = self.rng.below(self.sets.len());
            let op = self.invent(c, set);
            self.begin(c, set, op);
        }
        let slower = if self.calm { 8 } else { 1 };
        let delay = self.rng.between(self.pace.think / 4, self.pace.think * 2) * slower;
        self.after(delay, Event::Client { client: c, what: ToClient::Think });
    }

    /// One more change for each set: all must be writable in the end.
    pub(crate) fn last_wishes(&mut self) {
        for set in 0..self.sets.len() {
            let create = create(Fid::root(set_id(set)), "the last one", Node::File);
            self.begin(0, set, create);
        }
    }

    fn begin(&mut self, c: usize, set: usize, op: Op) {
        let record = self.checks.history.len();
        let client = &mut self.clients[c];
        client.seq += u64::from(op.changes());
        let seq = if op.changes() { client.seq } else { 0 };
        let id = OpId { session: SessionId(c as u64 + 1), seq };
        client.open.insert(record, Open { tries: 0, sent: None });
        say!(self, "client {c} begins {record}: set {set} {:?} {op:?}", id.seq);
        let tag = record as u64 + 1;
        self.checks.history.push(Record {
            set,
            op,
            tag,
            id,
            invoked: self.now,
            answer: None,
            returned: self.now,
        });
        self.transmit(c, record);
    }

    /// Sends the operation to whom the client takes for the primary.
    fn transmit(&mut self, c: usize, record: usize) {
        let set = self.checks.history[record].set;
        let client = &mut self.clients[c];
        let Some(open) = client.open.get_mut(&record) else { return };
        open.tries += 1;
        let tries = open.tries;
        let view = &client.views[set];
        let Some(primary) = view.primary else {
            self.ask_store(c);
            let delay = self.rng.millis(50, 300);
            return self.after(delay, Event::Client { client: c, what: ToClient::Resend { record, tries } });
        };
        let server = server_of(primary);
        let conn = *client.conns.entry(server).or_insert(1);
        open.sent = Some((server, conn));
        let request = Request { client: c, conn, record, epoch: view.epoch, finished: client.finished };
        let (cut, timeout) = (client.cut == Some(server), client.timeout);
        self.after(timeout, Event::Client { client: c, what: ToClient::Timeout { record, tries } });
        if !cut && self.servers[server].alive {
            let mut delay = self.net_delay(None, Some(server));
            if self.rng.chance(self.pace.late) {
                delay += self.rng.millis(500, 15000);
            }
            let inc = self.servers[server].inc;
            self.after(delay, Event::Server { server, inc, what: ToServer::Request(request) });
        }
    }

    fn ask_store(&mut self, c: usize) {
        let delay = self.rng.millis(1, 20);
        self.after(delay, Event::Store(ToStore::Ask { client: c }));
    }

    /// The connection is given up; what waited on it is sent again.
    fn timed_out(&mut self, c: usize, record: usize, tries: u32) {
        let client = &mut self.clients[c];
        let Some((server, conn)) = client.open.get(&record).filter(|o| o.tries == tries).and_then(|o| o.sent)
        else {
            return;
        };
        client.conns.insert(server, conn + 1);
        let lost: Vec<usize> =
            client.open.iter().filter(|(_, o)| o.sent == Some((server, conn))).map(|(r, _)| *r).collect();
        self.ask_store(c);
        for record in lost {
            self.transmit(c, record);
        }
    }

    fn replied(&mut self, c: usize, reply: Reply) {
        let client = &mut self.clients[c];
        let Some(open) = client.open.get(&reply.record).copied() else { return };
        if open.sent != Some((reply.server, reply.conn)) {
            return;
        }
        match reply.result {
            Ok(answer) => {
                client.open.remove(&reply.record);
                let record = &mut self.checks.history[reply.record];
                if record.id.seq > 0 {
                    client.finish(record.id.seq);
                }
                let own = matches!(&record.op, Op::Create { name, .. } if name.as_bytes().starts_with(OWN));
                match &answer {
                    _ if own => {}
                    Answer::Done(Some(fid)) => client.learn(record.set, *fid),
                    Answer::Attr(attr) => client.learn(record.set, attr.fid),
                    _ => {}
                }
                say!(self, "client {c} has {}: {answer:?}", reply.record);
                let record = &mut self.checks.history[reply.record];
                record.returned = self.now;
                record.answer = Some(answer);
                self.go_on(c, reply.record);
            }
            Err(fail) => {
                if matches!(fail, Fail::WrongView { .. }) {
                    self.ask_store(c);
                }
                // Until then it is with nobody.
                if let Some(open) = self.clients[c].open.get_mut(&reply.record) {
                    open.sent = None;
                    open.tries += 1;
                }
                let delay = self.rng.millis(5, 100);
                let what = ToClient::Resend { record: reply.record, tries: open.tries + 1 };
                self.after(delay, Event::Client { client: c, what });
            }
        }
    }

    /// A file of the client's own is made, written and synced, and nobody touches it again.
    fn go_on(&mut self, c: usize, record: usize) {
        let record = &self.checks.history[record];
        let (set, tag, epoch) = (record.set, record.tag, self.clients[c].views[record.set].epoch);
        let next = match (&record.op, &record.answer) {
            (Op::Create { name, .. }, Some(Answer::Done(Some(fid)))) if name.as_bytes().starts_with(OWN) => {
                self.clients[c].own.insert(*fid, (name.clone(), 0, epoch));
                self.clients[c].owned.insert(*fid);
                Op::Write { fid: *fid, offset: 0, append: false, kill_suid: false }
            }
            (Op::Write { fid, .. }, Some(Answer::Done(_))) => match self.clients[c].own.get_mut(fid) {
                Some(own) => {
                    own.1 = tag;
                    Op::Fsync { fid: *fid }
                }
                None => return,
            },
            (Op::Fsync { fid }, Some(Answer::Done(_))) => {
                // The sync fails for the application where a power cut of all bricks came between.
                if let Some((name, tag, written)) = self.clients[c].own.remove(fid) {
                    if !self.mutant(Mutant::SyncsPastLosses)
                        && written < self.clients[c].views[set].lost_before
                    {
                        *self.faults.counts.entry("sync after a loss").or_default() += 1;
                    } else {
                        self.checks.synced.push((set, name, *fid, tag));
                    }
                }
                return;
            }
            _ => return,
        };
        self.begin(c, set, next);
    }

    fn some_dir(&mut self, c: usize, set: usize) -> Fid {
        let id = set_id(set);
        match self.rng.below(5) {
            0 => self.some_known(c, set),
            1 | 2 => Fid::root(id),
            n => first_dir(id, n as u64 - 2),
        }
    }

    fn some_known(&mut self, c: usize, set: usize) -> Fid {
        let client = &self.clients[c];
        let known: Vec<Fid> = client.known.iter().filter(|(s, _)| *s == set).map(|(_, f)| *f).collect();
        self.rng.pick(&known).copied().unwrap_or(first_dir(set_id(set), 1))
    }

    fn invent(&mut self, c: usize, set: usize) -> Op {
        const NAMES: [&str; 6] = ["a", "b", "c", "d1", "e", "f"];
        if self.rng.chance(30) {
            let own = format!("own file {}", self.checks.history.len());
            return create(first_dir(set_id(set), FIRST_DIRS), &own, Node::File);
        }
        if self.rng.chance(100) {
            return self.some_change_of_data(c, set);
        }
        let parent = self.some_dir(c, set);
        let one = NAMES[self.rng.below(NAMES.len())];
        match self.rng.below(30) {
            0..5 => create(parent, one, Node::File),
            5..7 => create(parent, one, Node::Dir),
            7..10 => Op::Unlink { parent, name: name(one) },
            10 => Op::Rmdir { parent, name: name(one) },
            11..13 => {
                let flags = [0, 0, rename_flags::NOREPLACE, rename_flags::EXCHANGE][self.rng.below(4)];
                let to_name = name(NAMES[self.rng.below(NAMES.len())]);
                Op::Rename { parent, name: name(one), to_parent: self.some_dir(c, set), to_name, flags }
            }
            13 => Op::Link { fid: self.some_known(c, set), parent, name: name(one) },
            14..18 => {
                let append = self.rng.chance(200);
                let offset = bytes(self.rng.below(4));
                Op::Write { fid: self.some_known(c, set), offset, append, kill_suid: false }
            }
            18 => Op::SetAttr { fid: self.some_known(c, set), set: self.some_attr() },
            19..22 => Op::Read { fid: self.some_known(c, set), offset: 0, len: 8 },
            22..25 => Op::Lookup { parent, name: name(one) },
            25 => Op::GetAttr { fid: self.some_known(c, set) },
            26 | 27 => Op::ReadDir { fid: parent, cookie: 0, plus: false },
            n => Op::Fsync { fid: if n == 28 { parent } else { self.some_known(c, set) } },
        }
    }

    fn some_change_of_data(&mut self, c: usize, set: usize) -> Op {
        let (fid, from) = (self.some_known(c, set), self.some_known(c, set));
        let (offset, len) = (bytes(self.rng.below(3)), bytes(1 + self.rng.below(2)));
        match self.rng.below(4) {
            0 => Op::SetXattr { fid, name: name("user.x"), flags: 0 },
            1 => Op::RemoveXattr { fid, name: name("user.x") },
            2 => Op::Fallocate { fid, mode: [0, 3, 8, 0x20][self.rng.below(4)], offset, len },
            _ => Op::CopyRange { from, from_offset: offset, to: fid, to_offset: 0, len },
        }
    }

    fn some_attr(&mut self) -> SetAttr {
        SetAttr {
            mode: Some(u32::try_from(self.rng.below(0o1000)).unwrap_or(0)),
            uid: None,
            gid: None,
            size: self.rng.chance(400).then(|| bytes(self.rng.below(4))),
            atime: None,
            mtime: self.rng.chance(300).then_some(SetTime::Now),
            kill_suid: false,
        }
    }
}

fn create(parent: Fid, one: &str, node: Node) -> Op {
    Op::Create { parent, name: name(one), node, mode: 0o644, umask: 0o22, uid: 1, gid: 1, open: false }
}

impl core::fmt::Debug for Client {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "client {} with {} open", self.id, self.open.len())
    }
}

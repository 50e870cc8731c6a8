//! Questions of a server's sets to sets of other servers.

use crate::machine::ToProcess;
use crate::network::{Node, Packet, Way};
use crate::process::To;
use crate::store::{machine_of, server_id};
use crate::world::World;
use bytes::Bytes;
use core::time::Duration;
use ids::{OpId, ServerId, SetId};
use server_core::ask::{Broken, Question, Step};
use set_core::Input;
use std::collections::BTreeMap;
use wire::codec::Blob;
use wire::frame::VERSIONS;
use wire::hello::{Hello, Purpose};
use wire::{Call, Frame, Kind, Op, Reply, Wire};

/// A set of the same process that does not answer within this time has dropped the question.
const HERE: Duration = Duration::from_secs(5);
/// The same for a sync.
const SYNC_HERE: Duration = Duration::from_secs(60);

/// Questions under way, and the connections they are asked on.
#[derive(Default)]
pub(crate) struct Questions {
    next: u64,
    open: BTreeMap<u64, Open>,
    /// By the session's number.
    connections: BTreeMap<u64, (ServerId, u64)>,
}

struct Open {
    question: Question,
    payload: Bytes,
    /// Which set asks, and its ticket.
    by: (SetId, u64),
    /// The connection and the number of the try that is under way.
    sent: Option<(u64, u64)>,
    tries: u64,
}

/// A question that is under way.
pub(crate) struct UnderWay {
    /// Which set asks, and its ticket.
    pub(crate) by: SetId,
    pub(crate) ticket: u64,
    /// The set that is asked, and the machine that has been sent it.
    pub(crate) of: SetId,
    pub(crate) machine: Option<usize>,
}

impl Questions {
    /// What is asked; `me`: the machine that asks.
    pub(crate) fn under_way(&self, me: usize) -> impl Iterator<Item = UnderWay> {
        let machine = move |connection| match connection {
            0 => Some(me),
            c => self.connections.values().find(|(_, known)| *known == c).map(|(s, _)| machine_of(*s)),
        };
        self.open.values().map(move |open| UnderWay {
            by: open.by.0,
            ticket: open.by.1,
            of: open.question.set(),
            machine: open.sent.and_then(|(c, _)| machine(c)),
        })
    }
}

impl World {
    /// A set asks another set.
    pub(crate) fn ask_set(
        &mut self,
        m: usize,
        by: (SetId, u64),
        set: SetId,
        (op, payload): (Op, Bytes),
        name: Option<OpId>,
    ) {
        let Some(process) = self.process(m) else { return };
        let question = process.asker.borrow_mut().begin(name, (by.0, set), op);
        let q = &mut process.questions;
        q.next += 1;
        q.open.insert(q.next, Open { question, payload, by, sent: None, tries: 0 });
        let id = q.next;
        self.later(self.now, m, ToProcess::AskAgain(id));
    }

    /// A question is asked, or asked again.
    pub(crate) fn ask_again(&mut self, m: usize, id: u64) {
        let Some(process) = self.process(m) else { return };
        let Some(open) = process.questions.open.get_mut(&id) else { return };
        let state = process.known.clone();
        let step = process.asker.borrow_mut().look(&mut open.question, &state, server_id(m));
        self.take_step(m, id, step);
    }

    /// A set of this process has answered a try of a question.
    pub(crate) fn own_answer(&mut self, m: usize, id: u64, frame: u64, reply: Reply) {
        let open = self.process(m).and_then(|p| p.questions.open.get(&id));
        if open.is_some_and(|o| o.sent == Some((0, frame))) {
            self.question_ended(m, id, Ok(reply));
        }
    }

    /// A try of a question ended.
    pub(crate) fn question_ended(&mut self, m: usize, id: u64, answer: Result<Reply, Broken>) {
        let Some(process) = self.process(m) else { return };
        let Some(open) = process.questions.open.get_mut(&id) else { return };
        open.sent = None;
        let step = process.asker.borrow_mut().answered(&mut open.question, answer);
        self.take_step(m, id, step);
    }

    fn take_step(&mut self, m: usize, id: u64, step: Step) {
        match step {
            Step::Here(call) => {
                let Some(process) = self.process(m) else { return };
                let session = process.asker.borrow().session();
                let Some(open) = process.questions.open.get_mut(&id) else { return };
                open.tries += 1;
                let frame = id * 1000 + open.tries % 1000;
                open.sent = Some((0, frame));
                let payload = open.payload.clone();
                // A set that ends drops what it has not begun.
                let here = if call.op.is_sync() { SYNC_HERE } else { HERE };
                self.timer(m, here, ToProcess::AskTimedOut(id, frame));
                self.serve(m, call, payload, To::Here(id, frame), session);
            }
            Step::There { server, connection, oldest, call, timeout } => {
                self.ask_there(m, id, server, (connection, oldest), &call, timeout);
            }
            Step::Pause(time) => self.timer(m, time, ToProcess::AskAgain(id)),
            Step::Done(answer) => {
                let Some(process) = self.process(m) else { return };
                let Some(open) = process.questions.open.remove(&id) else { return };
                let (set, ticket) = open.by;
                self.step(m, set, Input::Answered(ticket, answer));
            }
        }
    }

    fn ask_there(
        &mut self,
        m: usize,
        id: u64,
        server: ServerId,
        (number, oldest): (u64, u64),
        call: &Call,
        timeout: Duration,
    ) {
        let Some(process) = self.process(m) else { return };
        let known = process.questions.connections.get(&number).map(|(_, c)| *c);
        let connection = match known.or_else(|| self.open_own(m, server, number, oldest)) {
            Some(connection) => connection,
            None => {
                // The port refuses, or nobody answers the handshake.
                let delay = self.rng.millis(1, 400);
                return self.timer(m, delay, ToProcess::AskTimedOut(id, 0));
            }
        };
        let Some(process) = self.process(m) else { return };
        let Some(open) = process.questions.open.get_mut(&id) else { return };
        open.tries += 1;
        let frame = id * 1000 + open.tries % 1000;
        open.sent = Some((connection, frame));
        let frame_of = Frame::with_payload(Kind::Call, frame, call.to_bytes(), open.payload.clone());
        let packet = Packet::of(frame_of);
        self.send(self.now, connection, Way::There, packet);
        self.timer(m, timeout, ToProcess::AskTimedOut(id, frame));
    }

    /// Makes a connection of the server's own session.
    fn open_own(&mut self, m: usize, server: ServerId, number: u64, oldest: u64) -> Option<u64> {
        let to = machine_of(server);
        let there = &self.machines[to];
        if !self.network.reaches(Node::Server(m), Node::Server(to)) || !there.lives() || there.is_frozen() {
            return None;
        }
        let lives = (self.machines[m].life, there.life);
        let session = self.process(m)?.asker.borrow().session();
        let connection = self.connect((Node::Server(m), lives.0), (to, lives.1));
        let hello = Hello {
            versions: Blob(VERSIONS.to_vec()),
            purpose: Purpose::Session { shard: 0, connection: number, oldest },
            pool: [0; 16],
            from: server_id(m),
            session,
        };
        let packet = Packet::of(Frame::new(Kind::Hello, 1, hello.to_bytes()));
        self.send(self.now, connection, Way::There, packet);
        self.process(m)?.questions.connections.insert(number, (server, connection));
        Some(connection)
    }

    /// An answer on a connection of the server's own session.
    pub(crate) fn on_own_reply(&mut self, m: usize, connection: u64, frame: &Frame) {
        let Some(process) = self.process(m) else { return };
        let asked = process.questions.open.iter().find(|(_, o)| o.sent == Some((connection, frame.id)));
        let Some(id) = asked.map(|(id, _)| *id) else { return };
        match Reply::from_bytes(&frame.body) {
            Ok(reply) => self.question_ended(m, id, Ok(reply)),
            Err(e) => self.fail(format!("server {m} cannot read an answer: {e}")),
        }
    }

    /// A try took too long. `frame`: which try; 0: it could not even be sent.
    pub(crate) fn ask_timed_out(&mut self, m: usize, id: u64, frame: u64) {
        let Some(process) = self.process(m) else { return };
        let Some(open) = process.questions.open.get(&id) else { return };
        if open.sent.map_or(0, |(_, f)| f) == frame {
            self.question_ended(m, id, Err(Broken));
        }
    }

    /// A connection of the server's own session is gone.
    pub(crate) fn own_connection_ended(&mut self, m: usize, connection: u64) {
        let Some(process) = self.process(m) else { return };
        let gone = process.questions.connections.iter().find(|(_, (_, c))| *c == connection);
        let Some((number, server)) = gone.map(|(n, (s, _))| (*n, *s)) else { return };
        process.questions.connections.remove(&number);
        process.asker.borrow_mut().closed(server, number);
        let lost: Vec<u64> = process
            .questions
            .open
            .iter()
            .filter(|(_, o)| o.sent.is_some_and(|(c, _)| c == connection))
            .map(|(id, _)| *id)
            .collect();
        for id in lost {
            self.question_ended(m, id, Err(Broken));
        }
    }
}

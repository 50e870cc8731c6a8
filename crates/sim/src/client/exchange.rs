//! Exchanges of clients with servers: connections, handshakes, messages and their answers.

use super::{Client, Connected, Running, Server, ToClient};
use crate::network::{Node, Packet, Way, unpack};
use crate::store::machine_of;
use crate::trace::say;
use crate::world::World;
use bytes::Bytes;
use client_core::call::{Action, Ended, Fate};
use client_core::connections::Connections;
use client_core::exchange::{Exchange, Failure, Message, Step};
use client_core::operation::Operation;
use ids::{OpId, ServerId};
use wire::codec::Blob;
use wire::frame::VERSIONS;
use wire::hello::{Hello, HelloReply, Purpose};
use wire::{Call, Frame, Kind, Op, Reply, Wire};

impl World {
    pub(super) fn begin_exchange(&mut self, c: usize, id: u64, exchange: Exchange) {
        let Some(task) = self.clients[c].tasks.get_mut(&id) else { return };
        task.tries += 1;
        let (number, first) = (task.tries, exchange.first());
        if number > 1 && task.operation.as_ref().is_some_and(|o| o.seq() != 0) {
            self.coverage.count("change sent again");
        }
        task.running = Some(Running { number, exchange, connection: None, handshake: None, last: None });
        self.take_exchange_step(c, id, first);
    }

    /// Carries out a step of an exchange.
    fn take_exchange_step(&mut self, c: usize, id: u64, step: Step) {
        match step {
            Step::Connect => self.connect_for(c, id),
            Step::Send { what, finished } => {
                self.send_message(c, id, what, finished);
                self.arm_deadline(c, id);
            }
            Step::Wait => self.arm_deadline(c, id),
            Step::Handshake => {
                self.count("server asked for a handshake");
                self.dial_server(c, id, true);
                self.arm_deadline(c, id);
            }
            Step::End { how, fate } => self.end_exchange(c, id, how, fate),
        }
    }

    fn arm_deadline(&mut self, c: usize, id: u64) {
        let client = &self.clients[c];
        let Some(task) = client.tasks.get(&id) else { return };
        let Some(running) = &task.running else { return };
        let deadline = running.exchange.deadline();
        let left = (task.begun + deadline).saturating_sub(self.client_now(c));
        let (number, when) = (running.number, self.now + client.clock.lasts(left));
        self.tell_client(when, c, ToClient::TimedOut(id, number, deadline));
    }

    /// Gets a connection: one that is idle, or a new one.
    fn connect_for(&mut self, c: usize, id: u64) {
        self.arm_deadline(c, id);
        let client = &mut self.clients[c];
        let Some(target) = client.running(id).map(|r| r.exchange.target()) else { return };
        let first = client.next_number;
        let new = || Server { connections: Connections::new(first), idle: Vec::new() };
        let server = client.servers.entry(target.server).or_insert_with(new);
        match server.idle.pop() {
            Some(connection) => {
                if let Some(known) = client.connected.get_mut(&connection) {
                    known.task = Some(id);
                }
                self.connected(c, id, connection, true);
            }
            None => self.dial_server(c, id, false),
        }
    }

    fn connected(&mut self, c: usize, id: u64, connection: u64, used: bool) {
        let client = &mut self.clients[c];
        let Some(target) = client.running(id).map(|r| r.exchange.target()) else { return };
        let Some(era) = client.era(target.server) else { return };
        let Client { tasks, sets, .. } = client;
        let Some(running) = tasks.get_mut(&id).and_then(|t| t.running.as_mut()) else { return };
        running.connection = Some(connection);
        let step = running.exchange.connected(used, era, || sets.entry(target.set).or_default());
        self.take_exchange_step(c, id, step);
    }

    fn dial_server(&mut self, c: usize, id: u64, answers_handshake: bool) {
        let Some(running) = self.clients[c].running(id) else { return };
        let (server, number) = (running.exchange.target().server, running.number);
        let to = machine_of(server);
        let (node, there) = (Node::Client(c), &self.machines[to]);
        if !self.network.reaches(node, Node::Server(to)) || !there.powered {
            return;
        }
        if !there.lives() {
            let delay = self.network.delay(&mut self.rng, node, Node::Server(to));
            return self.tell_client(self.now + delay, c, ToClient::Refused(id, number));
        }
        let life = there.life;
        let client = &mut self.clients[c];
        let next = client.next_number;
        client.next_number += 1;
        let Some(known) = client.servers.get_mut(&server) else { return };
        let numbered = known.connections.begin(|| next);
        let session = client.session;
        let made = self.connect((node, 0), (to, life));
        let hello = Hello {
            versions: Blob(VERSIONS.to_vec()),
            purpose: Purpose::Session { shard: 0, connection: numbered.number, oldest: numbered.oldest },
            pool: [0; 16],
            from: ServerId(0),
            session,
        };
        let client = &mut self.clients[c];
        let connected = Connected { server, number: numbered.number, used: false, frames: 1, task: Some(id) };
        client.connected.insert(made, connected);
        if let Some(running) = client.running(id) {
            let place = if answers_handshake { &mut running.handshake } else { &mut running.connection };
            *place = Some(made);
        }
        let frame = Frame::new(Kind::Hello, 1, hello.to_bytes());
        self.send(self.now, made, Way::There, Packet::of(frame));
    }

    fn send_message(&mut self, c: usize, id: u64, what: Message, finished: u64) {
        let client = &mut self.clients[c];
        let Some(task) = client.tasks.get(&id) else { return };
        let seq = task.operation.as_ref().map_or(0, Operation::seq);
        let (ops, payload, seq): (Vec<Op>, _, _) = match what {
            Message::Request => (task.op.iter().cloned().collect(), task.payload.clone(), seq),
            Message::Opens(files) => {
                self.coverage.count("reclaim");
                (files.into_iter().map(|fid| Op::Open { fid }).collect(), Bytes::new(), 0)
            }
            Message::Releases(files) => {
                (files.into_iter().map(|fid| Op::Release { fid }).collect(), Bytes::new(), 0)
            }
        };
        let Some(running) = client.running(id) else { return };
        let (target, connection) = (running.exchange.target(), running.connection);
        let Some(connection) = connection else { return };
        for op in ops {
            let client = &mut self.clients[c];
            let name = OpId { session: client.session, seq };
            let Some(known) = client.connected.get_mut(&connection) else { return };
            known.frames += 1;
            let frame = known.frames;
            let call = Call { set: target.set, epoch: target.epoch, id: name, finished, op };
            let frame = Frame::with_payload(Kind::Call, frame, call.to_bytes(), payload.clone());
            self.send(self.now, connection, Way::There, Packet::of(frame));
        }
    }

    pub(super) fn on_client_packet(&mut self, c: usize, connection: u64, packet: Packet) {
        let (head, body, payload) = match packet {
            Packet::End => return self.client_connection_ended(c, connection),
            Packet::Frame { head, body, payload } => (head, body, payload),
        };
        let frame = match unpack(&head, body, payload) {
            Ok(frame) => frame,
            Err(e) => return self.fail(format!("client {c} got a frame that it cannot read: {e}")),
        };
        let Some(id) = self.clients[c].connected.get(&connection).and_then(|k| k.task) else { return };
        match frame.kind {
            Kind::HelloReply => match HelloReply::from_bytes(&frame.body) {
                Ok(_) => self.on_greeting(c, id, connection),
                Err(e) => self.fail(format!("client {c} cannot read a handshake: {e}")),
            },
            Kind::Reply => match Reply::from_bytes(&frame.body) {
                Ok(reply) => self.on_reply(c, id, connection, reply, frame.payload),
                Err(e) => self.fail(format!("client {c} cannot read an answer: {e}")),
            },
            kind => self.fail(format!("client {c} got a frame of kind {kind:?}")),
        }
    }

    /// A server answers a handshake: an exchange has its connection, or knows that the server only is slow.
    fn on_greeting(&mut self, c: usize, id: u64, connection: u64) {
        let now = self.client_now(c);
        let client = &mut self.clients[c];
        let Some(task) = client.tasks.get_mut(&id) else { return };
        let waited = now.saturating_sub(task.begun);
        let Some(running) = task.running.as_mut() else { return };
        if running.handshake == Some(connection) {
            running.handshake = None;
            let step = running.exchange.handshake_done(waited);
            self.dispose(c, connection, Fate::PutBack);
            self.take_exchange_step(c, id, step);
        } else if running.connection == Some(connection) {
            self.connected(c, id, connection, false);
        }
    }

    fn on_reply(&mut self, c: usize, id: u64, connection: u64, reply: Reply, payload: Bytes) {
        let Client { tasks, sets, .. } = &mut self.clients[c];
        let Some(task) = tasks.get_mut(&id) else { return };
        let set = task.set;
        let Some(running) = task.running.as_mut().filter(|r| r.connection == Some(connection)) else {
            return;
        };
        let step = running.exchange.answered(&reply, || sets.entry(set).or_default());
        running.last = Some((reply, payload));
        self.take_exchange_step(c, id, step);
    }

    /// A step of an exchange failed.
    pub(super) fn fail_exchange(&mut self, c: usize, id: u64, number: u64, why: Failure) {
        let now = self.client_now(c);
        let Client { tasks, sets, .. } = &mut self.clients[c];
        let Some(task) = tasks.get_mut(&id) else { return };
        let (set, waited) = (task.set, now.saturating_sub(task.begun));
        let Some(running) = task.running.as_mut().filter(|r| r.number == number) else { return };
        let step = running.exchange.failed(why, waited, || sets.entry(set).or_default());
        say!(self, "client {c}: exchange {number} of task {id}: {why:?}");
        self.take_exchange_step(c, id, step);
    }

    /// An exchange is over.
    fn end_exchange(&mut self, c: usize, id: u64, how: Ended, fate: Option<Fate>) {
        let now = self.client_now(c);
        let client = &mut self.clients[c];
        let Some(task) = client.tasks.get_mut(&id) else { return };
        let (begun, set) = (task.begun, task.set);
        let Some(running) = task.running.take() else { return };
        if let Some(handshake) = running.handshake {
            self.dispose(c, handshake, Fate::Close);
        }
        if let Some(connection) = running.connection {
            self.dispose(c, connection, fate.unwrap_or(Fate::Close));
        }
        let Client { tasks, sets, .. } = &mut self.clients[c];
        let Some(task) = tasks.get_mut(&id) else { return };
        let Some(operation) = task.operation.as_mut() else {
            tasks.remove(&id);
            return;
        };
        let action = operation.ended(how, || now.saturating_sub(begun), || sets.entry(set).or_default());
        if action != Action::Return {
            say!(
                self,
                "client {c}: task {id} ({:?}): {how:?}",
                self.clients[c].tasks.get(&id).map(|t| &t.op)
            );
        }
        if let Some(task) = self.clients[c].tasks.get_mut(&id) {
            task.running = None;
        }
        match (action, running.last) {
            (Action::Return, Some(last)) => self.answer_call(c, id, last),
            (action, _) => self.act(c, id, action),
        }
    }

    /// What becomes of a connection after an exchange.
    fn dispose(&mut self, c: usize, connection: u64, fate: Fate) {
        let client = &mut self.clients[c];
        let Some(known) = client.connected.get_mut(&connection) else { return };
        known.task = None;
        known.used = true;
        let (server, number) = (known.server, known.number);
        let Some(there) = client.servers.get_mut(&server) else { return };
        let news = match fate {
            Fate::PutBack | Fate::Close => false,
            Fate::GiveUp => there.connections.give_up(number),
            Fate::Broke => there.connections.broke(number),
        };
        let mut closed = Vec::new();
        if news {
            closed = core::mem::take(&mut there.idle);
        }
        if fate == Fate::PutBack && !there.connections.is_given_up(number) {
            there.idle.push(connection);
        } else {
            closed.push(connection);
        }
        for connection in closed {
            self.clients[c].connected.remove(&connection);
            self.close(self.now, connection, Way::Back);
        }
    }

    /// The other side has closed a connection.
    fn client_connection_ended(&mut self, c: usize, connection: u64) {
        let client = &mut self.clients[c];
        let Some(known) = client.connected.get(&connection) else { return };
        let (server, task) = (known.server, known.task);
        match task.and_then(|id| Some((id, client.running(id)?.number))) {
            Some((id, number)) => self.fail_exchange(c, id, number, Failure::Broke),
            None => {
                client.connected.remove(&connection);
                if let Some(there) = client.servers.get_mut(&server)
                    && there.idle.contains(&connection)
                {
                    there.idle.retain(|i| *i != connection);
                    there.connections.idle_broke();
                }
            }
        }
    }
}

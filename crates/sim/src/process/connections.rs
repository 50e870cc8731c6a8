//! What comes on the connections of a server process.

use super::{Established, Link, To};
use crate::Family;
use crate::machine::ToProcess;
use crate::network::{Packet, Way, unpack};
use crate::rest::Phase;
use crate::store::server_id;
use crate::world::World;
use bytes::Bytes;
use ids::{Epoch, SessionId};
use set_core::{Input, Output, Request};
use std::rc::Rc;
use wire::codec::Blob;
use wire::hello::{Hello, HelloReply, Purpose};
use wire::peer::PeerMessage;
use wire::{Call, Errno, Fail, Frame, Kind, Op, Reply, Wire};

/// Parts of a thousand of the ends of transactions that a set is not told.
const ENDS_LOST: usize = 100;

impl World {
    pub(super) fn on_packet(&mut self, m: usize, connection: u64, way: Way, packet: Packet) {
        let frame = match packet {
            Packet::End => return self.on_end(m, connection, way),
            Packet::Frame { head, body, payload } => match unpack(&head, body, payload) {
                Ok(frame) => frame,
                Err(e) => return self.fail(format!("server {m} got a frame that it cannot read: {e}")),
            },
        };
        match (way, frame.kind) {
            (Way::There, Kind::Hello) => self.handshake(m, connection, &frame),
            (Way::There, Kind::Call) => self.on_call(m, connection, frame),
            (Way::There, Kind::Peer) => self.on_peer(m, frame),
            (Way::Back, Kind::Reply) => self.on_own_reply(m, connection, &frame),
            (Way::Back, Kind::HelloReply) => {}
            (_, kind) => self.fail(format!("server {m} got a frame of kind {kind:?}")),
        }
    }

    fn handshake(&mut self, m: usize, connection: u64, frame: &Frame) {
        let Ok(hello) = Hello::from_bytes(&frame.body) else {
            return self.fail(format!("server {m} cannot read a handshake"));
        };
        if let Purpose::Session { connection: number, oldest, .. } = hello.purpose {
            let Some(process) = self.process(m) else { return };
            let given_up = Rc::default();
            let established = Established { connection, session: hello.session, number, given_up };
            let told = process.sessions.connect((hello.session, None), (number, oldest), established.clone());
            if told.accepted {
                process.established.insert(connection, established);
            }
            for old in told.given_up {
                old.given_up.set(true);
                if let Some(process) = self.process(m) {
                    process.established.remove(&old.connection);
                }
                self.close(self.now, old.connection, Way::There);
                self.disconnected(m, &old);
            }
            if !told.accepted {
                return self.close(self.now, connection, Way::There);
            }
        }
        let reply = HelloReply {
            refused: Blob(Vec::new()),
            version: 2,
            pool: hello.pool,
            server: server_id(m),
            shards: 1,
        };
        let frame = Frame::new(Kind::HelloReply, frame.id, reply.to_bytes());
        self.send(self.now, connection, Way::Back, Packet::of(frame));
    }

    fn on_call(&mut self, m: usize, connection: u64, frame: Frame) {
        let shown = self.shown(m);
        let Some(process) = self.process(m) else { return };
        let Some(on) = process.established.get(&connection).cloned() else { return };
        let call = match Call::from_bytes(&frame.body) {
            Ok(call) => call,
            Err(e) => return self.fail(format!("server {m} cannot read a call: {e}")),
        };
        process.last_call = shown;
        let session = on.session;
        self.serve(m, call, frame.payload, To::There { on, id: frame.id }, session);
    }

    /// Now and then a set is not told how a transaction about a file has ended, as if its disk had refused that. It has to ask.
    fn loses_end(&mut self, op: &Op) -> bool {
        let told = matches!(op, Op::EndFile { by, .. } if *by != SessionId(0));
        let storms = self.phase == Phase::Storm && self.config.faults.contains(&Family::Disks);
        let loses = told && storms && self.rng.chance(ENDS_LOST);
        if loses {
            self.count("end of a transaction not told");
        }
        loses
    }

    /// A request for a set that this server may have.
    pub(crate) fn serve(&mut self, m: usize, call: Call, payload: Bytes, to: To, session: SessionId) {
        let set = call.set;
        let Some(process) = self.process(m) else { return };
        if process.serving(set).is_some() {
            if self.loses_end(&call.op) {
                let (reply, payload) = (Reply::errno(Errno::EIO.0), Bytes::new());
                return self.perform(self.now, m, set, Output::Reply { to, reply, payload, grant: 0 });
            }
            self.coverage.asked(&call);
            let user = if let To::There { .. } = &to { self.user_of(session) } else { None };
            return self.step(
                m,
                set,
                Input::Request(Request { call, payload, to, session, user, beneath: None }),
            );
        }
        let epoch = process.known.sets.get(&set).map_or(Epoch(0), |s| s.view.epoch);
        let (reply, payload) = (Reply(Err(Fail::WrongView { epoch })), Bytes::new());
        self.perform(self.now, m, set, Output::Reply { to, reply, payload, grant: 0 });
    }

    fn on_peer(&mut self, m: usize, frame: Frame) {
        match PeerMessage::from_bytes(&frame.body) {
            Ok(message) => {
                self.coverage.heard(&message);
                let known = self.machines[m].process.as_ref().and_then(|p| p.known.sets.get(&message.set));
                if known.is_some_and(|set| message.epoch < set.view.epoch) {
                    self.count("message of an older epoch");
                }
                self.step(m, message.set, Input::Peer(message, frame.payload));
            }
            Err(e) => self.fail(format!("server {m} cannot read a peer's message: {e}")),
        }
    }

    fn on_end(&mut self, m: usize, connection: u64, way: Way) {
        let Some(process) = self.process(m) else { return };
        if way == Way::There {
            if let Some(established) = process.established.remove(&connection) {
                self.disconnected(m, &established);
            }
            return;
        }
        let link = process.links.iter().find(|(_, l)| **l == Link::Up(connection)).map(|(s, _)| *s);
        match link {
            Some(server) => {
                process.links.insert(server, Link::Dialing);
                self.later(self.now, m, ToProcess::Dial(server));
            }
            None => self.own_connection_ended(m, connection),
        }
    }

    fn disconnected(&mut self, m: usize, established: &Established) {
        let shown = self.shown(m);
        let Some(process) = self.process(m) else { return };
        let ended = process.sessions.disconnect(shown, established.session, established.number);
        if let Some(on) = ended.given_up {
            on.given_up.set(true);
        }
        if let Some(at) = ended.look_at {
            self.timer(m, at.saturating_sub(shown), ToProcess::SessionEnds(established.session));
        }
    }

    pub(super) fn end_session(&mut self, m: usize, session: SessionId) {
        let shown = self.shown(m);
        let Some(process) = self.process(m) else { return };
        if process.sessions.end(shown, session) {
            self.count("session ended");
            for set in self.process_sets(m) {
                self.step(m, set, Input::SessionEnded(session));
            }
        }
    }
}

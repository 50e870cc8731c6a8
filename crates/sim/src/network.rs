//! The network: connections that carry bytes in order, break, hang and are slow; and paths that are cut, one way or both.
//!
//! As with TCP, what was sent on a connection arrives in its order or not at all, but possibly much later: while a path is
//! cut it lies in buffers. A side learns of the other's end only through the connection. Connections of one client overtake
//! each other.

use crate::rng::Prng;
use crate::world::{Event, World};
use bytes::Bytes;
use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use wire::frame::{FrameHead, HEAD};
use wire::{DecodeError, Frame};

/// After so long without a sign of life a side takes a connection for dead.
const KEEPALIVE: Duration = Duration::from_secs(3);

/// A machine with a network card.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Node {
    Server(usize),
    Client(usize),
}

/// A frame as bytes, or the end of the connection.
#[derive(Clone, Debug)]
pub(crate) enum Packet {
    Frame { head: [u8; HEAD], body: Bytes, payload: Bytes },
    End,
}

impl Packet {
    pub(crate) fn of(frame: Frame) -> Packet {
        Packet::Frame { head: frame.head(), body: frame.body, payload: frame.payload }
    }
}

/// Reads a frame from the bytes that arrived, as the product's readers do.
pub(crate) fn unpack(head: &[u8; HEAD], body: Bytes, payload: Bytes) -> Result<Frame, DecodeError> {
    let told = FrameHead::decode(head)?;
    told.verify(&body, &payload)?;
    Ok(Frame { kind: told.kind, id: told.id, body, payload, grant: told.grant, user: told.user })
}

/// One of the two ways of a connection: from who began it, or to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    There,
    Back,
}

#[derive(Debug, Default)]
struct Lane {
    /// When the last packet arrives.
    last: Duration,
    /// What lies in buffers while the path is cut.
    held: VecDeque<Packet>,
    /// The side that receives here has closed: what comes is dropped.
    deaf: bool,
    bytes: usize,
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) from: Node,
    pub(crate) to: usize,
    /// The processes at its ends.
    pub(crate) from_life: u32,
    pub(crate) to_life: u32,
    there: Lane,
    back: Lane,
}

impl Connection {
    fn lane(&mut self, way: Way) -> &mut Lane {
        match way {
            Way::There => &mut self.there,
            Way::Back => &mut self.back,
        }
    }

    /// Who sends and who receives on this way.
    fn ends(&self, way: Way) -> (Node, Node) {
        match way {
            Way::There => (self.from, Node::Server(self.to)),
            Way::Back => (Node::Server(self.to), self.from),
        }
    }
}

/// All connections and cut paths.
#[derive(Debug, Default)]
pub(crate) struct Network {
    connections: BTreeMap<u64, Connection>,
    next: u64,
    cut: BTreeSet<(Node, Node)>,
    /// The usual delay.
    pace: Duration,
    /// Extra delay of machines that are slow to answer.
    slow: BTreeMap<Node, Duration>,
    /// Connections out of a thousand packets that break instead of carrying one.
    breaks: usize,
}

impl Network {
    pub(crate) fn draw(rng: &mut Prng) -> Network {
        let breaks = if rng.chance(300) { rng.below(6) } else { 0 };
        Network { pace: rng.micros(30, 1500), breaks, ..Network::default() }
    }

    pub(crate) fn get(&self, connection: u64) -> Option<&Connection> {
        self.connections.get(&connection)
    }

    /// Whether packets get from one machine to another.
    pub(crate) fn is_open(&self, from: Node, to: Node) -> bool {
        !self.cut.contains(&(from, to))
    }

    /// Whether packets get both ways.
    pub(crate) fn reaches(&self, a: Node, b: Node) -> bool {
        self.is_open(a, b) && self.is_open(b, a)
    }

    pub(crate) fn delay(&self, rng: &mut Prng, a: Node, b: Node) -> Duration {
        let mut delay = rng.between(self.pace / 4, self.pace * 2);
        if rng.chance(8) {
            delay += rng.millis(1, 120);
        }
        let extra = |n| self.slow.get(&n).copied().unwrap_or_default();
        delay + extra(a) + extra(b)
    }

    pub(crate) fn set_slow(&mut self, node: Node, extra: Duration) {
        self.slow.insert(node, extra);
    }

    /// Bytes on their way to the side that was connected to.
    pub(crate) fn queued(&self, connection: u64) -> usize {
        self.connections.get(&connection).map_or(0, |c| c.there.bytes)
    }

    /// From now on the storm is over: nothing breaks of itself.
    pub(crate) fn calm(&mut self) {
        self.breaks = 0;
    }
}

impl World {
    /// Makes a connection between two processes that live.
    pub(crate) fn connect(&mut self, from: (Node, u32), to: (usize, u32)) -> u64 {
        self.network.next += 1;
        let (there, back) = (Lane::default(), Lane::default());
        let made = Connection { from: from.0, to: to.0, from_life: from.1, to_life: to.1, there, back };
        self.network.connections.insert(self.network.next, made);
        self.network.next
    }

    /// Sends on a connection, at a time that may be a little later than now.
    pub(crate) fn send(&mut self, at: Duration, connection: u64, way: Way, packet: Packet) {
        let breaks = self.network.breaks;
        if breaks > 0 && matches!(packet, Packet::Frame { .. }) && self.rng.below(10_000) < breaks {
            return self.break_connection(connection);
        }
        let Some(c) = self.network.connections.get(&connection) else { return };
        let (from, to) = c.ends(way);
        let delay = self.network.delay(&mut self.rng, from, to);
        let Some(c) = self.network.connections.get_mut(&connection) else { return };
        let lane = c.lane(way);
        if let Packet::Frame { body, payload, .. } = &packet {
            lane.bytes += body.len() + payload.len();
        }
        lane.last = (lane.last + Duration::from_nanos(1)).max(at + delay);
        let when = lane.last;
        self.at(when, Event::Packet { connection, way, packet });
    }

    /// A packet arrives: it is the receiver's if the path is open.
    pub(crate) fn arrive(&mut self, connection: u64, way: Way, packet: Packet) {
        let Some(c) = self.network.connections.get_mut(&connection) else { return };
        let (from, to) = c.ends(way);
        let cut = self.network.cut.contains(&(from, to));
        let lane = c.lane(way);
        if cut || !lane.held.is_empty() {
            lane.held.push_back(packet);
            return;
        }
        if let Packet::Frame { body, payload, .. } = &packet {
            lane.bytes -= body.len() + payload.len();
        }
        if lane.deaf {
            return;
        }
        if matches!(packet, Packet::End) {
            lane.deaf = true;
        }
        self.receive(connection, way, packet);
        let over = |c: &Connection| c.there.deaf && c.back.deaf;
        if self.network.connections.get(&connection).is_some_and(over) {
            self.network.connections.remove(&connection);
        }
    }

    /// One side closes: it hears no more, and what it has sent still arrives, with the end after it.
    pub(crate) fn close(&mut self, at: Duration, connection: u64, hears: Way) {
        let Some(c) = self.network.connections.get_mut(&connection) else { return };
        c.lane(hears).deaf = true;
        let other = if hears == Way::There { Way::Back } else { Way::There };
        self.send_end(at, connection, other);
    }

    fn send_end(&mut self, at: Duration, connection: u64, way: Way) {
        let Some(c) = self.network.connections.get_mut(&connection) else { return };
        let lane = c.lane(way);
        lane.last = (lane.last + Duration::from_nanos(1)).max(at + self.network.pace);
        let when = lane.last;
        self.at(when, Event::Packet { connection, way, packet: Packet::End });
    }

    /// The connection breaks: of what is on its way a part is lost, and both sides learn of the end.
    pub(crate) fn break_connection(&mut self, connection: u64) {
        let Some(c) = self.network.connections.get_mut(&connection) else { return };
        for way in [Way::There, Way::Back] {
            c.lane(way).held.clear();
        }
        self.count("broken connection");
        self.send_end(self.now, connection, Way::There);
        self.send_end(self.now, connection, Way::Back);
    }

    /// A process ended: its kernel closes its connections, or is gone itself.
    pub(crate) fn close_all(&mut self, node: Node, life: u32, power: bool) {
        let mut ends = Vec::new();
        for (id, c) in &self.network.connections {
            if c.from == node && c.from_life == life {
                ends.push((*id, Way::Back));
            }
            if Node::Server(c.to) == node && c.to_life == life {
                ends.push((*id, Way::There));
            }
        }
        let when = if power { self.now + KEEPALIVE } else { self.now };
        for (id, hears) in ends {
            self.close(when, id, hears);
        }
    }

    /// Nothing gets from one machine to the other.
    pub(crate) fn cut_path(&mut self, from: Node, to: Node) {
        self.network.cut.insert((from, to));
    }

    /// The path is open again: what lies in buffers comes now, or the connection has given up.
    pub(crate) fn repair_path(&mut self, from: Node, to: Node) {
        if !self.network.cut.remove(&(from, to)) {
            return;
        }
        let mut waiting = Vec::new();
        for (id, c) in &mut self.network.connections {
            for way in [Way::There, Way::Back] {
                if c.ends(way) == (from, to) && !c.lane(way).held.is_empty() {
                    waiting.push((*id, way, core::mem::take(&mut c.lane(way).held)));
                }
            }
        }
        for (id, way, held) in waiting {
            if self.rng.chance(300) {
                self.break_connection(id);
                continue;
            }
            let mut when = self.now + self.rng.millis(0, 400);
            for packet in held {
                when += Duration::from_nanos(1);
                self.at(when, Event::Packet { connection: id, way, packet });
            }
            if let Some(c) = self.network.connections.get_mut(&id) {
                let lane = c.lane(way);
                lane.last = lane.last.max(when);
            }
        }
    }

    /// All paths are open again.
    pub(crate) fn repair_paths(&mut self) {
        for (from, to) in self.network.cut.clone() {
            self.repair_path(from, to);
        }
    }

    /// A connection drawn at random breaks.
    pub(crate) fn break_one(&mut self) {
        let all: Vec<u64> = self.network.connections.keys().copied().collect();
        if let Some(connection) = self.rng.pick(&all).copied() {
            self.break_connection(connection);
        }
    }
}

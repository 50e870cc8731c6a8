//! Connections between servers: replication goes out on them. Made when first needed, and made again when they break.

use crate::machine::ToProcess;
use crate::network::{Node, Packet, Way};
use crate::process::Link;
use crate::store::{Ask, machine_of, server_id};
use crate::world::World;
use bytes::Bytes;
use core::time::Duration;
use ids::{ServerId, SessionId};
use set_core::Input;
use wire::codec::Blob;
use wire::frame::VERSIONS;
use wire::hello::{Hello, Purpose};
use wire::peer::PeerMessage;
use wire::{Frame, Kind, Wire};

const RETRY: Duration = Duration::from_millis(100);
/// Without an answer for so long a server counts as out of reach.
const SILENT_FOR: Duration = Duration::from_secs(2);

impl World {
    pub(crate) fn send_peer(
        &mut self,
        at: Duration,
        m: usize,
        server: ServerId,
        message: &PeerMessage,
        payload: Bytes,
    ) {
        let Some(process) = self.process(m) else { return };
        match process.links.get(&server) {
            Some(Link::Up(connection)) => {
                let connection = *connection;
                let frame = Frame::with_payload(Kind::Peer, 0, message.to_bytes(), payload);
                self.send(at, connection, Way::There, Packet::of(frame));
            }
            Some(Link::Dialing) => {}
            None => {
                process.links.insert(server, Link::Dialing);
                self.later(at, m, ToProcess::Dial(server));
            }
        }
    }

    /// Tries to connect to another server.
    pub(crate) fn dial(&mut self, m: usize, server: ServerId) {
        let to = machine_of(server);
        let Some(process) = self.process(m) else { return };
        if process.links.get(&server) != Some(&Link::Dialing) {
            return;
        }
        if !self.network.reaches(Node::Server(m), Node::Server(to)) || !self.machines[to].powered {
            return self.timer(m, SILENT_FOR, ToProcess::Dial(server));
        }
        if !self.machines[to].lives() {
            self.link_changed(m, server, false);
            return self.timer(m, RETRY, ToProcess::Dial(server));
        }
        if self.machines[to].is_frozen() {
            // Its kernel takes the connection, and nobody answers the handshake.
            return self.timer(m, SILENT_FOR, ToProcess::Dial(server));
        }
        let lives = (self.machines[m].life, self.machines[to].life);
        let connection = self.connect((Node::Server(m), lives.0), (to, lives.1));
        let hello = Hello {
            versions: Blob(VERSIONS.to_vec()),
            purpose: Purpose::Peer { shard: 0 },
            pool: [0; 16],
            from: server_id(m),
            session: SessionId(0),
        };
        let frame = Frame::new(Kind::Hello, 1, hello.to_bytes());
        self.send(self.now, connection, Way::There, Packet::of(frame));
        if let Some(process) = self.process(m) {
            process.links.insert(server, Link::Up(connection));
        }
        self.link_changed(m, server, true);
    }

    /// A link came up, or the other server's port refuses connections: the sets that have a brick there are told.
    fn link_changed(&mut self, m: usize, server: ServerId, up: bool) {
        for set in self.process_sets(m) {
            self.step(m, set, Input::Link(server, up));
        }
        let shown = self.shown(m);
        if !up && self.process(m).is_some_and(|p| p.control.suspicions.note(shown, server)) {
            self.ask_store(self.now, m, Ask::Suspect(machine_of(server)));
        }
    }
}

//! A client that speaks in single frames, so that a test decides which copy of a request arrives when.

use super::harness::{Pool, Server, eventually};
use super::raw::{Raw, channel_of};
use ids::{Fid, OpId, ServerId, SessionId, SetId};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use wire::codec::Blob;
use wire::frame::{FrameHead, HEAD, VERSIONS, encode_head};
use wire::hello::{Hello, HelloReply, Purpose};
use wire::map::{SetView, VolumeMap, Watch, WatchEvent};
use wire::op::Node;
use wire::{Body, Call, Errno, Fail, Kind, Name, Op, Reply, Wire};

/// Nothing a test asks for takes longer.
const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// One connection.
pub(crate) struct Connection {
    stream: Raw,
    next: u64,
}

impl Connection {
    fn open(
        (address, key): (&str, &Path),
        purpose: Purpose,
        pool: [u8; 16],
        session: u64,
    ) -> (Connection, HelloReply) {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        let stream = Raw::begin(stream, Some(channel_of(key))).expect("the key is taken");
        let mut connection = Connection { stream, next: 1 };
        let versions = Blob(VERSIONS.to_vec());
        let session = SessionId(session);
        let hello = Hello { versions, purpose, pool, from: ServerId(0), session };
        connection.send(Kind::Hello, &hello, &[]).unwrap();
        let reply = connection.receive(Kind::HelloReply).unwrap();
        (connection, HelloReply::from_bytes(&reply).unwrap())
    }

    fn send(&mut self, kind: Kind, message: &impl Wire, payload: &[u8]) -> std::io::Result<()> {
        let body = message.to_bytes();
        let mut all = encode_head(kind, self.next, &body, payload).to_vec();
        self.next += 1;
        all.extend(body);
        all.extend(payload);
        self.stream.write_all(&all)
    }

    fn receive(&mut self, kind: Kind) -> std::io::Result<Vec<u8>> {
        let mut head = [0; HEAD];
        self.stream.read_exact(&mut head)?;
        let head = FrameHead::decode(&head).unwrap();
        let mut rest = vec![0; head.body_len + head.payload_len];
        self.stream.read_exact(&mut rest)?;
        assert_eq!(head.kind, kind);
        rest.truncate(head.body_len);
        Ok(rest)
    }

    /// Sends a request; whether the connection still takes it.
    pub(crate) fn request(&mut self, call: &Call, payload: &[u8]) -> bool {
        self.send(Kind::Call, call, payload).is_ok()
    }

    /// The answer to the oldest request; `None` if the server ended the connection.
    pub(crate) fn answer(&mut self) -> Option<Result<Body, Fail>> {
        let body = self.receive(Kind::Reply).ok()?;
        Some(Reply::from_bytes(&body).unwrap().0)
    }

    /// Closes this side, and waits until the server has seen that and closed its own: it owes no answer any more.
    pub(crate) fn end(self) {
        assert_eq!(self.stream.end().unwrap(), 0, "an answer came");
    }
}

/// What the frames are made of.
pub(crate) struct Frames {
    map: VolumeMap,
    session: u64,
    connections: u64,
    /// The key that it shows.
    key: PathBuf,
}

impl Frames {
    /// Learns the volume's map, as one who has that client's key.
    pub(crate) fn with_key(pool: &Pool, volume: &str, session: u64, key: &Path) -> Frames {
        let runs = |s: &&Server| TcpStream::connect(&s.address).is_ok();
        let server = pool.servers.iter().find(runs).expect("a server runs");
        let (mut watch, _) = Connection::open((&server.address, key), Purpose::Control, [0; 16], session);
        watch.send(Kind::Watch, &Watch { volume: Blob(volume.as_bytes().to_vec()) }, &[]).unwrap();
        let event = watch.receive(Kind::Event).unwrap();
        match WatchEvent::from_bytes(&event).unwrap() {
            WatchEvent::Map { map } => Frames { map, session, connections: 0, key: key.to_path_buf() },
            WatchEvent::NoVolume => panic!("no volume"),
            WatchEvent::End { reason } => panic!("{}", String::from_utf8_lossy(&reason.0)),
        }
    }

    /// The pool's server that has the primary of the root's set.
    pub(crate) fn primary(&self, pool: &Pool) -> usize {
        let address = self.primary_address().expect("the set is led");
        pool.servers.iter().position(|s| s.address == address).unwrap()
    }

    fn view(&self) -> &SetView {
        self.map.sets.iter().find(|s| s.set == self.set()).unwrap()
    }

    fn primary_address(&self) -> Option<String> {
        let server = self.map.servers.iter().find(|s| Some(s.server) == self.view().primary)?;
        Some(String::from_utf8(server.address.0.clone()).unwrap())
    }

    /// Learns the map again, until another brick leads.
    pub(crate) fn await_another_primary(&mut self, pool: &Pool, volume: &str) {
        let before = self.primary_address();
        eventually("another brick leads", || {
            self.map = Frames::with_key(pool, volume, self.session, &self.key).map;
            self.primary_address().filter(|now| Some(now) != before.as_ref())
        });
    }

    pub(crate) fn root(&self) -> Fid {
        self.map.root
    }

    fn set(&self) -> SetId {
        self.map.root.set
    }

    /// Another connection to the primary of the root's set.
    pub(crate) fn connect(&mut self) -> Connection {
        self.open(0)
    }

    /// A connection that gives up all before it.
    pub(crate) fn connect_anew(&mut self) -> Connection {
        self.open(self.connections + 1)
    }

    fn open(&mut self, oldest: u64) -> Connection {
        let address = self.primary_address().expect("the set is led");
        let mut shard = 0;
        loop {
            self.connections += 1;
            let purpose = Purpose::Session { shard, connection: self.connections, oldest };
            let at: (&str, &Path) = (&address, &self.key);
            let (connection, told) = Connection::open(at, purpose, self.map.pool, self.session);
            let right = u16::try_from(self.set().0 % u32::from(told.shards)).unwrap();
            if right == shard {
                return connection;
            }
            shard = right;
        }
    }

    /// A request under this number.
    pub(crate) fn call(&self, seq: u64, op: Op) -> Call {
        let id = OpId { session: SessionId(self.session), seq };
        Call { set: self.set(), epoch: self.view().epoch, id, finished: 0, op }
    }

    /// Asks until the set is not busy.
    pub(crate) fn ask(&self, on: &mut Connection, call: &Call, payload: &[u8]) -> Result<Body, Errno> {
        loop {
            assert!(on.request(call, payload));
            match on.answer().unwrap() {
                Ok(body) => return Ok(body),
                Err(Fail::Errno { errno }) => return Err(Errno(errno)),
                Err(Fail::Busy) => std::thread::sleep(Duration::from_millis(20)),
                Err(other) => panic!("{other:?}"),
            }
        }
    }

    pub(crate) fn create(&self, name: &str) -> Op {
        let (parent, name, node) = (self.root(), Name::new(name.as_bytes()).unwrap(), Node::File);
        Op::Create { parent, name, node, mode: 0o644, umask: 0o22, uid: 0, gid: 0, open: false }
    }

    pub(crate) fn unlink(&self, name: &str) -> Op {
        Op::Unlink { parent: self.root(), name: Name::new(name.as_bytes()).unwrap() }
    }

    pub(crate) fn lookup(&self, name: &str) -> Op {
        Op::Lookup { parent: self.root(), name: Name::new(name.as_bytes()).unwrap() }
    }
}

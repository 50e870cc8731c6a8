//! A server in the test's own process: real sockets and frames, answers by script.
#![allow(clippy::unwrap_used, reason = "test code")]
#![allow(unreachable_pub, missing_docs, reason = "shared by several tests, each of which uses a part")]

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use ids::{Epoch, Fid, ServerId, SetId, VolumeId};
use wire::codec::Blob;
use wire::frame::{FrameHead, HEAD, encode_head};
use wire::hello::{Hello, HelloReply, Purpose};
use wire::map::{ServerAddress, SetView, VolumeMap, Watch, WatchEvent};
use wire::{Call, Frame, Kind, Reply, Wire};

pub const POOL: [u8; 16] = [7; 16];

/// What the server does with a call.
pub enum Act {
    Answer(Reply),
    /// Answers, and grants that for so many milliseconds nobody else changes anything.
    Grant(Reply, u16),
    Data(Reply, Vec<u8>),
    /// Closes the connection without an answer.
    Break,
    /// Never answers.
    Freeze,
}

pub type Script = dyn Fn(&Call, &[u8]) -> Act + Send + Sync;

pub struct Fake {
    pub id: ServerId,
    pub address: String,
    shared: Arc<Shared>,
}

struct Shared {
    id: ServerId,
    shards: u16,
    script: Box<Script>,
    calls: Mutex<Vec<(Call, Vec<u8>)>>,
    connections: AtomicUsize,
    hellos: Mutex<Vec<(u64, u64)>>,
    map: Mutex<Option<VolumeMap>>,
    watchers: Mutex<Vec<(u64, TcpStream)>>,
    open: Mutex<Vec<TcpStream>>,
    frozen: AtomicBool,
}

impl Fake {
    pub fn start(id: u64, script: impl Fn(&Call, &[u8]) -> Act + Send + Sync + 'static) -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let shared = Arc::new(Shared {
            id: ServerId(id),
            shards: 2,
            script: Box::new(script),
            calls: Mutex::default(),
            connections: AtomicUsize::new(0),
            hellos: Mutex::default(),
            map: Mutex::default(),
            watchers: Mutex::default(),
            open: Mutex::default(),
            frozen: AtomicBool::new(false),
        });
        let for_thread = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&for_thread);
                shared.open.lock().unwrap().push(stream.try_clone().unwrap());
                std::thread::spawn(move || shared.serve(stream));
            }
        });
        Fake { id: ServerId(id), address, shared }
    }

    /// Gives watchers this map, now and from now on.
    pub fn push(&self, map: &VolumeMap) {
        *self.shared.map.lock().unwrap() = Some(map.clone());
        let event = WatchEvent::Map { map: map.clone() };
        let mut watchers = self.shared.watchers.lock().unwrap();
        watchers.retain_mut(|(id, stream)| send(stream, Kind::Event, *id, &event, &[]).is_some());
    }

    /// From now on nothing is answered, not even a hello.
    pub fn freeze(&self) {
        self.shared.frozen.store(true, Ordering::SeqCst);
    }

    pub fn break_all(&self) {
        for stream in self.shared.open.lock().unwrap().drain(..) {
            stream.shutdown(Shutdown::Both).ok();
        }
    }

    pub fn calls(&self) -> Vec<Call> {
        self.shared.calls.lock().unwrap().iter().map(|(c, _)| c.clone()).collect()
    }

    pub fn payloads(&self) -> Vec<Vec<u8>> {
        self.shared.calls.lock().unwrap().iter().map(|(_, p)| p.clone()).collect()
    }

    /// The number of each connection, and which one it called the oldest.
    pub fn hellos(&self) -> Vec<(u64, u64)> {
        self.shared.hellos.lock().unwrap().clone()
    }

    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }
}

impl Shared {
    fn park(&self) {
        loop {
            std::thread::park();
        }
    }

    fn serve(&self, mut stream: TcpStream) -> Option<()> {
        stream.set_nodelay(true).unwrap();
        let (kind, id, body, _) = receive(&mut stream)?;
        assert_eq!(kind, Kind::Hello);
        if self.frozen.load(Ordering::SeqCst) {
            self.park();
        }
        let hello = Hello::from_bytes(&body).unwrap();
        let reply = HelloReply {
            refused: Blob::default(),
            version: 1,
            pool: POOL,
            server: self.id,
            shards: self.shards,
        };
        send(&mut stream, Kind::HelloReply, id, &reply, &[])?;
        match hello.purpose {
            Purpose::Control => self.control(stream),
            Purpose::Session { shard, connection, oldest } => {
                self.hellos.lock().unwrap().push((connection, oldest));
                self.connections.fetch_add(1, Ordering::SeqCst);
                self.data(stream, shard)
            }
            Purpose::Peer { .. } => None,
        }
    }

    fn control(&self, mut stream: TcpStream) -> Option<()> {
        let (kind, id, body, _) = receive(&mut stream)?;
        assert_eq!(kind, Kind::Watch);
        let watch = Watch::from_bytes(&body).unwrap();
        if watch.volume.0 != b"vol" {
            // What a refusal says decides nothing.
            let refused = WatchEvent::End { reason: Blob(b"here are no volumes for you".to_vec()) };
            let end = if watch.volume.0 == b"secret" { refused } else { WatchEvent::NoVolume };
            return send(&mut stream, Kind::Event, id, &end, &[]);
        }
        let map = self.map.lock().unwrap();
        send(&mut stream, Kind::Event, id, &WatchEvent::Map { map: map.clone().unwrap() }, &[])?;
        self.watchers.lock().unwrap().push((id, stream.try_clone().unwrap()));
        drop(map);
        receive(&mut stream).map(drop)
    }

    fn data(&self, mut stream: TcpStream, shard: u16) -> Option<()> {
        loop {
            let (kind, id, body, payload) = receive(&mut stream)?;
            assert_eq!(kind, Kind::Call);
            let call = Call::from_bytes(&body).unwrap();
            assert_eq!(call.set.0 % u32::from(self.shards), u32::from(shard), "calls go to their shard");
            if self.frozen.load(Ordering::SeqCst) {
                self.park();
            }
            let act = (self.script)(&call, &payload);
            self.calls.lock().unwrap().push((call, payload));
            match act {
                Act::Answer(reply) => send(&mut stream, Kind::Reply, id, &reply, &[])?,
                Act::Grant(reply, grant) => {
                    let frame = Frame { grant, ..Frame::new(Kind::Reply, id, reply.to_bytes()) };
                    stream.write_all(&frame.head_and_body()).ok()?;
                }
                Act::Data(reply, data) => send(&mut stream, Kind::Reply, id, &reply, &data)?,
                Act::Break => {
                    stream.shutdown(Shutdown::Both).ok();
                    return None;
                }
                Act::Freeze => self.park(),
            }
        }
    }
}

fn send(stream: &mut TcpStream, kind: Kind, id: u64, message: &impl Wire, payload: &[u8]) -> Option<()> {
    let body = message.to_bytes();
    let mut all = encode_head(kind, id, &body, payload).to_vec();
    all.extend(body);
    all.extend(payload);
    stream.write_all(&all).ok()
}

fn receive(stream: &mut TcpStream) -> Option<(Kind, u64, Vec<u8>, Vec<u8>)> {
    let mut head = [0; HEAD];
    stream.read_exact(&mut head).ok()?;
    let head = FrameHead::decode(&head).unwrap();
    let mut body = vec![0; head.body_len];
    stream.read_exact(&mut body).ok()?;
    let mut payload = vec![0; head.payload_len];
    stream.read_exact(&mut payload).ok()?;
    head.verify(&body, &payload).unwrap();
    Some((head.kind, head.id, body, payload))
}

/// A map of these sets: number, epoch, primary.
pub fn map(version: u64, sets: &[(u32, u32, Option<u64>)], servers: &[&Fake]) -> VolumeMap {
    VolumeMap {
        version,
        pool: POOL,
        volume: VolumeId(1),
        root: Fid::root(SetId(1)),
        started: true,
        sets: sets
            .iter()
            .map(|(set, epoch, primary)| SetView {
                set: SetId(*set),
                epoch: Epoch(*epoch),
                lost_before: Epoch(0),
                primary: primary.map(ServerId),
            })
            .collect(),
        servers: servers
            .iter()
            .map(|s| ServerAddress { server: s.id, address: Blob(s.address.clone().into_bytes()) })
            .collect(),
        options: Vec::new(),
    }
}

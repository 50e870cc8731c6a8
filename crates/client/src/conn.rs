//! One connection: frames out and in, never blocking but in [`crate::wait`].

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

use ids::{ServerId, SessionId};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, RecvFlags, SocketFlags, SocketType, sockopt};
use wire::codec::Blob;
use wire::frame::{self, FrameHead, HEAD, VERSIONS};
use wire::hello::{Hello, HelloReply, Purpose};
use wire::{DecodeError, Kind, Wire};

use crate::key::KeyReader;
use crate::payload::Payload;
use crate::socket::Socket;
use crate::wait::Waiting;

/// Why a step on a connection failed. The connection is of no more use.
#[derive(Debug)]
pub(crate) enum Broken {
    Io(io::Error),
    Protocol(DecodeError),
    Refused(String),
    TimedOut,
    /// The set is served by another server now.
    Moved,
    Interrupted,
    /// The client ends.
    Stopped,
}

impl From<io::Error> for Broken {
    fn from(e: io::Error) -> Broken {
        Broken::Io(e)
    }
}

impl From<Errno> for Broken {
    fn from(e: Errno) -> Broken {
        Broken::Io(e.into())
    }
}

impl From<DecodeError> for Broken {
    fn from(e: DecodeError) -> Broken {
        Broken::Protocol(e)
    }
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Broken::Io(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                write!(f, "it closed the connection")
            }
            Broken::Io(e) => write!(f, "{e}"),
            Broken::Protocol(e) => write!(f, "it does not speak Mortar's protocol ({e})"),
            Broken::Refused(why) => write!(f, "{why}"),
            Broken::TimedOut => write!(f, "no answer"),
            Broken::Moved => write!(f, "another server took over"),
            Broken::Interrupted => write!(f, "interrupted"),
            Broken::Stopped => write!(f, "the client ends"),
        }
    }
}

/// Who we are and what a new connection is for.
#[derive(Clone)]
pub(crate) struct Intent {
    pub session: SessionId,
    pub pool: [u8; 16],
    /// The key to show, if the pool has keys.
    pub key: Option<Arc<KeyReader>>,
}

impl Intent {
    fn hello(&self, purpose: Purpose) -> Hello {
        Hello {
            versions: Blob(VERSIONS.to_vec()),
            purpose,
            pool: self.pool,
            from: ServerId(0),
            session: self.session,
        }
    }
}

/// What is likely to come, so that one system call takes it all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Expect {
    /// One answer and nothing after it.
    Message,
    /// One answer [`wire::Body::Data`] and nothing after it: its data goes into place at once.
    Data,
    /// Further frames may follow at once: what came of them is kept for the next [`Conn::receive`].
    Stream,
}

/// Bytes of an encoded answer whose body is [`wire::Body::Data`]: "fine" and a tag.
const DATA_BODY: usize = 2;
/// What the buffer is cut down to after a large message.
const BUFFER: usize = 16 << 10;

/// A connection after its hello.
pub(crate) struct Conn {
    /// Its number among those of the session (see [`crate::server_link::ServerLink::give_up`]); 0 if it carries no calls.
    pub number: u64,
    socket: Socket,
    /// Frames being sent, without payload.
    out: Vec<u8>,
    /// The head and body received last. Its length is its room.
    buf: Vec<u8>,
    body_len: usize,
    /// What came after the frame received last: at most [`BUFFER`] bytes.
    ahead: Vec<u8>,
    next_id: u64,
    /// When it was last put back into its pool.
    pub used: Instant,
}

impl Conn {
    /// Connects to the first of `addresses` that answers, and says hello.
    pub(crate) fn open(
        addresses: &[SocketAddr],
        intent: &Intent,
        purpose: Purpose,
        waiting: &Waiting<'_>,
    ) -> Result<(Conn, HelloReply), Broken> {
        let mut last = Broken::Io(io::ErrorKind::AddrNotAvailable.into());
        for address in addresses {
            match Conn::open_one(address, intent, purpose.clone(), waiting) {
                Err(e @ (Broken::Io(_) | Broken::TimedOut)) => last = e,
                other => return other,
            }
        }
        Err(last)
    }

    fn open_one(
        address: &SocketAddr,
        intent: &Intent,
        purpose: Purpose,
        waiting: &Waiting<'_>,
    ) -> Result<(Conn, HelloReply), Broken> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let fd = net::socket_with(family, SocketType::STREAM, flags, None)?;
        match net::connect(&fd, address) {
            Ok(()) => {}
            Err(Errno::INPROGRESS | Errno::INTR) => {
                waiting.writable(fd.as_fd())?;
                sockopt::socket_error(&fd)??;
            }
            Err(e) => return Err(e.into()),
        }
        sockopt::set_tcp_nodelay(&fd, true)?;
        let socket = Socket::new(fd, intent.key.as_deref(), waiting)?;
        let shown = socket.server()?;
        let number = if let Purpose::Session { connection, .. } = purpose { connection } else { 0 };
        let mut conn = Conn {
            number,
            socket,
            out: Vec::with_capacity(1024),
            buf: vec![0; BUFFER],
            body_len: 0,
            ahead: Vec::new(),
            next_id: 1,
            used: Instant::now(),
        };
        let id = conn.send((Kind::Hello, 0), &intent.hello(purpose), &[], waiting)?;
        let head = conn.receive(Expect::Stream, &mut Payload::new(), waiting)?;
        if head.kind != Kind::HelloReply || head.id != id {
            return Err(DecodeError::Bounds("answer to the hello").into());
        }
        let reply = HelloReply::from_bytes(conn.body())?;
        if !reply.refused.0.is_empty() {
            return Err(Broken::Refused(String::from_utf8_lossy(&reply.refused.0).into_owned()));
        }
        if shown.is_some_and(|shown| shown != reply.server) {
            return Err(Broken::Refused("it says to be another server than its key does".to_owned()));
        }
        if intent.pool != [0; 16] && reply.pool != intent.pool {
            return Err(Broken::Refused("it belongs to another pool".to_owned()));
        }
        Ok((conn, reply))
    }

    /// The socket.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.fd()
    }

    /// Until there is something to receive.
    pub(crate) fn readable(&mut self, waiting: &Waiting<'_>) -> Result<(), Broken> {
        if self.has_received() { Ok(()) } else { waiting.readable(self.socket.fd()) }
    }

    /// Whether something came that does not wait on the socket any more.
    pub(crate) fn has_received(&mut self) -> bool {
        !self.ahead.is_empty() || self.socket.has_received()
    }

    /// Lets the kernel find out about a peer that vanished while nothing is sent.
    pub(crate) fn keep_alive(&self) -> Result<(), Broken> {
        let fd = self.socket.fd();
        sockopt::set_socket_keepalive(fd, true)?;
        sockopt::set_tcp_keepidle(fd, std::time::Duration::from_secs(2))?;
        sockopt::set_tcp_keepintvl(fd, std::time::Duration::from_secs(1))?;
        sockopt::set_tcp_keepcnt(fd, 3)?;
        Ok(())
    }

    /// Whether an unused connection still stands: neither closed nor with bytes nobody asked for.
    pub(crate) fn is_fresh(&self) -> bool {
        let got = net::recv(self.socket.fd(), &mut [0; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT);
        self.ahead.is_empty() && matches!(got, Err(Errno::AGAIN))
    }

    /// Sends one message; returns its id.
    pub(crate) fn send(
        &mut self,
        (kind, user): (Kind, u32),
        message: &impl Wire,
        payload: &[u8],
        waiting: &Waiting<'_>,
    ) -> Result<u64, Broken> {
        self.out.clear();
        let id = self.queue((kind, user), message, payload);
        self.flush(payload, waiting)?;
        Ok(id)
    }

    /// Appends a message to what [`Conn::flush`] sends; returns its id. Only the last one may have a payload.
    pub(crate) fn queue(&mut self, (kind, user): (Kind, u32), message: &impl Wire, payload: &[u8]) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        let start = self.out.len();
        self.out.extend_from_slice(&[0; HEAD]);
        message.put(&mut self.out);
        let (room, body) = self.out[start..].split_at_mut(HEAD);
        room.copy_from_slice(&frame::encode_head_of_user(kind, id, user, body, payload));
        id
    }

    /// Sends what was queued, and the payload after it.
    pub(crate) fn flush(&mut self, payload: &[u8], waiting: &Waiting<'_>) -> Result<(), Broken> {
        self.socket.send(&self.out, payload, waiting)?;
        self.out.clear();
        self.out.shrink_to(BUFFER);
        Ok(())
    }

    /// Receives one frame: its body stays here (see [`Conn::body`]), its payload goes to `into`.
    pub(crate) fn receive(
        &mut self,
        expect: Expect,
        into: &mut Payload<'_>,
        waiting: &Waiting<'_>,
    ) -> Result<FrameHead, Broken> {
        into.set_len(0);
        if self.buf.len() > BUFFER {
            self.buf.truncate(BUFFER);
            self.buf.shrink_to_fit();
        }
        let front = match expect {
            Expect::Message | Expect::Stream => BUFFER,
            Expect::Data => HEAD + DATA_BODY,
        };
        // Bytes in `buf`, and bytes that went beyond its front into `into`.
        let (mut have, mut beyond) = (self.ahead.len(), 0);
        self.buf[..have].copy_from_slice(&self.ahead);
        self.ahead.clear();
        while have < HEAD {
            let room: &mut [u8] = if expect == Expect::Data { into.room() } else { &mut [] };
            let n = self.socket.read(&mut self.buf[have..front], room, waiting)?;
            beyond = (have + n).saturating_sub(front);
            have = (have + n).min(front);
        }
        let head = self.buf.first_chunk().ok_or(DecodeError::Short)?;
        let head = FrameHead::decode(head)?;
        let body_end = HEAD + head.body_len;
        if self.buf.len() < body_end {
            self.buf.resize(body_end, 0);
        }
        into.reserve(head.payload_len)?;
        if have > body_end {
            // The payload began in `buf`; `into` holds nothing yet unless the body is shorter than any answer.
            let (payload, next) = self.buf[body_end..have].split_at(head.payload_len.min(have - body_end));
            if beyond > 0 || (expect != Expect::Stream && !next.is_empty()) {
                return Err(DecodeError::Trailing(have - body_end).into());
            }
            into.room()[..payload.len()].copy_from_slice(payload);
            self.ahead.extend_from_slice(next);
            (have, beyond) = (body_end, payload.len());
        } else if beyond > 0 {
            // A body longer than foreseen went on in `into`.
            let rest = beyond.min(body_end - have);
            self.buf[have..have + rest].copy_from_slice(&into.room()[..rest]);
            into.room().copy_within(rest..beyond, 0);
            (have, beyond) = (have + rest, beyond - rest);
        }
        if beyond > head.payload_len {
            return Err(DecodeError::Trailing(beyond - head.payload_len).into());
        }
        while have < body_end || beyond < head.payload_len {
            let body = &mut self.buf[have..body_end];
            let (lacking, room) = (body.len(), &mut into.room()[beyond..head.payload_len]);
            let n = self.socket.read(body, room, waiting)?;
            have += n.min(lacking);
            beyond += n.saturating_sub(lacking);
        }
        into.set_len(head.payload_len);
        self.body_len = head.body_len;
        if !self.socket.is_encrypted() {
            head.verify(self.body(), into)?;
        }
        Ok(head)
    }

    /// The body of the frame received last.
    pub(crate) fn body(&self) -> &[u8] {
        &self.buf[HEAD..HEAD + self.body_len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    fn frame(id: u64, body: &[u8], payload: &[u8]) -> Vec<u8> {
        [&frame::encode_head(Kind::Reply, id, body, payload)[..], body, payload].concat()
    }

    fn pair() -> (Conn, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let still = || Ok(());
        let waiting = Waiting { until: Instant::now() + Duration::from_secs(5), still: &still };
        let socket = Socket::new(OwnedFd::from(ours), None, &waiting).unwrap();
        let buf = vec![0; BUFFER];
        let (number, out, body_len, ahead, next_id) = (0, vec![], 0, vec![], 1);
        (Conn { number, socket, out, buf, body_len, ahead, next_id, used: Instant::now() }, theirs)
    }

    /// Frames of a stream come in pieces of any length, and are the same frames.
    #[test]
    fn frames_of_a_stream_come_as_they_were_sent_however_they_are_cut() {
        let sizes = [(2, 0), (0, 0), (40, 3), (2, 30_000), (20_000, 7), (2, 0)];
        let bytes = |n: usize, of: u8| vec![of; n];
        let all: Vec<u8> = sizes
            .iter()
            .enumerate()
            .flat_map(|(n, (body, payload))| frame(n as u64 + 1, &bytes(*body, 1), &bytes(*payload, 2)))
            .collect();
        for piece in [1, 31, 33, 1000, BUFFER, all.len()] {
            let (mut conn, mut theirs) = pair();
            let still = || Ok(());
            let waiting = Waiting { until: Instant::now() + Duration::from_secs(20), still: &still };
            std::thread::scope(|s| {
                s.spawn(|| all.chunks(piece).for_each(|part| theirs.write_all(part).unwrap()));
                for (n, (body, payload)) in sizes.into_iter().enumerate() {
                    let mut into = Payload::new();
                    conn.readable(&waiting).unwrap();
                    let head = conn.receive(Expect::Stream, &mut into, &waiting).unwrap();
                    assert_eq!((head.id, conn.body()), (n as u64 + 1, &bytes(body, 1)[..]), "{piece}");
                    assert_eq!(into[..], bytes(payload, 2)[..], "{piece}");
                }
            });
            assert!(!conn.has_received() && conn.is_fresh());
        }
    }

    /// All that came at once is received with one read; who expects a single answer takes what follows for an error.
    #[test]
    fn what_follows_is_kept_or_refused() {
        let still = || Ok(());
        let waiting = Waiting { until: Instant::now() + Duration::from_secs(5), still: &still };
        let two = [frame(1, b"ab", b""), frame(2, b"cd", b"")].concat();
        let (mut conn, mut theirs) = pair();
        theirs.write_all(&two).unwrap();
        conn.receive(Expect::Stream, &mut Payload::new(), &waiting).unwrap();
        assert!(conn.has_received() && !conn.is_fresh());
        drop(theirs);
        assert_eq!(conn.receive(Expect::Stream, &mut Payload::new(), &waiting).unwrap().id, 2);
        let (mut conn, mut theirs) = pair();
        theirs.write_all(&two).unwrap();
        let refused = conn.receive(Expect::Message, &mut Payload::new(), &waiting);
        assert!(matches!(refused, Err(Broken::Protocol(DecodeError::Trailing(34)))));
    }
}

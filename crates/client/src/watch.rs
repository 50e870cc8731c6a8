//! The watch: one connection to some server of the pool, over which newer maps come.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ids::SessionId;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use wire::codec::Blob;
use wire::hello::Purpose;
use wire::map::{VolumeMap, Watch, WatchEvent};
use wire::{DecodeError, Kind, Wire};

use crate::address;
use crate::call::Core;
use crate::conn::{Broken, Conn, Expect, Intent};
use crate::error::{Attempts, ConnectError, Tried};
use crate::key::KeyReader;
use crate::map::wake;
use crate::payload::Payload;
use crate::wait::Waiting;

/// The shortest and the longest pause between two tries to watch.
const PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));
/// A watch that is younger is not given up because calls have trouble.
const YOUNG: Duration = Duration::from_secs(1);
/// How long a server may take to answer a new watch. Calls may wait for what it says, and there are other servers.
const SOON: Duration = Duration::from_millis(500);
/// A server that did not answer is asked after the others for so long.
const AVOIDED: Duration = Duration::from_secs(10);

/// How calls reach the watching thread.
pub(crate) struct Watcher {
    wakeup: OwnedFd,
}

impl Watcher {
    pub(crate) fn new() -> std::io::Result<Watcher> {
        Ok(Watcher { wakeup: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)? })
    }

    /// Calls have trouble: perhaps the watched server does not know the newest map.
    pub(crate) fn wake(&self) {
        wake(self.wakeup.as_fd());
    }

    fn calm(&self) {
        // Empty is as good.
        rustix::io::read(&self.wakeup, &mut [0; 8]).ok();
    }
}

/// A watch that has begun.
pub(crate) struct Watched {
    conn: Conn,
    id: u64,
    /// `host:port` of the server.
    server: String,
}

enum Failed {
    Broken(Broken),
    /// The server gives no map to this client.
    Ended(String),
    /// The pool has no such volume.
    NoVolume,
}

impl Failed {
    fn ended(reason: &Blob) -> Failed {
        Failed::Ended(String::from_utf8_lossy(&reason.0).into_owned())
    }
}

impl From<Broken> for Failed {
    fn from(e: Broken) -> Failed {
        Failed::Broken(e)
    }
}

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failed::Broken(e) => write!(f, "{e}"),
            Failed::Ended(why) => write!(f, "{why}"),
            Failed::NoVolume => f.write_str("no such volume"),
        }
    }
}

/// The first map, from the first server that gives one; and the servers' addresses in full.
pub(crate) fn first(
    servers: &[String],
    volume: &str,
    (session, key): (SessionId, Option<&Arc<KeyReader>>),
    timeout: Duration,
) -> Result<(Watched, VolumeMap, Vec<String>), ConnectError> {
    let seeds = servers
        .iter()
        .map(|s| address::normal(s).ok_or_else(|| ConnectError::BadServer(s.clone())))
        .collect::<Result<Vec<_>, _>>()?;
    if seeds.is_empty() {
        return Err(ConnectError::NoServers);
    }
    let intent = Intent { session, pool: [0; 16], key: key.cloned() };
    let (mut tried, mut refused, mut unknown, mut denied) = (Vec::new(), None, None, None);
    for server in &seeds {
        let still = || Ok(());
        let waiting = Waiting { until: Instant::now() + timeout, still: &still };
        match begin(server, volume, &intent, &waiting) {
            Ok((watched, map)) if map.started => return Ok((watched, map, seeds)),
            Ok(_) => return Err(ConnectError::NotStarted { volume: volume.to_owned() }),
            Err(e) => {
                let one = Tried { server: server.clone(), why: e.to_string() };
                match e {
                    Failed::Broken(Broken::Refused(_) | Broken::Protocol(_)) => refused = Some(one.clone()),
                    // Of the key: TLS tells so after the handshake.
                    Failed::Broken(Broken::Io(e)) if e.kind() == ErrorKind::InvalidData => {
                        refused = Some(one.clone());
                    }
                    Failed::NoVolume => unknown = Some(server.clone()),
                    Failed::Ended(_) => denied = Some(one.clone()),
                    Failed::Broken(_) => {}
                }
                tried.push(one);
            }
        }
    }
    Err(match (unknown, denied, refused) {
        (Some(server), _, _) => ConnectError::NoSuchVolume { volume: volume.to_owned(), server },
        (None, Some(one), _) => ConnectError::Denied(one),
        (None, None, Some(one)) => ConnectError::Refused(one),
        (None, None, None) => ConnectError::Unreachable(Attempts(tried)),
    })
}

/// Connects and asks for the map.
fn begin(
    server: &str,
    volume: &str,
    intent: &Intent,
    waiting: &Waiting<'_>,
) -> Result<(Watched, VolumeMap), Failed> {
    let addresses = address::resolve(server).map_err(Broken::from)?;
    let (mut conn, _) = Conn::open(&addresses, intent, Purpose::Control, waiting)?;
    conn.keep_alive()?;
    let watch = Watch { volume: Blob(volume.as_bytes().to_vec()) };
    let id = conn.send((Kind::Watch, 0), &watch, &[], waiting)?;
    let mut watched = Watched { conn, id, server: server.to_owned() };
    match watched.event(waiting)? {
        WatchEvent::Map { map } => Ok((watched, map)),
        WatchEvent::End { reason } => Err(Failed::ended(&reason)),
        WatchEvent::NoVolume => Err(Failed::NoVolume),
    }
}

impl Watched {
    fn event(&mut self, waiting: &Waiting<'_>) -> Result<WatchEvent, Broken> {
        let head = self.conn.receive(Expect::Stream, &mut Payload::new(), waiting)?;
        if head.kind != Kind::Event || head.id != self.id {
            return Err(DecodeError::Bounds("answer to the watch").into());
        }
        Ok(WatchEvent::from_bytes(self.conn.body())?)
    }

    /// Takes events until the connection is of no more use; says why.
    fn follow(&mut self, core: &Core) -> Failed {
        let since = Instant::now();
        loop {
            match self.next(core, since) {
                Ok(Some(WatchEvent::Map { map })) => core.publish(map),
                Ok(Some(WatchEvent::End { reason })) => return Failed::ended(&reason),
                Ok(Some(WatchEvent::NoVolume)) => return Failed::NoVolume,
                Ok(None) => {}
                Err(e) => return Failed::Broken(e),
            }
        }
    }

    /// An event that has begun to come.
    fn soon(&mut self, core: &Core) -> Result<WatchEvent, Broken> {
        let still = || if core.is_stopped() { Err(Broken::Stopped) } else { Ok(()) };
        let waiting = Waiting { until: Instant::now() + core.options.network_timeout, still: &still };
        self.event(&waiting)
    }

    fn next(&mut self, core: &Core, since: Instant) -> Result<Option<WatchEvent>, Broken> {
        if self.conn.has_received() {
            return self.soon(core).map(Some);
        }
        let mut fds = [
            PollFd::from_borrowed_fd(self.conn.fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(core.watcher.wakeup.as_fd(), PollFlags::IN),
        ];
        match poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        let [events, wakeup] = fds.map(|fd| !fd.revents().is_empty());
        if core.is_stopped() {
            return Err(Broken::Stopped);
        }
        if events {
            return self.soon(core).map(Some);
        }
        if wakeup {
            core.watcher.calm();
            if since.elapsed() >= YOUNG {
                return Err(Broken::Moved);
            }
        }
        Ok(None)
    }
}

/// The watching thread's life: watch, and when that breaks, watch another server.
pub(crate) fn run(core: &Core, mut watched: Watched, seeds: &[String]) {
    let mut pause = PAUSE.0;
    let mut silent: HashMap<String, Instant> = HashMap::new();
    while !core.is_stopped() {
        let since = Instant::now();
        let why = watched.follow(core);
        if matches!(why, Failed::Broken(Broken::Stopped)) {
            return;
        }
        tracing::debug!(server = watched.server, "the watch ends: {why}");
        if let Failed::NoVolume = why {
            core.no_volume("it was deleted");
        }
        if since.elapsed() > PAUSE.1 {
            pause = PAUSE.0;
        }
        silent.retain(|_, since| since.elapsed() < AVOIDED);
        let mut next = candidates(core, seeds, &watched.server, &silent).into_iter();
        let mut backoff = SOON;
        watched = loop {
            if core.is_stopped() {
                return;
            }
            let Some(server) = next.next() else {
                sleep(core, pause);
                pause = (pause * 2).min(PAUSE.1);
                // All of them may be slow.
                backoff = (backoff * 2).min(core.options.network_timeout);
                next = candidates(core, seeds, &watched.server, &silent).into_iter();
                continue;
            };
            let still = || if core.is_stopped() { Err(Broken::Stopped) } else { Ok(()) };
            let until = Instant::now() + core.options.network_timeout.min(backoff);
            match begin(&server, &core.volume, &core.intent, &Waiting { until, still: &still }) {
                Ok((new, map)) => {
                    tracing::debug!(server, "watching");
                    silent.remove(&server);
                    core.publish(map);
                    break new;
                }
                Err(e) => {
                    tracing::debug!(server, "no watch: {e}");
                    match e {
                        Failed::NoVolume => core.no_volume("it was deleted"),
                        Failed::Broken(Broken::Refused(_)) => {
                            // The keys of a volume end with it.
                            core.no_volume("this mount's key counts no more");
                            // Here and not where calls fail: who gives another one may take a while.
                            if let Some(key) = &core.intent.key {
                                key.refused(core.intent.pool);
                            }
                        }
                        _ => {}
                    }
                    silent.insert(server, Instant::now());
                }
            }
        };
        if since.elapsed() < PAUSE.1 {
            sleep(core, pause);
            pause = (pause * 2).min(PAUSE.1);
        }
    }
}

/// A pause that the client's end cuts short.
fn sleep(core: &Core, time: Duration) {
    let until = Instant::now() + time;
    while !core.is_stopped() {
        let left = until.saturating_duration_since(Instant::now());
        let Ok(left) = Timespec::try_from(left.min(Duration::from_millis(100))) else { return };
        if left.tv_sec == 0 && left.tv_nsec == 0 {
            return;
        }
        poll(&mut [], Some(&left)).ok();
    }
}

/// All servers known: the pool's as of the last map, and those given at first; the last one used comes last, but before
/// those that did not answer lately.
fn candidates(core: &Core, seeds: &[String], last: &str, silent: &HashMap<String, Instant>) -> Vec<String> {
    let current = core.current();
    let mut all: Vec<String> =
        current.map.servers.iter().map(|s| String::from_utf8_lossy(&s.address.0).into_owned()).collect();
    // Clients do not all run to the same server.
    let turn = usize::try_from(core.intent.session.0 % 64).unwrap_or(0);
    if !all.is_empty() {
        let turn = turn % all.len();
        all.rotate_left(turn);
    }
    all.extend(seeds.iter().filter(|s| !all.contains(s)).cloned().collect::<Vec<_>>());
    if let Some(at) = all.iter().position(|s| s == last) {
        let turn = (at + 1) % all.len().max(1);
        all.rotate_left(turn);
    }
    all.sort_by_key(|server| silent.contains_key(server));
    all
}

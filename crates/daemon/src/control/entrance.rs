//! How connections come in: over TCP, encrypted or not, and on the local socket. Who may stay is decided by
//! [`crate::speaker`] before a frame after the handshake is read.

use super::{Control, ServerOptions, connection, threads};
use crate::clock;
use crate::guests::{Guest, Knock};
use crate::limits::{HANDSHAKE_WAIT, NEW_KEY_WAIT};
use crate::metrics::Closed;
use crate::shard::ShardMessage;
use crate::speaker::Speaker;
use ids::{ServerId, bracketed};
use rustix::net::sockopt::socket_peercred;
use server_core::threads::FRONT;
use std::fs::{self, Permissions};
use std::net::{IpAddr, Ipv6Addr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use transport::{Connection, TransportError, secure};
use trust::Channel;
use wire::codec::Blob;
use wire::frame::VERSIONS;
use wire::hello::{Hello, HelloReply, Purpose};

/// How a handshake of TLS begins. A frame begins with `M`.
const TLS: u8 = 0x16;
/// The account of those on the local socket: no address of a network's.
const LOCAL: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
/// The local socket's name in the state folder.
pub(super) const SOCKET: &str = "socket";

pub(super) async fn listen(address: &str) -> Result<TcpListener, String> {
    TcpListener::bind(address).await.map_err(|e| match e.kind() {
        std::io::ErrorKind::AddrInUse => {
            format!(
                "{address}: the port is in use: stop whatever listens there, or give --address another port"
            )
        }
        std::io::ErrorKind::AddrNotAvailable => {
            format!("{address}: this machine does not have that address: give --address one that it has")
        }
        _ => format!("{address}: {e}"),
    })
}

/// Listens on a further address, which that word of the command line gives.
pub(super) async fn listen_if_given(
    address: Option<&str>,
    word: &str,
) -> Result<Option<TcpListener>, String> {
    match address {
        Some(address) => listen(address).await.map(Some).map_err(|e| e.replace("--address", word)),
        None => Ok(None),
    }
}

/// Makes the local socket. A server can do without: its folder's name may be too long for one.
fn listen_locally(folder: &Path) -> Option<UnixListener> {
    let make = || {
        // Whoever looks for it finds the name that it is bound to.
        let path = folder.canonicalize()?.join(SOCKET);
        match fs::remove_file(&path) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e),
            Err(_) | Ok(()) => {}
        }
        let listener = UnixListener::bind(&path)?;
        fs::set_permissions(&path, Permissions::from_mode(0o600))?;
        Ok(listener)
    };
    make()
        .inspect_err(|e| {
            tracing::warn!("{}: {e}: commands need --server HOST", folder.join(SOCKET).display());
        })
        .ok()
}

/// Makes the sockets for this machine: the one in the state folder, and the one by which root and other servers find the server
/// that listens on its address. Where the latter is.
pub(super) fn local_sockets(options: &ServerOptions, identity: &str) -> (Vec<UnixListener>, Option<PathBuf>) {
    let made = transport::listen_locally(&options.address, identity);
    let made = made.and_then(|(listener, path)| Ok((UnixListener::from_std(listener)?, path)));
    let made = made.inspect_err(|e| {
        tracing::warn!("no socket under /run/mortar: {e}: mounts on this machine need -o key=FILE");
    });
    let (for_machine, path) = made.ok().unzip();
    (listen_locally(&options.state).into_iter().chain(for_machine).collect(), path)
}

pub(super) async fn accept(control: Arc<Control>, listener: TcpListener, data: bool) {
    loop {
        match listener.accept().await {
            Ok((stream, from)) => {
                let Some(knock) = control.shared.guests.knock(from.ip()) else {
                    control.shared.metrics.closed(Closed::TooMany);
                    let from = bracketed(&from.ip().to_string());
                    tracing::warn!("a connection from {from} is closed: there are too many");
                    continue;
                };
                tokio::spawn(told(handshake(control.clone(), stream, knock, data)));
            }
            Err(e) => out_of_descriptors(&e).await,
        }
    }
}

pub(super) async fn accept_locally(control: Arc<Control>, listener: UnixListener) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let Some(knock) = control.shared.guests.knock(LOCAL).filter(|_| is_ours(&stream)) else {
                    tracing::warn!(
                        "a connection to the local socket is closed: it is not root's, or there are too many"
                    );
                    continue;
                };
                tokio::spawn(told(handshake_locally(control.clone(), stream, knock)));
            }
            Err(e) => out_of_descriptors(&e).await,
        }
    }
}

/// Whether root is at the other end, or the user that this server runs as.
fn is_ours(stream: &UnixStream) -> bool {
    socket_peercred(stream).is_ok_and(|who| who.uid.is_root() || who.uid == rustix::process::geteuid())
}

async fn out_of_descriptors(e: &std::io::Error) {
    // Mostly: others will be closed.
    tracing::warn!("accept a connection: {e}");
    tokio::time::sleep(Duration::from_millis(50)).await;
}

async fn told(served: impl Future<Output = Result<(), TransportError>>) {
    if let Err(e) = served.await {
        tracing::debug!("connection: {e}");
    }
}

/// Why a handshake failed, if that is for what came, and not because nothing came: some look only whether the port is open.
fn telling(e: &TransportError) -> Option<String> {
    match e {
        TransportError::Insecure { source, .. } if source.kind() == std::io::ErrorKind::InvalidData => {
            Some(format!("TLS: {source}"))
        }
        TransportError::Insecure { source, .. } => {
            Some(format!("it broke off the handshake of TLS, its key may be another pool's: {source}"))
        }
        TransportError::Decode(_) => Some(e.to_string()),
        _ => None,
    }
}

/// Within the time of a handshake.
async fn soon<T>(work: impl Future<Output = Result<T, TransportError>>) -> Result<T, TransportError> {
    tokio::time::timeout(HANDSHAKE_WAIT, work).await.unwrap_or(Err(TransportError::Closed))
}

async fn handshake_locally(
    control: Arc<Control>,
    stream: UnixStream,
    knock: Knock,
) -> Result<(), TransportError> {
    let mut connection = Connection::from(stream);
    let hello = soon(transport::accept(&mut connection.reader)).await?;
    drop(knock);
    let (speaker, from) = (Speaker::Root, LOCAL);
    let Some(guest) = control.enter(&mut connection, &speaker, &hello, (from, false)).await? else {
        return Ok(());
    };
    connection::serve(control, connection, (speaker, None), guest).await
}

/// The connection, encrypted if it begins so.
async fn opened(
    control: &Control,
    stream: TcpStream,
    from: IpAddr,
) -> Result<(Connection, Hello, u64), TransportError> {
    stream.set_nodelay(true)?;
    let mut first = [0];
    stream.peek(&mut first).await?;
    let mut connection = if first == [TLS] {
        let keys = control.shared.keys().ok_or(TransportError::Closed)?;
        let channel = Channel::server(keys.accepts()).map_err(|_| TransportError::Closed)?;
        secure(stream, channel, &from.to_string(), HANDSHAKE_WAIT).await?.into()
    } else {
        Connection::from(stream)
    };
    let (hello, id) = transport::accept(&mut connection.reader).await?;
    Ok((connection, hello, id))
}

async fn handshake(
    control: Arc<Control>,
    stream: TcpStream,
    knock: Knock,
    data: bool,
) -> Result<(), TransportError> {
    let address = stream.peer_addr()?.ip();
    let opened = tokio::select! {
        opened = soon(opened(&control, stream, address)) => opened,
        () = knock.ended() => Err(TransportError::Closed),
    };
    let (mut connection, hello, id) = opened.inspect_err(|e| {
        control.shared.metrics.closed(Closed::Handshake);
        if let Some(why) = telling(e) {
            control.log_refused(&bracketed(&address.to_string()), Some(address), &why);
        }
    })?;
    let speaker = Speaker::on(&connection);
    control.await_key(&speaker).await;
    drop(knock);
    let hello = (hello, id);
    let entered = control.enter(&mut connection, &speaker, &hello, (address, data)).await?;
    let (Some(guest), hello) = (entered, hello.0) else { return Ok(()) };
    let message = match hello.purpose {
        Purpose::Control => {
            return connection::serve(control, connection, (speaker, Some(address)), guest).await;
        }
        Purpose::Session { shard, connection: number, oldest } => {
            let address = (hello.from == ServerId(0)).then_some(address);
            let origin = crate::shard::Origin { address, limits: speaker.limits(&control.state()) };
            let (connection, session) = (connection.detach()?, hello.session);
            // What a session holds open stays with what its key was for.
            let owned = |name: String| match origin.beneath() {
                Some(dir) => format!("{name} beneath {dir}"),
                None => name,
            };
            let (slot, owner) = (shard, speaker.owner().map(owned));
            let client = address.map(|address| speaker.client(address));
            let key = speaker.key().zip(speaker.client_name());
            let who = Box::new(crate::shard::Who { from: address, client, key });
            let numbers = (number, oldest);
            (shard, ShardMessage::Data { connection, session, owner, who, numbers, origin, slot, guest })
        }
        Purpose::Peer { shard } => {
            let (connection, from) = (connection.detach()?, hello.from);
            (shard, ShardMessage::Peer { connection, from, slot: shard, guest })
        }
    };
    let index = threads::of_slot(&control, message.0).await;
    if let Some(shard) = control.shared.shard(index).or_else(|| control.shared.shard(FRONT)) {
        let _stopping = shard.send(message.1);
    }
    Ok(())
}

impl Control {
    /// Somebody may show a key that another server made a moment ago.
    async fn await_key(&self, speaker: &Speaker) {
        if speaker.may_be_new(&self.state()) {
            let mut states = self.store().watch();
            let known = states.wait_for(|state| !speaker.may_be_new(state));
            // Who is not known by then is refused.
            let _known = tokio::time::timeout(NEW_KEY_WAIT, known).await;
        }
    }

    /// Answers somebody's hello; `None`: with a refusal.
    async fn enter(
        &self,
        connection: &mut Connection,
        speaker: &Speaker,
        (hello, id): &(Hello, u64),
        (address, data): (IpAddr, bool),
    ) -> Result<Option<Guest>, TransportError> {
        // What he says he is counts only if nobody can know.
        let server = match speaker {
            Speaker::Anybody => hello.from,
            known => known.server().unwrap_or_default(),
        };
        // In this order: whoever loses his right after it was looked at is ended as a guest.
        let (guest, refused) = match self.shared.guests.enter(address, server, speaker) {
            Ok(guest) => (Some(guest), self.refusal(hello, speaker, data)),
            Err(why) => (None, Some(why)),
        };
        if let Some(why) = &refused {
            self.shared.metrics.closed(Closed::Refused);
            self.log_refused(&speaker.called(Some(address)), Some(address), why);
        }
        let reply = HelloReply {
            refused: Blob(refused.clone().unwrap_or_default().into_bytes()),
            version: VERSIONS.first().copied().unwrap_or(2),
            pool: self.shared.pool(),
            server: self.shared.me(),
            shards: threads::SLOTS,
        };
        soon(transport::answer(&mut connection.writer, *id, &reply)).await?;
        Ok(guest.filter(|_| refused.is_none()))
    }

    /// Has the log tell of somebody who is refused, at that address.
    pub(super) fn log_refused(&self, who: &str, from: Option<IpAddr>, why: &dyn std::fmt::Display) {
        if self.comes_in.load(Ordering::Relaxed) {
            // The pool that it comes into knows it before it knows that pool.
            tracing::debug!("{who} is refused, as this server comes into another pool: {why}");
        } else if self.told_refusals.begin(from.unwrap_or(LOCAL), clock::now()).is_ok() {
            tracing::warn!("{who} is refused: {why}");
        }
    }

    fn refusal(&self, hello: &Hello, speaker: &Speaker, data: bool) -> Option<String> {
        if !hello.versions.0.iter().any(|v| VERSIONS.contains(v)) {
            return Some(format!("speaks protocol versions {VERSIONS:?}: use programs of like age"));
        }
        if !data && hello.purpose != Purpose::Control {
            return Some("this address is for administration only: use the server's --address".to_owned());
        }
        if !speaker.may_connect(&hello.purpose, hello.from) {
            return Some(
                "this key is not for that: use one of the right kind (mortar client add, mortar pool key)"
                    .to_owned(),
            );
        }
        let admitted = speaker.admitted(&self.state(), self.shared.is_secured(), clock::unix_now());
        if let Err(why) = admitted {
            return Some(why);
        }
        let own = self.shared.pool();
        (hello.pool != [0; 16] && hello.pool != own).then(|| "this server belongs to another pool".to_owned())
    }
}

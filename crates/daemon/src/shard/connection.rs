//! Connections of clients and peers: frames in, to the set they mean.

use super::sessions::Connection;
use super::{Shard, ShardMessage};
use crate::clock;
use ids::{Epoch, ServerId, SessionId};
use std::net::IpAddr;
use std::rc::Rc;
use tokio::task::spawn_local;
use transport::{FrameReader, FrameSender, TransportError, write_frames};
use wire::peer::PeerMessage;
use wire::{Call, Fail, Frame, Kind, Reply, Wire};

/// Who asks: the session, on which connection, and the address it asks from unless it is another server.
#[derive(Clone)]
pub(super) struct Caller {
    pub(super) session: SessionId,
    pub(super) connection: Connection,
    pub(super) from: Option<IpAddr>,
}

/// Serves a client's connection until it closes.
pub(super) fn serve_client(
    shard: Rc<Shard>,
    stream: std::net::TcpStream,
    (number, slot): (u64, u16),
    caller: Caller,
) {
    spawn_local(async move {
        let session = caller.session;
        if let Err(e) = client_loop(&shard, stream, slot, caller).await {
            tracing::debug!("connection of session {session}: {e}");
        }
        let now = clock::now();
        let look_at = shard.sessions.borrow_mut().disconnect(now, session, number);
        if let Some(at) = look_at {
            tokio::time::sleep(at.saturating_sub(now)).await;
            let gone = shard.sessions.borrow_mut().end(clock::now(), session);
            if gone {
                shard.take(ShardMessage::SessionEnded(session));
            }
        }
    });
}

async fn client_loop(
    shard: &Rc<Shard>,
    stream: std::net::TcpStream,
    slot: u16,
    caller: Caller,
) -> Result<(), TransportError> {
    let (reader, writer) = tokio::net::TcpStream::from_std(stream)?.into_split();
    let mut frames = FrameReader::new(reader);
    let (sender, queue) = FrameSender::channel();
    let writing = spawn_local(write_frames(writer, queue));
    let read = async {
        while let Some(frame) = frames.next().await? {
            if frame.kind != Kind::Call {
                return Err(wire::DecodeError::Bounds("frame kind on a data connection").into());
            }
            if shard.is_misplaced(slot) {
                break;
            }
            on_call(shard, frame, &sender, caller.clone());
        }
        Ok(())
    };
    let served = tokio::select! {
        biased;
        () = caller.connection.given_up() => Ok(()),
        served = read => served,
    };
    writing.abort();
    served
}

/// Decodes a request and gives it to its set, here or on the shard that has it.
pub(super) fn on_call(shard: &Rc<Shard>, frame: Frame, reply: &FrameSender, caller: Caller) {
    let Caller { session, connection, from } = caller;
    let call = match Call::from_bytes(&frame.body) {
        Ok(call) => call,
        Err(e) => {
            tracing::warn!("request of session {session}: {e}");
            let refusal = Reply(Err(Fail::Errno { errno: wire::Errno::EINVAL.0 }));
            reply.send(Frame::new(Kind::Reply, frame.id, refusal.to_bytes()));
            return;
        }
    };
    let own = shard.set(call.set);
    if own.is_none()
        && let Some(other) = shard.elsewhere(call.set)
    {
        let reply = reply.clone();
        let _gone = other.send(ShardMessage::Call { frame, reply, session, connection, from });
        return;
    }
    shard.note_call();
    match own {
        Some(set) if !set.permits(from) => {
            let refusal = Reply::errno(wire::Errno::EACCES.0);
            reply.send(Frame::new(Kind::Reply, frame.id, refusal.to_bytes()));
        }
        Some(set) => {
            let to = super::set::Client { sender: reply.clone(), id: frame.id, connection };
            set.serve(call, frame.payload, to, session);
        }
        None => {
            // A set that is not known here may be there all the same: a server that has just started may have an old state
            // of the pool, or none.
            let epoch = shard.state().sets.get(&call.set).map_or(Epoch(0), |s| s.view.epoch);
            let refusal = Reply(Err(Fail::WrongView { epoch }));
            reply.send(Frame::new(Kind::Reply, frame.id, refusal.to_bytes()));
        }
    }
}

/// Serves another server's connection until it closes.
pub(super) fn serve_peer(shard: Rc<Shard>, stream: std::net::TcpStream, from: ServerId, slot: u16) {
    spawn_local(async move {
        if let Err(e) = peer_loop(&shard, stream, slot).await {
            tracing::debug!("connection from server {from}: {e}");
        }
    });
}

async fn peer_loop(shard: &Rc<Shard>, stream: std::net::TcpStream, slot: u16) -> Result<(), TransportError> {
    let mut frames = FrameReader::new(tokio::net::TcpStream::from_std(stream)?);
    while let Some(frame) = frames.next().await? {
        if frame.kind != Kind::Peer {
            return Err(wire::DecodeError::Bounds("frame kind on a peer connection").into());
        }
        if shard.is_misplaced(slot) {
            // The set is told of the next one, and sends again what is wanted.
            return Ok(());
        }
        on_peer(shard, frame);
    }
    Ok(())
}

/// Decodes a peer's message and gives it to its set.
pub(super) fn on_peer(shard: &Rc<Shard>, frame: Frame) {
    let message = match PeerMessage::from_bytes(&frame.body) {
        Ok(message) => message,
        Err(e) => {
            tracing::warn!("message of a peer: {e}");
            return;
        }
    };
    if let Some(set) = shard.set(message.set) {
        set.on_peer(message, frame.payload);
    } else if let Some(other) = shard.elsewhere(message.set) {
        let _gone = other.send(ShardMessage::FromPeer { frame });
    }
}

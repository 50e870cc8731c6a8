//! Connections of clients and peers: frames in, to the set they mean.

use super::sessions::Connection;
use super::{Origin, Shard, ShardMessage};
use crate::clock;
use crate::guests::Guest;
use crate::limits::{CALL_BODY, FRAME_WAIT};
use bytes::Bytes;
use ids::{Epoch, ServerId, SessionId};
use std::rc::Rc;
use tokio::task::spawn_local;
use transport::{Bounds, Detached, FrameReader, FrameSender, ReadingHalf, TransportError, write_frames};
use wire::limits::{BODY_MAX, DIR_PAGE, GETATTRS_MAX, IO_MAX, PAYLOAD_MAX};
use wire::peer::PeerMessage;
use wire::{Call, Fail, Frame, Kind, Op, Reply, Wire};

/// What an answer takes, if it is none of the long ones.
const SHORT_ANSWER: usize = 1 << 10;
/// What the value of an extended attribute, a list of their names or the target of a link may take.
const VALUE_ANSWER: usize = 64 << 10;

/// What the attributes of an object take in an answer, at most.
const ATTR_BYTES: usize = 128;

/// Who asks: the session, on which connection, and what is known of it.
#[derive(Clone)]
pub(super) struct Caller {
    pub(super) session: SessionId,
    pub(super) connection: Connection,
    pub(super) origin: Origin,
}

/// A request, and where its answer goes.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) call: Call,
    /// The user that it names; 0: nobody.
    pub(crate) user: u32,
    pub(crate) payload: Bytes,
    pub(crate) to: super::set::Client,
}

/// Memory that the answer to a request may take, in bytes.
fn answer_size(op: &Op) -> usize {
    match op {
        Op::Read { len, .. } => SHORT_ANSWER + (*len).min(IO_MAX) as usize,
        Op::ReadDir { .. } => 2 * DIR_PAGE as usize,
        Op::GetAttrs { fids } => SHORT_ANSWER + fids.len().min(GETATTRS_MAX) * ATTR_BYTES,
        Op::GetXattr { .. } | Op::ListXattr { .. } | Op::ReadLink { .. } => VALUE_ANSWER,
        _ => SHORT_ANSWER,
    }
}

/// Serves a client's connection until it closes.
pub(super) fn serve_client(
    shard: Rc<Shard>,
    stream: Detached,
    (number, slot): (u64, u16),
    caller: Caller,
    guest: Guest,
) {
    spawn_local(async move {
        let session = caller.session;
        if let Err(e) = client_loop(&shard, stream, slot, caller, &guest).await {
            tracing::debug!("connection of session {session}: {e}");
        }
        drop(guest);
        shard.clients.borrow_mut().disconnect(session);
        let now = clock::now();
        let ended = shard.sessions.borrow_mut().disconnect(now, session, number);
        ended.given_up.iter().for_each(Connection::give_up);
        if let Some(at) = ended.look_at {
            tokio::time::sleep(at.saturating_sub(now)).await;
            let gone = shard.sessions.borrow_mut().end(clock::now(), session);
            if gone {
                shard.clients.borrow_mut().end(session);
                shard.take(ShardMessage::SessionEnded(session));
            }
        }
    });
}

async fn client_loop(
    shard: &Rc<Shard>,
    stream: Detached,
    slot: u16,
    caller: Caller,
    guest: &Guest,
) -> Result<(), TransportError> {
    let transport::Connection { reader, writer, identity: _ } = stream.attach()?;
    let (frames, bounds) = (FrameReader::from(reader), guest.bounds(CALL_BODY, PAYLOAD_MAX));
    let (sender, queue) = FrameSender::channel();
    let connection = caller.connection.clone();
    // Tasks of their own: each of them is woken for itself alone.
    let mut writing = spawn_local(write_frames(writer, queue, Some(FRAME_WAIT)));
    let mut reading = spawn_local(read_calls(shard.clone(), frames, bounds, slot, caller, sender));
    let served = tokio::select! {
        biased;
        () = connection.given_up() => Ok(()),
        () = guest.ended() => {
            // What came and was not begun is not begun any more.
            connection.give_up();
            Ok(())
        }
        served = &mut reading => served.unwrap_or(Err(TransportError::Closed)),
        written = &mut writing => written.unwrap_or(Err(TransportError::Closed)),
    };
    reading.abort();
    writing.abort();
    served
}

/// Takes a client's requests until its connection closes.
async fn read_calls(
    shard: Rc<Shard>,
    mut frames: FrameReader<ReadingHalf>,
    bounds: Bounds,
    slot: u16,
    caller: Caller,
    sender: FrameSender,
) -> Result<(), TransportError> {
    while let Some((frame, memory)) = frames.next_within(&bounds).await? {
        if frame.kind != Kind::Call {
            return Err(wire::DecodeError::Bounds("frame kind on a data connection").into());
        }
        if shard.is_misplaced(slot) {
            break;
        }
        let call = Call::from_bytes(&frame.body);
        let answer = call.as_ref().map_or(SHORT_ANSWER, |call| answer_size(&call.op));
        // Those whose request was long have its memory for the answer, which is short then.
        let held = match memory {
            Some(memory) => memory,
            None => bounds.memory.reserve(frame.body.len() + frame.payload.len() + answer).await?,
        };
        let (sender, connection, user) = (sender.clone(), caller.connection.clone(), frame.user);
        connection.traffic().asked(frame.payload.len());
        let to = super::set::Client { sender, id: frame.id, connection, held: Some(held), served: None };
        match call {
            Ok(call) => {
                let asked = Asked { call, user, payload: frame.payload, to };
                on_call(&shard, asked, caller.session, caller.origin.clone());
            }
            Err(e) => {
                tracing::warn!("request of session {}: {e}", caller.session);
                to.answer(&Reply::errno(wire::Errno::EINVAL.0));
            }
        }
    }
    Ok(())
}

/// Gives a request to its set, here or on the shard that has it.
pub(super) fn on_call(shard: &Rc<Shard>, asked: Asked, session: SessionId, origin: Origin) {
    let own = shard.set(asked.call.set);
    if own.is_none()
        && let Some(other) = shard.elsewhere(asked.call.set)
    {
        let _gone = other.send(ShardMessage::Call { asked: Box::new(asked), session, origin });
        return;
    }
    let Asked { call, user, payload, to } = asked;
    // What servers ask each other is no reason to rest: files that move would wait for themselves.
    if origin.address.is_some() {
        shard.note_call();
    }
    match own {
        Some(set) => {
            let permitted = set.permits(&origin, session, &call);
            match permitted.and_then(|()| origin.user(user, &call.op)) {
                Err(why) => to.answer(&Reply::errno(why.0)),
                Ok(user) => set.serve(call, payload, to, (session, user, origin.beneath())),
            }
        }
        None => {
            // A set that is not known here may be there all the same: a server that has just started may have an old state
            // of the pool, or none.
            let epoch = shard.state().sets.get(&call.set).map_or(Epoch(0), |s| s.view.epoch);
            to.answer(&Reply(Err(Fail::WrongView { epoch })));
        }
    }
}

/// Serves another server's connection until it closes.
pub(super) fn serve_peer(shard: Rc<Shard>, stream: Detached, (from, slot): (ServerId, u16), guest: Guest) {
    spawn_local(async move {
        if let Err(e) = peer_loop(&shard, stream, slot, &guest).await {
            tracing::debug!("connection from server {from}: {e}");
        }
    });
}

async fn peer_loop(
    shard: &Rc<Shard>,
    stream: Detached,
    slot: u16,
    guest: &Guest,
) -> Result<(), TransportError> {
    let transport::Connection { reader, writer: _open, identity: _ } = stream.attach()?;
    let mut frames = FrameReader::from(reader);
    let bounds = guest.bounds(BODY_MAX, PAYLOAD_MAX);
    loop {
        let next = tokio::select! {
            biased;
            () = guest.ended() => return Ok(()),
            next = frames.next_within(&bounds) => next?,
        };
        let Some((frame, _memory)) = next else { return Ok(()) };
        if frame.kind != Kind::Peer {
            return Err(wire::DecodeError::Bounds("frame kind on a peer connection").into());
        }
        if shard.is_misplaced(slot) {
            // The set is told of the next one, and sends again what is wanted.
            return Ok(());
        }
        on_peer(shard, frame);
    }
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

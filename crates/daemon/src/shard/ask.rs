//! Requests of one set's primary to another's.

use super::sessions::Connection;
use super::{Shard, ShardMessage};
use bytes::Bytes;
use ids::{OpId, SessionId, SetId};
use std::rc::Rc;
use std::time::Duration;
use transport::{Caller, FrameSender, TransportError};
use wire::codec::Blob;
use wire::frame::VERSIONS;
use wire::hello::{Hello, Purpose};
use wire::{Body, Call, Fail, Frame, Kind, Op, Reply, Wire};

const PATIENCE: Duration = Duration::from_secs(5);
const TRIES: u32 = 40;
const PAUSE: Duration = Duration::from_millis(50);

impl Shard {
    /// Asks the primary of `set`, again and again over a change of its view, for some seconds.
    pub(super) async fn ask(self: &Rc<Self>, set: SetId, op: Op) -> Result<Body, Fail> {
        let id = if op.changes() { self.next_id() } else { OpId { session: self.session, seq: 0 } };
        self.ask_as(id, set, op).await
    }

    /// Asks under a name that [`Shard::next_id`] gave.
    pub(super) async fn ask_as(self: &Rc<Self>, id: OpId, set: SetId, op: Op) -> Result<Body, Fail> {
        for _ in 0..TRIES {
            let state = self.state();
            let view = state.sets.get(&set).map(|s| s.view.clone()).ok_or(Fail::Busy)?;
            let server = view.primary.and_then(|p| state.brick(p)).map(|(_, b)| b.server);
            let call =
                Call { set, epoch: view.epoch, id, finished: id.seq.saturating_sub(256), op: op.clone() };
            let reply = match server {
                None => Ok(Reply(Err(Fail::Busy))),
                Some(server) if server == self.shared.me() => self.ask_here(call).await,
                Some(server) => self.ask_there(server, call).await,
            };
            match reply {
                Ok(Reply(Ok(body))) => return Ok(body),
                Ok(Reply(Err(Fail::Busy | Fail::WrongView { .. }))) => {}
                Ok(Reply(Err(fail))) => return Err(fail),
                Err(e) => tracing::debug!("ask the primary of set {set}: {e}"),
            }
            tokio::time::sleep(PAUSE).await;
        }
        Err(Fail::Busy)
    }

    /// A name for a request to another set that nobody else has or will have.
    pub(super) fn next_id(&self) -> OpId {
        let seq = self.seq.get() + 1;
        self.seq.set(seq);
        OpId { session: self.session, seq }
    }

    async fn ask_here(&self, call: Call) -> Result<Reply, TransportError> {
        let (sender, mut queue) = FrameSender::channel();
        let frame = Frame::new(Kind::Call, 0, call.to_bytes());
        let shard = self.shared.shard_of(call.set).ok_or(TransportError::Closed)?;
        let message = ShardMessage::Call {
            frame,
            reply: sender,
            session: self.session,
            connection: Connection::default(),
            from: None,
        };
        shard.send(message).map_err(|_| TransportError::Closed)?;
        let answer = queue.recv().await.ok_or(TransportError::Closed)?;
        Ok(Reply::from_bytes(&answer.body)?)
    }

    async fn ask_there(&self, server: ids::ServerId, call: Call) -> Result<Reply, TransportError> {
        let (connection, caller) = self.caller(server).await?;
        let answer = caller.call(Kind::Call, call.to_bytes(), Bytes::new(), PATIENCE).await;
        if answer.is_err() {
            // The next one ends this connection, and with it what may still lie there.
            let mut callers = self.callers.borrow_mut();
            if callers.get(&server).is_some_and(|(newest, _)| *newest == connection) {
                callers.remove(&server);
            }
        }
        Ok(Reply::from_bytes(&answer?.body)?)
    }

    async fn caller(&self, server: ids::ServerId) -> Result<(u64, Caller), TransportError> {
        if let Some(caller) = self.callers.borrow().get(&server).filter(|(_, c)| !c.is_closed()) {
            return Ok(caller.clone());
        }
        let address = self.state().servers.get(&server).map(|s| s.address.clone());
        // One connection at a time: each ends those before it.
        let connection = self.connections.get() + 1;
        self.connections.set(connection);
        let shard = u16::try_from(self.index).unwrap_or(0);
        let hello = Hello {
            versions: Blob(VERSIONS.to_vec()),
            purpose: Purpose::Session { shard, connection, oldest: connection },
            pool: self.shared.pool(),
            from: self.shared.me(),
            session: SessionId(self.session.0),
        };
        let caller = Caller::connect(&address.ok_or(TransportError::Closed)?, &hello, PATIENCE).await?;
        self.callers.borrow_mut().insert(server, (connection, caller.clone()));
        Ok((connection, caller))
    }
}

//! Requests of one set's primary to another's: carries out what [`server_core::Asker`] decides.

use super::connection;
use super::sessions::Connection;
use super::{Shard, ShardMessage};
use bytes::Bytes;
use ids::{OpId, ServerId, SetId};
use server_core::ask::{Broken, Question, Step};
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::OnceCell;
use transport::{Caller, FrameSender, TransportError, connect};
use wire::codec::Blob;
use wire::frame::VERSIONS;
use wire::hello::{Hello, Purpose};
use wire::{Body, Call, Fail, Kind, Op, Reply, Wire};

/// No set's number: the connection serves questions to all sets of a server, so no set's thread may have it.
const FOR_ALL: u16 = u16::MAX;

/// A connection to another server: its number, and itself once it is made. Whoever needs it first makes it.
pub(super) type Asked = (u64, Rc<OnceCell<Caller>>);

impl Shard {
    /// Has the set `from` ask the primary of `set`, again and again over a change of its view, for some seconds.
    pub(super) async fn ask(
        self: &Rc<Self>,
        (from, set): (SetId, SetId),
        (op, payload): (Op, Bytes),
        name: Option<OpId>,
    ) -> Result<Body, Fail> {
        let mut question = self.asker.borrow_mut().begin(name, (from, set), op);
        let mut step = self.look(&mut question);
        loop {
            let answer = match step {
                Step::Done(answer) => return answer,
                Step::Pause(time) => {
                    tokio::time::sleep(time).await;
                    step = self.look(&mut question);
                    continue;
                }
                Step::Here(call) => self.ask_here(call, payload.clone()).await,
                Step::There { server, connection, oldest, call, timeout } => {
                    let asked = self.connection(server, connection);
                    let data = payload.clone();
                    self.ask_there(server, (connection, oldest), &asked, (call, data), timeout).await
                }
            };
            let answer = answer.map_err(|e| {
                tracing::debug!("ask the primary of set {set}: {e}");
                Broken
            });
            step = self.asker.borrow_mut().answered(&mut question, answer);
        }
    }

    fn look(&self, question: &mut Question) -> Step {
        let mut asker = self.asker.borrow_mut();
        let closed = |(_, c): &Asked| c.get().is_some_and(Caller::is_closed);
        for (server, (number, _)) in self.callers.borrow().iter().filter(|(_, asked)| closed(asked)) {
            asker.closed(*server, *number);
        }
        asker.look(question, &self.state(), self.shared.me())
    }

    async fn ask_here(&self, call: Call, payload: Bytes) -> Result<Reply, TransportError> {
        let (sender, mut queue) = FrameSender::channel();
        let shard = self.shared.shard_of(call.set).ok_or(TransportError::Closed)?;
        let session = self.asker.borrow().session();
        let connection = Connection::default();
        let to = super::set::Client { sender, id: 0, connection, held: None, served: None };
        let asked = Box::new(connection::Asked { call, user: 0, payload, to });
        let message = ShardMessage::Call { asked, session, origin: super::Origin::default() };
        shard.send(message).map_err(|_| TransportError::Closed)?;
        let answer = queue.recv().await.ok_or(TransportError::Closed)?;
        Ok(Reply::from_bytes(&answer.frame.body)?)
    }

    /// The connection to a server with that number, made or not.
    fn connection(&self, server: ServerId, number: u64) -> Rc<OnceCell<Caller>> {
        let mut callers = self.callers.borrow_mut();
        let (newest, asked) = callers.entry(server).or_default();
        if *newest != number {
            (*newest, *asked) = (number, Rc::default());
        }
        asked.clone()
    }

    async fn ask_there(
        &self,
        server: ServerId,
        (connection, oldest): (u64, u64),
        asked: &OnceCell<Caller>,
        (call, payload): (Call, Bytes),
        timeout: Duration,
    ) -> Result<Reply, TransportError> {
        let connect = async || {
            let address = self.state().servers.get(&server).map(|s| s.address.clone());
            let hello = Hello {
                versions: Blob(VERSIONS.to_vec()),
                purpose: Purpose::Session { shard: FOR_ALL, connection, oldest },
                pool: self.shared.pool(),
                from: self.shared.me(),
                session: self.asker.borrow().session(),
            };
            let (address, keys) = (address.ok_or(TransportError::Closed)?, self.shared.dials()?);
            let established = connect(&address, &hello, keys.as_ref(), timeout).await?;
            if established.reply.server != server {
                return Err(TransportError::Closed);
            }
            let visit = self.shared.visit(&established, server)?;
            Ok(Caller::over(established, &address, async move { visit.ended().await }))
        };
        let caller = asked.get_or_try_init(connect).await?.clone();
        let answer = caller.call(Kind::Call, call.to_bytes(), payload, timeout).await?;
        Ok(Reply::from_bytes(&answer.body)?)
    }
}

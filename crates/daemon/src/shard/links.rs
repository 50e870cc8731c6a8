//! Connections to the other servers' shards: replication goes out on them.
//!
//! Made when first needed and made again when they break. What was queued when one broke is lost; the sets are told when
//! it is up again and send what is still wanted.

use super::Shard;
use crate::shared::Shared;
use ids::{ServerId, SessionId};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Weak;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::spawn_local;
use transport::{DirectSender, TransportError, connect};
use wire::Frame;
use wire::codec::Blob;
use wire::frame::VERSIONS;
use wire::hello::{Hello, Purpose};

const PATIENCE: Duration = Duration::from_secs(2);
const RETRY: Duration = Duration::from_millis(100);

/// The outgoing links of one shard.
pub(crate) struct Links {
    index: usize,
    shared: Arc<Shared>,
    shard: Weak<Shard>,
    up: RefCell<HashMap<ServerId, Option<DirectSender>>>,
}

impl Links {
    pub(crate) fn new(index: usize, shared: Arc<Shared>, shard: Weak<Shard>) -> Links {
        Links { index, shared, shard, up: RefCell::default() }
    }

    /// Sends a frame to a server, if its link is up; otherwise sees to it that it comes up.
    pub(crate) fn send(&self, to: ServerId, frame: Frame) {
        let known = self.up.borrow().get(&to).cloned();
        match known {
            Some(Some(sender)) => {
                sender.send(frame);
            }
            Some(None) => {}
            None => {
                self.up.borrow_mut().insert(to, None);
                let (shard, index) = (self.shard.clone(), self.index);
                let shared = self.shared.clone();
                spawn_local(async move { keep_up(shard, shared, index, to).await });
            }
        }
    }

    /// Bytes that wait for the link to a server.
    pub(crate) fn queued(&self, to: ServerId) -> usize {
        self.up.borrow().get(&to).and_then(Option::as_ref).map_or(0, DirectSender::queued)
    }
}

/// Keeps the link to a server up while the server is in the pool.
async fn keep_up(shard: Weak<Shard>, shared: Arc<Shared>, index: usize, to: ServerId) {
    while let Some(address) = shared.state().servers.get(&to).map(|s| s.address.clone()) {
        let hello = Hello {
            versions: Blob(VERSIONS.to_vec()),
            purpose: Purpose::Peer { shard: u16::try_from(index).unwrap_or(0) },
            pool: shared.pool(),
            from: shared.me(),
            session: SessionId(0),
        };
        match connect(&address, &hello, PATIENCE).await {
            Ok(greeted) if greeted.reply.server == to => {
                let (mut reader, writer, _) = greeted.split();
                let sender = DirectSender::new(writer);
                let Some(s) = shard.upgrade() else { return };
                s.links.up.borrow_mut().insert(to, Some(sender.clone()));
                s.link_changed(to, true);
                drop(s);
                // The other side never speaks on this connection: its end is all that can be read.
                let end = tokio::select! {
                    e = sender.drain() => Some(e),
                    r = reader.next() => r.err(),
                };
                let Some(s) = shard.upgrade() else { return };
                s.links.up.borrow_mut().insert(to, None);
                tracing::info!("link to server {to} broke: {}", end.unwrap_or(TransportError::Closed));
                continue;
            }
            Ok(greeted) => {
                tracing::warn!("{address} is server {} now, not {to}", greeted.reply.server);
            }
            Err(TransportError::Refused { .. }) => {
                if let Some(s) = shard.upgrade() {
                    s.link_changed(to, false);
                }
            }
            Err(e) => tracing::debug!("link to server {to}: {e}"),
        }
        tokio::time::sleep(RETRY).await;
    }
    if let Some(s) = shard.upgrade() {
        s.links.up.borrow_mut().remove(&to);
    }
}

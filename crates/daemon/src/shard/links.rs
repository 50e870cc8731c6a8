//! A set's connections to the servers of its other bricks: replication goes out on them.
//!
//! Made when first needed and made again when they break. What was queued when one broke is lost; the set is told when it
//! is up again and sends what is still wanted. Each set has its own, so that a thread over there that a disk holds up holds
//! up no other set.

use super::Shard;
use super::redial::Redial;
use crate::clock;
use crate::limits::CONNECT_WAIT;
use crate::shared::Shared;
use ids::{ServerId, SessionId, SetId};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::spawn_local;
use transport::{DirectSender, TransportError, connect};
use wire::Frame;
use wire::codec::Blob;
use wire::frame::VERSIONS;
use wire::hello::{Hello, Purpose};

/// A link that breaks sooner counts as one that did not come up: a server that is ending accepts it and closes it at once.
const BRIEF: Duration = Duration::from_secs(1);

/// A set's way to a server.
#[derive(Default)]
struct Link {
    sender: RefCell<Option<DirectSender>>,
    end: Notify,
}

/// The outgoing links of one shard.
pub(crate) struct Links {
    shared: Arc<Shared>,
    shard: Weak<Shard>,
    all: RefCell<HashMap<(SetId, ServerId), Rc<Link>>>,
    /// Servers that were dialled.
    dialled: RefCell<HashMap<ServerId, Rc<Dialled>>>,
}

/// What is known of dialling one server, and those who wait for it.
#[derive(Default)]
struct Dialled {
    redial: Cell<Redial>,
    answers: Notify,
}

impl Dialled {
    fn change<T>(&self, change: impl FnOnce(&mut Redial) -> T) -> T {
        let mut redial = self.redial.get();
        let done = change(&mut redial);
        self.redial.set(redial);
        done
    }

    /// Until it is this set's turn to dial.
    async fn turn(&self) {
        while let Err(at) = self.change(|r| r.may_dial(clock::now())) {
            tokio::select! {
                () = self.answers.notified() => {}
                () = tokio::time::sleep(at.saturating_sub(clock::now())) => {}
            }
        }
    }

    fn failed(&self) {
        self.change(|r| r.failed(clock::now()));
    }

    fn answered(&self) {
        self.change(Redial::answered);
        self.answers.notify_waiters();
    }
}

impl Links {
    pub(crate) fn new(shared: Arc<Shared>, shard: Weak<Shard>) -> Links {
        Links { shared, shard, all: RefCell::default(), dialled: RefCell::default() }
    }

    /// Sends a set's frame to a server, if its link is up; otherwise sees to it that it comes up.
    pub(crate) fn send(&self, to: ServerId, set: SetId, frame: Frame) {
        if let Some(link) = self.all.borrow().get(&(set, to)) {
            if let Some(sender) = link.sender.borrow().as_ref() {
                sender.send(frame);
            }
            return;
        }
        let link = Rc::<Link>::default();
        self.all.borrow_mut().insert((set, to), link.clone());
        let dialled = self.dialled.borrow_mut().entry(to).or_default().clone();
        let (shard, shared) = (self.shard.clone(), self.shared.clone());
        spawn_local(async move {
            tokio::select! {
                () = link.end.notified() => {}
                () = keep_up(&shard, &shared, (&link, &dialled), set, to) => forget(&shard, &link, set, to),
            }
        });
    }

    /// Bytes that wait for a set's link to a server.
    pub(crate) fn queued(&self, to: ServerId, set: SetId) -> usize {
        let all = self.all.borrow();
        all.get(&(set, to))
            .and_then(|link| link.sender.borrow().as_ref().map(DirectSender::queued))
            .unwrap_or(0)
    }

    /// Bytes that wait for the connections of a set.
    pub(crate) fn queued_of(&self, set: SetId) -> u64 {
        let all = self.all.borrow();
        let queued = |link: &Rc<Link>| link.sender.borrow().as_ref().map_or(0, DirectSender::queued);
        all.iter().filter(|((of, _), _)| *of == set).map(|(_, link)| queued(link) as u64).sum()
    }

    /// The sets that have a way to that server: what one of them learns of it the others do not ask for.
    fn sets_of(&self, server: ServerId) -> Vec<SetId> {
        self.all.borrow().keys().filter(|(_, to)| *to == server).map(|(set, _)| *set).collect()
    }

    /// The set is not served here any more.
    pub(crate) fn end(&self, set: SetId) {
        self.all.borrow_mut().retain(|(of, _), link| {
            let ends = *of == set;
            if ends {
                link.end.notify_one();
            }
            !ends
        });
    }
}

/// The server is not in the pool any more. Another link may have begun meanwhile.
fn forget(shard: &Weak<Shard>, link: &Rc<Link>, set: SetId, to: ServerId) {
    let Some(shard) = shard.upgrade() else { return };
    let mut all = shard.links.all.borrow_mut();
    if all.get(&(set, to)).is_some_and(|known| Rc::ptr_eq(known, link)) {
        all.remove(&(set, to));
    }
}

/// Keeps a link up while the server is in the pool.
async fn keep_up(
    shard: &Weak<Shard>,
    shared: &Shared,
    (link, dialled): (&Link, &Dialled),
    set: SetId,
    to: ServerId,
) {
    while let Some(address) = shared.state().servers.get(&to).map(|s| s.address.clone()) {
        let hello = Hello {
            versions: Blob(VERSIONS.to_vec()),
            // There it goes to the set's thread.
            purpose: Purpose::Peer { shard: u16::try_from(set.0).unwrap_or(u16::MAX) },
            pool: shared.pool(),
            from: shared.me(),
            session: SessionId(0),
        };
        dialled.turn().await;
        let made = async {
            let keys = shared.dials()?;
            let established = connect(&address, &hello, keys.as_ref(), CONNECT_WAIT).await?;
            let visit = shared.visit(&established, established.reply.server)?;
            Ok((established, visit))
        };
        match made.await {
            Ok((established, visit)) if established.reply.server == to => {
                dialled.answered();
                let (mut reader, writer, _) = established.split();
                let sender = DirectSender::new(writer);
                let Some(s) = shard.upgrade() else { return };
                let up = clock::now();
                link.sender.replace(Some(sender.clone()));
                s.link_changed(to, set, true);
                drop(s);
                // The other side never speaks on this connection: its end is all that can be read.
                let end = tokio::select! {
                    e = sender.drain() => Some(e),
                    r = reader.next() => r.err(),
                    () = visit.ended() => None,
                };
                link.sender.replace(None);
                if let Some(s) = shard.upgrade() {
                    let (set, why) = (s.state().named(set), end.unwrap_or(TransportError::Closed));
                    tracing::info!("{set}: the link to server {to} broke: {why}");
                }
                if clock::now().saturating_sub(up) >= BRIEF {
                    continue;
                }
            }
            Ok((established, _)) => {
                tracing::warn!("{address} is server {} now, not {to}", established.reply.server);
            }
            Err(TransportError::Refused { .. }) => {
                if let Some(s) = shard.upgrade() {
                    s.links.sets_of(to).into_iter().for_each(|set| s.link_changed(to, set, false));
                }
            }
            Err(e) => tracing::debug!("set {set}: link to server {to}: {e}"),
        }
        dialled.failed();
    }
}

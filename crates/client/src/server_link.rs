//! A server as the client uses it: where it is, and idle connections to it.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use client_core::connections::{Connections, Era};
use ids::{ServerId, SetId};
use wire::hello::Purpose;

use crate::address;
use crate::conn::{Broken, Conn, Intent};
use crate::sets::lock;
use crate::wait::Waiting;

/// Idle connections kept for one shard.
const IDLE_MAX: usize = 64;
/// Idle for longer than this, a connection is looked at before it is used.
const TRUSTED: Duration = Duration::from_secs(1);

/// The number of the next connection, of all of this process: so it grows for each session and server.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// A server.
pub(crate) struct ServerLink {
    /// Its number.
    pub server: ServerId,
    /// `host:port`.
    pub address: String,
    pool: Mutex<Pool>,
}

struct Pool {
    /// Connections that no call uses, by shard; the last one put back is the first one taken.
    idle: HashMap<u16, Vec<Conn>>,
    connections: Connections,
}

/// A connection in use.
pub(crate) struct Lent {
    pub conn: Conn,
    /// It was used before: if it is broken, that says little about the server.
    pub used: bool,
    /// What had become of connections to the server when this one was lent.
    pub era: Era,
    shard: u16,
}

impl ServerLink {
    pub(crate) fn new(server: ServerId, address: String) -> ServerLink {
        // Whatever another `ServerLink` of the same server had is given up with it.
        let connections = Connections::new(NEXT.load(Ordering::Acquire));
        ServerLink { server, address, pool: Mutex::new(Pool { idle: HashMap::new(), connections }) }
    }

    /// What has become of connections to the server.
    pub(crate) fn era(&self) -> Era {
        lock(&self.pool).connections.era()
    }

    /// A connection broke with a call on it.
    pub(crate) fn broke(&self, lent: Lent) {
        let mut pool = lock(&self.pool);
        if pool.connections.broke(lent.conn.number) {
            pool.idle.clear();
        }
    }

    /// Gives up a connection on which something was asked and not answered.
    pub(crate) fn give_up(&self, lent: Lent) {
        let mut pool = lock(&self.pool);
        if pool.connections.give_up(lent.conn.number) {
            pool.idle.clear();
        }
    }

    /// A connection for calls to `set`, idle or new.
    pub(crate) fn lend(&self, set: SetId, intent: &Intent, waiting: &Waiting<'_>) -> Result<Lent, Broken> {
        for _ in 0..3 {
            let shard = match self.take_idle(set) {
                Ok(lent) => return Ok(lent),
                Err(shard) => shard,
            };
            let lent = self.open(shard, intent, waiting)?;
            if lock(&self.pool).connections.shard(set) == shard {
                return Ok(lent);
            }
            self.put_back(lent);
        }
        Err(Broken::Refused("its number of shards keeps changing".to_owned()))
    }

    /// Whether the server still answers a handshake: it may be slow, but is not frozen.
    pub(crate) fn answers_handshake(
        &self,
        set: SetId,
        intent: &Intent,
        waiting: &Waiting<'_>,
    ) -> Result<(), Broken> {
        let shard = lock(&self.pool).connections.shard(set);
        self.put_back(self.open(shard, intent, waiting)?);
        Ok(())
    }

    fn open(&self, shard: u16, intent: &Intent, waiting: &Waiting<'_>) -> Result<Lent, Broken> {
        let addresses = address::resolve(&self.address)?;
        let numbered = lock(&self.pool).connections.begin(|| NEXT.fetch_add(1, Ordering::AcqRel));
        let purpose = Purpose::Session { shard, connection: numbered.number, oldest: numbered.oldest };
        let (conn, reply) = Conn::open(&addresses, intent, purpose, waiting)?;
        if reply.server != self.server {
            return Err(Broken::Refused(format!("it is server {} now, not {}", reply.server, self.server)));
        }
        let mut pool = lock(&self.pool);
        if pool.connections.handshake_done(reply.shards) {
            pool.idle.clear();
        }
        Ok(Lent { conn, used: false, era: pool.connections.era(), shard })
    }

    /// An idle connection for `set`, or the shard that one is needed to.
    fn take_idle(&self, set: SetId) -> Result<Lent, u16> {
        loop {
            let mut pool = lock(&self.pool);
            let shard = pool.connections.shard(set);
            let conn = pool.idle.get_mut(&shard).and_then(Vec::pop).ok_or(shard)?;
            let era = pool.connections.era();
            drop(pool);
            if conn.used.elapsed() < TRUSTED || conn.is_fresh() {
                return Ok(Lent { conn, used: true, era, shard });
            }
            lock(&self.pool).connections.idle_broke();
        }
    }

    /// Takes a connection back whose call was answered.
    pub(crate) fn put_back(&self, lent: Lent) {
        let Lent { mut conn, shard, .. } = lent;
        conn.used = Instant::now();
        let mut pool = lock(&self.pool);
        let given_up = pool.connections.is_given_up(conn.number);
        let stack = pool.idle.entry(shard).or_default();
        if stack.len() < IDLE_MAX && !given_up {
            stack.push(conn);
        }
    }

    /// Closes connections that were not used for `age`. With `keep` one of each shard stays: a server that sees none of a
    /// session for long takes it for gone, and its open files for closed.
    pub(crate) fn close_older(&self, age: Duration, keep: bool) {
        for stack in lock(&self.pool).idle.values_mut() {
            let newest = stack.iter().map(|conn| conn.used).max().filter(|_| keep);
            stack.retain(|conn| conn.used.elapsed() < age || Some(conn.used) == newest);
        }
    }
}

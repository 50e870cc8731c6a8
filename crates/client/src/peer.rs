//! A server as the client uses it: where it is, and idle connections to it.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::time::{Duration, Instant};

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
pub(crate) struct Peer {
    /// Its number.
    pub server: ServerId,
    /// `host:port`.
    pub address: String,
    /// Its shards; 0 until it told.
    shards: AtomicU16,
    /// Connections that no call uses, by shard; the last one put back is the first one taken.
    idle: Mutex<HashMap<u16, Vec<Conn>>>,
    /// Connections with numbers below this are given up: no call begins on them, and each new one tells the server.
    oldest: Mutex<u64>,
    /// Counts connections that broke: the server may have forgotten what sessions hold open.
    breaks: AtomicU64,
}

/// A connection in use.
pub(crate) struct Lent {
    pub conn: Conn,
    /// It was used before: if it is broken, that says little about the server.
    pub used: bool,
    shard: u16,
}

impl Peer {
    pub(crate) fn new(server: ServerId, address: String) -> Peer {
        Peer {
            server,
            address,
            shards: AtomicU16::new(0),
            idle: Mutex::default(),
            // Whatever another `Peer` of the same server had is given up with it.
            oldest: Mutex::new(NEXT.load(Ordering::Acquire)),
            breaks: AtomicU64::new(0),
        }
    }

    /// Changes whenever a connection to the server broke.
    pub(crate) fn era(&self) -> u64 {
        self.breaks.load(Ordering::Acquire)
    }

    /// A connection broke with a call on it: its sisters are most likely broken too.
    pub(crate) fn broke(&self, lent: Lent) {
        self.breaks.fetch_add(1, Ordering::AcqRel);
        self.give_up(lent);
    }

    /// Gives up a connection on which something was asked and not answered.
    ///
    /// The request may lie there and come in at any time. All connections so far are given up with it: the next one says
    /// so to the server before it carries a call, and nothing that lies on an older one is begun from then on. What others
    /// of this client ask there meanwhile is either answered or asked again.
    pub(crate) fn give_up(&self, lent: Lent) {
        let mut idle = lock(&self.idle);
        let mut oldest = lock(&self.oldest);
        if lent.conn.number >= *oldest {
            *oldest = NEXT.load(Ordering::Acquire);
            idle.clear();
        }
    }

    /// A connection for calls to `set`, idle or new.
    pub(crate) fn lend(&self, set: SetId, intent: Intent, waiting: &Waiting<'_>) -> Result<Lent, Broken> {
        for _ in 0..3 {
            let shards = self.shards.load(Ordering::Acquire);
            let shard = shard_of(set, shards.max(1));
            if let Some(conn) = self.take_idle(shard) {
                return Ok(Lent { conn, used: true, shard });
            }
            let (conn, told) = self.open(shard, intent, waiting)?;
            if shard_of(set, told) == shard {
                return Ok(Lent { conn, used: false, shard });
            }
            self.put_back(Lent { conn, used: true, shard });
        }
        Err(Broken::Refused("its number of shards keeps changing".to_owned()))
    }

    /// Whether the server still greets: it may be slow, but is not frozen.
    pub(crate) fn greets(&self, set: SetId, intent: Intent, waiting: &Waiting<'_>) -> Result<(), Broken> {
        let shard = shard_of(set, self.shards.load(Ordering::Acquire).max(1));
        let (conn, _) = self.open(shard, intent, waiting)?;
        self.put_back(Lent { conn, used: true, shard });
        Ok(())
    }

    fn open(&self, shard: u16, intent: Intent, waiting: &Waiting<'_>) -> Result<(Conn, u16), Broken> {
        let addresses = address::resolve(&self.address)?;
        let purpose = {
            let oldest = lock(&self.oldest);
            let connection = NEXT.fetch_add(1, Ordering::AcqRel);
            Purpose::Session { shard, connection, oldest: *oldest }
        };
        let (conn, reply) = Conn::open(&addresses, intent, purpose, waiting)?;
        if reply.server != self.server {
            return Err(Broken::Refused(format!("it is server {} now, not {}", reply.server, self.server)));
        }
        let told = reply.shards.max(1);
        if self.shards.swap(told, Ordering::AcqRel) != told {
            lock(&self.idle).clear();
        }
        Ok((conn, told))
    }

    fn take_idle(&self, shard: u16) -> Option<Conn> {
        loop {
            let conn = lock(&self.idle).get_mut(&shard).and_then(Vec::pop)?;
            if conn.used.elapsed() < TRUSTED || conn.is_fresh() {
                return Some(conn);
            }
            self.breaks.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Takes a connection back whose call was answered.
    pub(crate) fn put_back(&self, lent: Lent) {
        let Lent { mut conn, shard, .. } = lent;
        conn.used = Instant::now();
        let mut idle = lock(&self.idle);
        let given_up = conn.number < *lock(&self.oldest);
        let stack = idle.entry(shard).or_default();
        if stack.len() < IDLE_MAX && !given_up {
            stack.push(conn);
        }
    }

    /// Closes connections that were not used for `age`. With `keep` one of each shard stays: a server that sees none of a
    /// session for long takes it for gone, and its open files for closed.
    pub(crate) fn close_older(&self, age: Duration, keep: bool) {
        for stack in lock(&self.idle).values_mut() {
            let newest = stack.iter().map(|conn| conn.used).max().filter(|_| keep);
            stack.retain(|conn| conn.used.elapsed() < age || Some(conn.used) == newest);
        }
    }
}

fn shard_of(set: SetId, shards: u16) -> u16 {
    u16::try_from(set.0 % u32::from(shards.max(1))).unwrap_or(0)
}

//! The network between servers: one connection per directed pair, which breaks, blocks, delays and reorders.

use crate::log::say;
use crate::server::{PeerMessage, ToServer};
use crate::world::{Event, World, brick_id, server_of};
use core::time::Duration;

/// A connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Link {
    /// Nothing gets through until it is made again.
    pub(crate) broken: bool,
    /// It cannot be made now.
    pub(crate) blocked: bool,
    /// When the last message arrives.
    last: Duration,
    asked: bool,
}

impl World {
    fn link(&mut self, from: usize, to: usize) -> &mut Link {
        &mut self.links[from][to]
    }

    /// A delay between two servers: mostly near the run's pace, now and then far from it.
    pub(crate) fn net_delay(&mut self, from: Option<usize>, to: Option<usize>) -> Duration {
        let base = self.pace.net;
        let mut delay = self.rng.between(base / 4, base * 2);
        if self.rng.chance(10) {
            delay += self.rng.millis(1, 120);
        }
        for s in [from, to].into_iter().flatten() {
            delay += self.servers[s].slow;
        }
        delay
    }

    /// Sends a message from one brick to another.
    pub(crate) fn send_peer(&mut self, from: usize, message: PeerMessage) {
        let to = server_of(message.to);
        let drops = if self.calm { 0 } else { self.pace.drops };
        if !self.link(from, to).broken && (self.link(from, to).blocked || self.rng.chance(drops)) {
            self.break_link(from, to);
        }
        if self.link(from, to).broken || !self.servers[to].alive {
            self.break_link(from, to);
            return;
        }
        let mut when = self.now + self.net_delay(Some(from), Some(to));
        if !self.pace.reorder || message.body.is_healing() || self.is_out(message.set, message.to) {
            when = when.max(self.link(from, to).last + Duration::from_nanos(1));
        }
        let last = self.link(from, to).last.max(when);
        self.link(from, to).last = last;
        let inc = self.servers[to].inc;
        self.at(when, Event::Server { server: to, inc, what: ToServer::Peer(message) });
    }

    /// Whether the brick heals, as far as its own process knows.
    fn is_out(&mut self, set: usize, brick: ids::BrickId) -> bool {
        let replica = self.brick(server_of(brick), set).and_then(|b| b.replica.as_ref());
        replica.is_some_and(|r| !r.view().in_sync.contains(&brick))
    }

    /// What was sent still arrives; nothing more does until the connection is made again.
    pub(crate) fn break_link(&mut self, from: usize, to: usize) {
        let link = self.link(from, to);
        link.broken = true;
        // Messages of the next connection may overtake those of this one.
        link.last = Duration::ZERO;
        if !link.asked {
            link.asked = true;
            let delay = self.rng.millis(5, 250);
            self.after(delay, Event::Reconnect { from, to });
        }
    }

    pub(crate) fn reconnect(&mut self, from: usize, to: usize) {
        self.link(from, to).asked = false;
        if !self.servers[from].alive {
            return;
        }
        if self.link(from, to).blocked || !self.servers[to].alive {
            if !self.link(from, to).blocked && self.servers[to].refuses && self.rng.chance(500) {
                self.tell_link(from, to, false);
                self.send_store(from, crate::store::ToStore::Suspect(to));
            }
            self.break_link(from, to);
            return;
        }
        self.link(from, to).broken = false;
        say!(self, "link {from}->{to} is made");
        self.tell_link(from, to, true);
    }

    fn tell_link(&mut self, from: usize, to: usize, up: bool) {
        let inc = self.servers[from].inc;
        for set in 0..self.sets.len() {
            if self.sets[set].servers.contains(&from) && self.sets[set].servers.contains(&to) {
                let what = ToServer::Link { set, peer: brick_id(set, to), up };
                self.after(Duration::ZERO, Event::Server { server: from, inc, what });
            }
        }
    }
}

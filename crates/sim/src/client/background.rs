//! What befalls a client beside its calls: its background thread, new maps, and its end.

use super::{AT_ONCE, Caller, Server};
use crate::network::Node;
use crate::trace::say;
use crate::world::World;
use bytes::Bytes;
use client_core::connections::Connections;
use client_core::exchange::{Exchange, Failure, Target};
use client_core::routes::{Offer, Routes};
use client_core::set::ReclaimMark;
use core::time::Duration;
use wire::map::VolumeMap;

impl World {
    /// The background thread: sets that may have forgotten hear what is open, and closed files are released.
    pub(super) fn keep(&mut self, c: usize) {
        let now = self.client_now(c);
        let client = &mut self.clients[c];
        let targets: Vec<Target> = match &client.routes {
            Some(routes) => routes.iter().filter_map(|r| client.target(r.set)).collect(),
            None => return,
        };
        for target in targets {
            let client = &mut self.clients[c];
            if client.tasks.values().any(|t| t.caller == Caller::Nobody && t.set == target.set) {
                continue;
            }
            let (timeout, first) = (client.timeout, client.next_number);
            let new = || Server { connections: Connections::new(first), idle: Vec::new() };
            let era = client.servers.entry(target.server).or_insert_with(new).connections.era();
            let mark = ReclaimMark { epoch: target.epoch, server: target.server, era };
            let state = client.set(target.set);
            let exchange = if state.wants_reclaim(mark) {
                Exchange::reclaim(target, timeout, Duration::ZERO)
            } else {
                let fids = state.take_releases(AT_ONCE);
                if fids.is_empty() {
                    continue;
                }
                Exchange::release(target, timeout, Duration::ZERO, fids)
            };
            let id = self.add_task(c, Caller::Nobody, target.set, None, Bytes::new(), now);
            self.begin_exchange(c, id, exchange);
        }
    }

    /// A newer map comes: exchanges with servers that do not serve any more end.
    pub(super) fn on_map(&mut self, c: usize, map: &VolumeMap) {
        let client = &mut self.clients[c];
        if client.routes.as_ref().is_some_and(|routes| routes.consider(map) != Offer::Take) {
            return;
        }
        let routes = Routes::new(map);
        let moved: Vec<(u64, u64)> = client
            .tasks
            .iter()
            .filter_map(|(id, task)| Some((id, task.running.as_ref()?)))
            .filter(|(_, running)| running.exchange.target().has_moved(&routes))
            .map(|(id, running)| (*id, running.number))
            .collect();
        let paused: Vec<u64> = client.tasks.iter().filter(|(_, t)| t.pausing).map(|(id, _)| *id).collect();
        client.routes = Some(routes);
        for (id, number) in moved {
            self.fail_exchange(c, id, number, Failure::Moved);
        }
        for id in paused {
            self.pause(c, id, Duration::ZERO);
        }
        self.keep(c);
    }

    /// Whoever made a call gives up.
    pub(crate) fn interrupt(&mut self, c: usize) {
        let all: Vec<(u64, u64)> = self.clients[c]
            .tasks
            .iter()
            .filter(|(_, task)| task.caller != Caller::Nobody)
            .filter_map(|(id, task)| Some((*id, task.running.as_ref()?.number)))
            .collect();
        if let Some((id, number)) = self.rng.pick(&all).copied() {
            self.count("call interrupted");
            self.fail_exchange(c, id, number, Failure::Interrupted);
        }
    }

    /// A client dies: nobody waits for its calls any more, and what it sent may still arrive.
    pub(crate) fn kill_client(&mut self, c: usize) {
        say!(self, "client {c} dies");
        self.clients[c].alive = false;
        self.close_all(Node::Client(c), 0, false);
        self.history.died(c, self.now);
    }
}

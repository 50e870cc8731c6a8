//! The volume's map as the client routes by it.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use client_core::exchange::Target;
use client_core::routes::{self, Routes};
use ids::{Epoch, ServerId, SetId};
use rustix::event::{EventfdFlags, eventfd};
use wire::map::VolumeMap;

use crate::server_link::ServerLink;
use crate::sets::SharedSet;

/// Who serves a set, by one map.
#[derive(Clone)]
pub(crate) struct Route {
    pub epoch: Epoch,
    /// The server of its primary; none while no brick may serve.
    pub peer: Option<Arc<ServerLink>>,
    pub state: Arc<SharedSet>,
}

impl Route {
    /// What an exchange with the primary is with.
    pub(crate) fn target(&self, peer: &ServerLink) -> Target {
        Target { set: self.state.set, epoch: self.epoch, server: peer.server }
    }
}

/// One map and what belongs to it.
pub(crate) struct Generation {
    pub map: VolumeMap,
    /// Calls that take longer are told of.
    pub slow: Duration,
    /// Who serves what, by the map.
    pub by_map: Routes,
    /// The same with what the client keeps, by set number.
    routes: Vec<(SetId, Route)>,
    peers: HashMap<ServerId, Arc<ServerLink>>,
    /// Readable, and so for ever, from when a newer map holds.
    over: OwnedFd,
}

impl Generation {
    /// A map, with what the client knew before of its sets and servers.
    pub(crate) fn new(map: VolumeMap, before: Option<&Generation>) -> std::io::Result<Generation> {
        let mut peers = HashMap::new();
        for s in &map.servers {
            let address = String::from_utf8_lossy(&s.address.0).into_owned();
            let known = before.and_then(|b| b.peers.get(&s.server)).filter(|p| p.address == address);
            let peer = known.cloned().unwrap_or_else(|| Arc::new(ServerLink::new(s.server, address)));
            peers.insert(s.server, peer);
        }
        let by_map = Routes::new(&map);
        let with_memory = |route: &routes::Route| {
            let known = before.and_then(|b| b.route(route.set)).map(|r| Arc::clone(&r.state));
            let state = known.unwrap_or_else(|| Arc::new(SharedSet::new(route.set)));
            let peer = route.server.and_then(|server| peers.get(&server)).cloned();
            (route.set, Route { epoch: route.epoch, peer, state })
        };
        let routes = by_map.iter().map(with_memory).collect();
        let over = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let slow = crate::slow::limit(|key| map.option(key));
        Ok(Generation { map, slow, by_map, routes, peers, over })
    }

    /// Who serves `set`.
    pub(crate) fn route(&self, set: SetId) -> Option<&Route> {
        let at = self.routes.binary_search_by_key(&set, |(s, _)| *s).ok()?;
        self.routes.get(at).map(|(_, route)| route)
    }

    /// Who serves `set`, and the server of its primary.
    pub(crate) fn primary(&self, set: SetId) -> Option<(&Route, &Arc<ServerLink>)> {
        let route = self.route(set)?;
        Some((route, route.peer.as_ref()?))
    }

    /// All sets.
    pub(crate) fn sets(&self) -> impl Iterator<Item = &Route> {
        self.routes.iter().map(|(_, route)| route)
    }

    /// All sets that have a primary, and its server.
    pub(crate) fn primaries(&self) -> impl Iterator<Item = (&Route, &Arc<ServerLink>)> {
        self.sets().filter_map(|route| Some((route, route.peer.as_ref()?)))
    }

    /// All servers.
    pub(crate) fn peers(&self) -> impl Iterator<Item = &Arc<ServerLink>> {
        self.peers.values()
    }

    /// Readable once a newer map holds.
    pub(crate) fn over(&self) -> BorrowedFd<'_> {
        self.over.as_fd()
    }

    /// Wakes whoever waits for a newer map.
    pub(crate) fn end(&self) {
        wake(self.over.as_fd());
    }
}

/// Makes an eventfd readable.
pub(crate) fn wake(fd: BorrowedFd<'_>) {
    // Any number but 0 will do, so the order of its bytes does not matter.
    if let Err(e) = rustix::io::write(fd, &[1, 0, 0, 0, 0, 0, 0, 0]) {
        tracing::debug!("eventfd: {e}");
    }
}

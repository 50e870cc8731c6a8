//! Who serves each set of a volume, by the newest map.
//!
//! What must always be true: a map is replaced only by a newer one of the same pool and volume.

use alloc::vec::Vec;

use ids::{Epoch, ServerId, SetId, VolumeId};
use wire::map::VolumeMap;

use crate::call::Known;

/// Who serves a set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route {
    /// The set.
    pub set: SetId,
    /// The epoch of its view.
    pub epoch: Epoch,
    /// Changes of earlier epochs are there only if they were synced.
    pub lost_before: Epoch,
    /// The server of its primary; none while no brick may serve.
    pub server: Option<ServerId>,
}

/// What to do with a map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Offer {
    /// It replaces the one that held so far.
    Take,
    /// It is not newer.
    Old,
    /// Another pool or volume answers under the old name.
    Foreign,
}

/// All sets, by one map.
#[derive(Clone, Debug)]
pub struct Routes {
    version: u64,
    pool: [u8; 16],
    volume: VolumeId,
    started: bool,
    /// By set number.
    routes: Vec<Route>,
}

impl Routes {
    /// What a map says.
    pub fn new(map: &VolumeMap) -> Routes {
        let is_there = |server: &ServerId| map.servers.iter().any(|s| s.server == *server);
        let mut routes: Vec<Route> = map
            .sets
            .iter()
            .map(|view| Route {
                set: view.set,
                epoch: view.epoch,
                lost_before: view.lost_before,
                server: view.primary.filter(is_there),
            })
            .collect();
        routes.sort_by_key(|route| route.set);
        let VolumeMap { version, pool, volume, started, .. } = *map;
        Routes { version, pool, volume, started, routes }
    }

    /// Whether `map` replaces this one.
    pub fn consider(&self, map: &VolumeMap) -> Offer {
        if map.version <= self.version {
            Offer::Old
        } else if map.pool != self.pool || map.volume != self.volume {
            Offer::Foreign
        } else {
            Offer::Take
        }
    }

    /// The version of the map.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Whether the volume is started.
    pub fn is_started(&self) -> bool {
        self.started
    }

    /// Who serves `set`.
    pub fn get(&self, set: SetId) -> Option<&Route> {
        let at = self.routes.binary_search_by_key(&set, |route| route.set).ok()?;
        self.routes.get(at)
    }

    /// All sets, by number.
    pub fn iter(&self) -> impl Iterator<Item = &Route> {
        self.routes.iter()
    }

    /// Before which epoch unsynced changes of the set are lost.
    pub fn lost_before(&self, set: SetId) -> Epoch {
        self.get(set).map_or(Epoch(0), |route| route.lost_before)
    }

    /// What the map says to a call of the set.
    pub fn known(&self, set: SetId) -> Known {
        match self.get(set) {
            _ if !self.started => Known::NotStarted,
            None => Known::NoSet,
            Some(Route { server: None, .. }) => Known::NoPrimary(self.version),
            Some(Route { server: Some(_), .. }) => Known::Primary(self.version),
        }
    }

    /// Whether the set has moved away from `server`, which served it in `epoch`: its answer is not waited for any more.
    pub fn has_moved(&self, set: SetId, epoch: Epoch, server: ServerId) -> bool {
        self.get(set).is_some_and(|route| route.epoch > epoch && route.server != Some(server))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use ids::Fid;
    use wire::codec::Blob;
    use wire::map::{ServerAddress, SetView};

    fn map(version: u64, sets: &[(u32, u32, Option<u64>)]) -> VolumeMap {
        let view = |(set, epoch, primary): &(u32, u32, Option<u64>)| SetView {
            set: SetId(*set),
            epoch: Epoch(*epoch),
            lost_before: Epoch(0),
            primary: primary.map(ServerId),
        };
        let address = |n| ServerAddress { server: ServerId(n), address: Blob(vec![b'h']) };
        VolumeMap {
            version,
            pool: [7; 16],
            volume: VolumeId(1),
            root: Fid::root(SetId(1)),
            started: true,
            sets: sets.iter().map(view).collect(),
            servers: vec![address(1), address(2)],
            options: Vec::new(),
        }
    }

    #[test]
    fn only_a_newer_map_of_the_same_volume_is_taken() {
        let routes = Routes::new(&map(5, &[]));
        assert_eq!(routes.consider(&map(5, &[])), Offer::Old);
        assert_eq!(routes.consider(&map(4, &[])), Offer::Old);
        assert_eq!(routes.consider(&map(6, &[])), Offer::Take);
        assert_eq!(routes.consider(&VolumeMap { pool: [8; 16], ..map(6, &[]) }), Offer::Foreign);
        assert_eq!(routes.consider(&VolumeMap { volume: VolumeId(2), ..map(6, &[]) }), Offer::Foreign);
    }

    #[test]
    fn calls_hear_who_serves_their_set() {
        let routes = Routes::new(&map(3, &[(9, 1, None), (2, 4, Some(1)), (5, 1, Some(77))]));
        assert_eq!(routes.known(SetId(2)), Known::Primary(3));
        assert_eq!(routes.known(SetId(9)), Known::NoPrimary(3));
        assert_eq!(routes.known(SetId(5)), Known::NoPrimary(3), "a server without an address");
        assert_eq!(routes.known(SetId(1)), Known::NoSet);
        assert_eq!(routes.iter().map(|r| r.set.0).collect::<Vec<_>>(), [2, 5, 9]);
        let stopped = Routes::new(&VolumeMap { started: false, ..map(3, &[(2, 4, Some(1))]) });
        assert_eq!(stopped.known(SetId(2)), Known::NotStarted);
        assert_eq!(stopped.known(SetId(1)), Known::NotStarted);
    }

    #[test]
    fn a_set_has_moved_when_a_later_view_names_another_server() {
        let moved = |view| Routes::new(&map(3, &[view])).has_moved(SetId(2), Epoch(4), ServerId(1));
        assert!(!moved((2, 4, Some(2))), "a view has one primary: this cannot be");
        assert!(!moved((2, 5, Some(1))), "it serves on");
        assert!(moved((2, 5, Some(2))));
        assert!(moved((2, 5, None)));
        assert!(!moved((3, 9, Some(2))), "nothing is known");
    }
}

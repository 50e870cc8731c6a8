//! The map of a volume: by it clients route.

use crate::settings::{pool_bytes, root_set};
use cluster::{Set, State, Status};
use ids::Fid;
use wire::codec::Blob;
use wire::map::{ServerAddress, SetView, VolumeMap};

fn blob(s: &str) -> Blob {
    Blob(s.as_bytes().to_vec())
}

/// What clients of a volume have to know of the pool's state. `None`: the pool has no such volume.
pub fn volume_map(state: &State, name: &str) -> Option<VolumeMap> {
    let volume = state.volume(name)?;
    let view = |set: &Set| SetView {
        set: set.id,
        epoch: set.view.epoch,
        lost_before: set.lost_before,
        primary: set.view.primary.and_then(|p| set.brick(p)).map(|b| b.server),
    };
    Some(VolumeMap {
        version: state.version,
        pool: pool_bytes(state),
        volume: volume.id,
        root: Fid::root(root_set(volume)),
        started: volume.status == Status::Started,
        sets: state.sets_of(volume).map(view).collect(),
        servers: state
            .servers
            .values()
            .map(|s| ServerAddress { server: s.id, address: blob(&s.address) })
            .collect(),
        options: volume.options.iter().map(|(k, v)| (blob(k), blob(v))).collect(),
    })
}

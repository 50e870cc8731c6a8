//! From the pool's state to what a brick needs to know.

use brick::Options;
use cluster::{Brick, Set, State, Volume};
use disk_format::Identity;
use ids::{Fid, SetId};

/// Whose a brick is.
pub(crate) fn identity(pool: [u8; 16], volume: &Volume, set: &Set, brick: &Brick) -> Identity {
    let root_home = root_set(volume);
    Identity {
        pool,
        volume: volume.id,
        set: set.id,
        brick: brick.id,
        arbiter: brick.arbiter,
        volume_name: volume.name.clone(),
        root: Fid::root(root_home),
        root_home,
    }
}

/// The set that holds the volume's root directory.
pub(crate) fn root_set(volume: &Volume) -> SetId {
    volume.sets.first().copied().unwrap_or_default()
}

/// How a brick is run.
pub(crate) fn options(volume: &Volume) -> Options {
    let set = volume.typed_options();
    Options {
        fd_limit: usize::try_from(set.fd_limit).unwrap_or(usize::MAX),
        journal_size: set.journal_size,
        ..Options::default()
    }
}

/// How many bricks of a set must be in sync for changes.
pub(crate) fn quorum(volume: &Volume) -> usize {
    volume.write_quorum() as usize
}

/// The pool's id in bytes.
pub(crate) fn pool_bytes(state: &State) -> [u8; 16] {
    cluster::hex::decode(&state.pool).unwrap_or(0).to_le_bytes()
}

//! From the pool's state to what a server, a set and a brick need to know.

use brick::Options;
use cluster::options::{self, Rebalance, VolumeOptions};
use cluster::{Brick, Set, State, Status, Volume};
use disk_format::Identity;
use ids::{BrickId, Fid, ServerId, SetId, Time};
use replica::View;
use set_core::{RebalanceSettings, RebalanceState, RebalanceThrottle, Settings, StripeSettings};
use std::collections::BTreeMap;

/// The bricks that a server serves: those of started volumes, by their sets.
pub fn bricks_to_open(state: &State, me: ServerId) -> BTreeMap<SetId, BrickId> {
    let started = |s: &Set| state.volumes.get(&s.volume).is_some_and(|v| v.status == Status::Started);
    let mut open = BTreeMap::new();
    for (set, brick) in state.bricks_of(me).filter(|(s, _)| started(s)) {
        open.entry(set.id).or_insert(brick.id);
    }
    open
}

/// Whose a brick is.
pub fn identity(pool: [u8; 16], volume: &Volume, set: &Set, brick: &Brick) -> Identity {
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
pub fn root_set(volume: &Volume) -> SetId {
    volume.sets.first().copied().unwrap_or_default()
}

/// Since when a volume has its root: what all its bricks begin with.
pub fn made(volume: &Volume) -> Time {
    Time { sec: i64::try_from(volume.created).unwrap_or(i64::MAX), nsec: 0 }
}

/// How a brick is run: what the volume's options say, the rest from `base`.
pub fn brick_options(volume: &Volume, base: &Options) -> Options {
    let set = volume.typed_options();
    Options {
        fd_limit: usize::try_from(set.fd_limit).unwrap_or(usize::MAX),
        journal_size: set.journal_size,
        ..base.clone()
    }
}

/// What a set has to know of the pool's state. `None`: the pool has no such set.
pub fn settings(state: &State, set: SetId) -> Option<Settings> {
    let set = state.sets.get(&set)?;
    let volume = state.volumes.get(&set.volume)?;
    let options = volume.typed_options();
    let led = |s: &SetId| state.sets.get(s).is_some_and(|s| s.view.primary.is_some());
    Some(Settings {
        name: state.named_set(set).to_string(),
        view: View {
            epoch: set.view.epoch,
            primary: set.view.primary,
            in_sync: set.view.in_sync.clone(),
            arbiters: set.bricks.iter().filter(|b| b.arbiter).map(|b| b.id).collect(),
            leaving: set.bricks.iter().filter(|b| b.leaving).map(|b| b.id).collect(),
            lost_before: set.lost_before,
            quorum: volume.write_quorum(set.copies()) as usize,
        },
        members: set.bricks.iter().map(|b| (b.id, b.server)).collect(),
        min_free_percent: options.min_free_disk.into(),
        read_only: options.read_only,
        sync_interval: options.sync_interval,
        sets: volume.sets.iter().map(|s| (*s, led(s))).collect(),
        rebalance: rebalance(&options, volume, set.id),
        large: Some(options.large_file_size).filter(|size| *size > 0),
        stripes: (state.level >= cluster::FILES_ARE_STRIPED && options.stripe_count > 1)
            .then_some(StripeSettings { count: options.stripe_count, unit: options.stripe_size }),
        level: state.level,
    })
}

/// Whether files of a set move to others.
fn rebalance(options: &VolumeOptions, volume: &Volume, set: SetId) -> RebalanceSettings {
    let state = match options.rebalance {
        Rebalance::Off => RebalanceState::Off,
        Rebalance::On => RebalanceState::On,
        Rebalance::Paused => RebalanceState::Paused,
    };
    let throttle = match options.rebalance_throttle {
        options::RebalanceThrottle::Gentle => RebalanceThrottle::Gentle,
        options::RebalanceThrottle::Normal => RebalanceThrottle::Normal,
        options::RebalanceThrottle::Fast => RebalanceThrottle::Fast,
    };
    // One set has to take what is new, whatever the option says.
    let one_stays = volume.sets.iter().any(|s| !options.drain.contains(s));
    RebalanceSettings { state, throttle, drains: one_stays && options.drain.contains(&set) }
}

/// The pool's id in bytes.
pub fn pool_bytes(state: &State) -> [u8; 16] {
    cluster::hex::decode(&state.pool).unwrap_or(0).to_le_bytes()
}

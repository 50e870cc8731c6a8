//! The pool of a run: its servers, its volume and the volume's sets, made by the commands that an administrator gives.

use crate::disk::Disk;
use crate::rng::Prng;
use crate::store::server_id;
use crate::stripes::{Settings, UNIT};
use crate::{Config, Family};
use cluster::{BrickSpec, Command, NewServer, NewVolume, OptionChange, State, hex};
use ids::{Fid, SetId};
use std::collections::BTreeMap;
use wire::map::VolumeMap;

/// The name of the one volume.
const VOLUME: &str = "v";

fn apply(state: &mut State, command: &Command) {
    let done = state.apply(command);
    assert!(done.is_ok(), "{command:?}: {done:?}");
}

/// How a server proves that it is the one that the pool knows.
pub(crate) fn identity(machine: usize) -> String {
    hex::encode(machine as u128 + 1000)
}

/// Draws a pool of so many servers. `successions`: each brick has another one that may succeed it.
pub(crate) fn draw(rng: &mut Prng, servers: usize, config: &Config) -> State {
    let mut state = State::default();
    for m in 0..servers {
        let server = NewServer {
            identity: identity(m),
            host: format!("h{m}"),
            address: format!("10.0.0.{}:24240", m + 1),
        };
        let first = Command::InitPool { pool: hex::encode(7), server: server.clone() };
        apply(&mut state, &if m == 0 { first } else { Command::AddServer(server) });
    }
    let replica = if config.successions { 2 + rng.below(2) } else { 1 + rng.below(servers.min(3)) };
    let arbiter = usize::from(replica == 3 && rng.chance(400));
    let sets = 1 + rng.below(3);
    // With three sets a directory may live on neither of two between which its entry moves.
    let sets = if config.faults.contains(&Family::Directories) { 3 } else { sets };
    let sets = if config.faults.contains(&Family::Stripes) { sets.max(2) } else { sets };
    let mut bricks = Vec::new();
    for set in 0..sets {
        let first = rng.below(servers);
        for i in 0..replica {
            let server = server_id((first + i) % servers);
            bricks.push(BrickSpec { server, path: format!("/s{set}b{i}") });
        }
    }
    apply(
        &mut state,
        &Command::CreateVolume(NewVolume {
            name: VOLUME.to_owned(),
            replica: u32::try_from(replica).unwrap_or(1),
            arbiter: u32::try_from(arbiter).unwrap_or(0),
            bricks,
            force: true,
            created: 1,
            expect_brick: None,
            options: BTreeMap::new(),
        }),
    );
    apply(&mut state, &Command::StartVolume { name: VOLUME.to_owned() });
    apply(&mut state, &Command::RaiseLevel { level: cluster::LEVEL });
    state
}

/// From how many bytes on files are placed by room; 0: never.
pub(crate) fn set_large(state: &mut State, bytes: u64) {
    set_option(state, "cluster.large-file-size", bytes);
}

/// Files have parts on several sets when they grow large.
pub(crate) fn set_stripes(state: &mut State, settings: Settings) {
    set_option(state, "cluster.large-file-size", settings.large);
    set_option(state, "cluster.stripe-count", settings.count);
    set_option(state, "cluster.stripe-size", UNIT);
}

fn set_option(state: &mut State, key: &str, value: u64) {
    let (volume, key) = (VOLUME.to_owned(), key.to_owned());
    let changes = vec![OptionChange { volume, key, value: Some(value.to_string()) }];
    apply(state, &Command::SetOptions { changes });
}

/// Makes the directory of a brick a brick, as its server does when a volume is made.
pub(crate) fn format(state: &State, set: &cluster::Set, brick: &cluster::Brick, disk: &Disk) {
    let Some(volume) = state.volumes.get(&set.volume) else { return };
    let identity = server_core::identity(server_core::pool_bytes(state), volume, set, brick);
    let made = brick::format_on(disk.fs(), disk.path(), &identity, server_core::made(volume));
    assert!(made.is_ok(), "{made:?}");
    disk.sync_all();
}

/// The root directory, and the set that answers for it.
pub(crate) fn root(state: &State) -> (Fid, SetId) {
    let set = state.volume(VOLUME).map_or(SetId(0), server_core::root_set);
    (Fid::root(set), set)
}

/// The map that clients route by.
pub(crate) fn map(state: &State) -> Option<VolumeMap> {
    server_core::volume_map(state, VOLUME)
}

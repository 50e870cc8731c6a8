//! A deleted volume is made again of its bricks.

use super::Control;
use super::answers::{conflict, failed, not_found, refused};
use super::protocol::{Request, Response};
use super::volumes::resolve;
use crate::limits::ADMIN_WAIT;
use admin::{AdminError, VolumeImport, VolumeImported};
use cluster::{Command, Retired, State};
use disk_format::Identity;
use ids::{BrickId, ServerId};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Why bricks are not there.
type Missing = BTreeMap<BrickId, String>;

impl Control {
    pub(super) async fn volume_import(&self, request: VolumeImport) -> Result<VolumeImported, AdminError> {
        let VolumeImport { name, bricks, force } = request;
        let _one = self.changing.lock().await;
        let state = self.linearizable().await?;
        let retired = match bricks.is_empty() {
            true => retired(&state, &name)?,
            false => retired_of(&state, &bricks)?,
        };
        let name = retired.volume.name.clone();
        let missing = self.missing_bricks(&state, retired).await;
        let all = retired.sets.iter().flat_map(|s| &s.bricks);
        let present: BTreeSet<BrickId> = all.map(|b| b.id).filter(|b| !missing.contains_key(b)).collect();
        let command = Command::ImportVolume { volume: retired.volume.id, present };
        let named = name_missing(&state, retired, &missing);
        let refused = |e| {
            let mut error = refused(&e);
            error.message = [std::slice::from_ref(&error.message), &named].concat().join("\n");
            error
        };
        (*state).clone().apply(&command).map_err(refused)?;
        if !named.is_empty() && !force {
            return Err(conflict(format!(
                "volume {name} is not complete: bring its bricks back, or import it without them (--force) and give them up \
                 or replace them later (mortar volume replace-brick)\n{}",
                named.join("\n")
            )));
        }
        self.propose(command).await?;
        Ok(VolumeImported { name, missing: named })
    }

    /// Asks all servers for their bricks.
    async fn missing_bricks(&self, state: &State, retired: &Retired) -> Missing {
        let mut missing = Missing::new();
        let bricks = || retired.sets.iter().flat_map(|s| &s.bricks);
        let servers: BTreeSet<ServerId> = bricks().map(|b| b.server).collect();
        for id in servers {
            let Some(server) = state.servers.get(&id) else { continue };
            let request = Request::LookForBricks { volume: Box::new(retired.clone()) };
            let why = match self.peers.ask(&server.address, &request, ADMIN_WAIT).await {
                Ok(Response::MissingBricks(there)) => {
                    missing.extend(there);
                    continue;
                }
                Ok(Response::Error(e)) => e,
                Err(e) => e.to_string(),
                Ok(_) => format!("{}: it gave an unexpected answer", server.address),
            };
            missing.extend(bricks().filter(|b| b.server == id).map(|b| (b.id, why.clone())));
        }
        missing
    }

    /// Which bricks of a deleted volume are not on this server as they should be.
    pub(super) async fn look_for_bricks(&self, retired: Retired) -> Result<Missing, AdminError> {
        let (me, pool) = (self.shared.me(), server_core::pool_bytes(&self.state()));
        let look = move || {
            let Retired { volume, sets } = &retired;
            let mine = sets.iter().flat_map(|s| s.bricks.iter().map(move |b| (s, b)));
            let wrong = |(set, b): (_, &cluster::Brick)| {
                let identity = server_core::identity(pool, volume, set, b);
                Some((b.id, what_is_wrong(Path::new(&b.path), &identity)?))
            };
            mine.filter(|(_, b)| b.server == me).filter_map(wrong).collect()
        };
        tokio::task::spawn_blocking(look).await.map_err(|e| failed(e.to_string()))
    }
}

/// The deleted volume of that name.
pub(super) fn retired<'a>(state: &'a State, name: &str) -> Result<&'a Retired, AdminError> {
    state.retired(name).ok_or_else(|| {
        let there = if state.volume(name).is_some() { "; the volume exists" } else { "" };
        not_found(format!("this pool has no deleted volume {name}{there}; {}", importable(state)))
    })
}

/// The deleted volume of all these bricks.
fn retired_of<'a>(state: &'a State, bricks: &[String]) -> Result<&'a Retired, AdminError> {
    state.retired_at(&resolve(state, bricks)?).ok_or_else(|| {
        let bricks = bricks.join(", ");
        not_found(format!("this pool has no deleted volume of {bricks}; {}", importable(state)))
    })
}

fn importable(state: &State) -> String {
    let known: BTreeSet<&str> = state.retired.values().map(|r| r.volume.name.as_str()).collect();
    let known: Vec<&str> = known.into_iter().collect();
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    format!("those that can be imported: {known}")
}

fn name_missing(state: &State, retired: &Retired, missing: &Missing) -> Vec<String> {
    let bricks = retired.sets.iter().flat_map(|s| &s.bricks);
    let line = |b: &cluster::Brick| Some(format!("brick {}: {}", state.brick_name(b), missing.get(&b.id)?));
    bricks.filter_map(line).collect()
}

/// Why a directory is not the brick; `None`: it is.
fn what_is_wrong(path: &Path, expected: &Identity) -> Option<String> {
    match brick::read_identity(path) {
        Ok(Some(i))
            if (i.pool, i.volume, i.set, i.brick)
                == (expected.pool, expected.volume, expected.set, expected.brick) =>
        {
            None
        }
        Ok(Some(i)) if i.pool != expected.pool => Some(format!(
            "it is a brick of volume {} of another pool: bring the right directory there",
            i.volume_name
        )),
        Ok(Some(i)) => Some(format!(
            "it is brick {} of volume {} (number {}): bring the right directory there",
            i.brick, i.volume_name, i.volume
        )),
        Ok(None) if path.is_dir() => Some("it is no brick: is its disk mounted?".to_owned()),
        Ok(None) => Some("there is no such directory: is its disk mounted?".to_owned()),
        Err(e) => Some(format!("{e}: see mortar brick check {}", path.display())),
    }
}

//! `volume add-brick`: sets for a volume that serves.
//!
//! Directories are made bricks before the pool takes them: as soon as it has, clients are told of the sets and use them.
//! The numbers that the bricks will get are known from a trial on a copy of the state; the command names the first of
//! them, and is refused if another command took it meanwhile. The directories are taken apart then, and all is tried again.

use super::Control;
use super::answers::{failed, not_agreed, refused, unreachable};
use super::protocol::{Request, Response};
use super::volumes::{make_brick, resolve, volume};
use crate::limits::ADMIN_WAIT;
use admin::{AdminError, BricksAdded, VolumeAddBrick};
use cluster::{Command, NewBricks, Set, State, Status, Volume};
use config_store::ProposeError;
use ids::{BrickId, ServerId, SetId};
use std::collections::{BTreeMap, BTreeSet};

/// So often is a command made anew because its numbers were taken.
const TRIES: u32 = 5;

/// The new bricks of one volume, on one server.
struct Share<'a> {
    address: &'a str,
    volume: &'a Volume,
    sets: Vec<Set>,
    bricks: BTreeSet<BrickId>,
}

impl Control {
    pub(super) async fn volume_add_brick(&self, request: VolumeAddBrick) -> Result<BricksAdded, AdminError> {
        let (name, replica) = (request.name.clone(), request.replica);
        let sets = match replica {
            Some(replica) => self.add_copies(request, replica).await?,
            None => self.add_sets(request).await?,
        };
        let started = self.linearizable().await?.volume(&name).is_some_and(|v| v.status == Status::Started);
        let serving = !started || self.await_service(&name).await;
        Ok(BricksAdded { name, sets, replica, serving })
    }

    async fn add_sets(&self, request: VolumeAddBrick) -> Result<Vec<SetId>, AdminError> {
        let VolumeAddBrick { name, bricks: given, force, .. } = request;
        let _one = self.changing.lock().await;
        let mut tries = 0;
        loop {
            let state = self.linearizable().await?;
            let bricks = resolve(&state, &given)?;
            let new = NewBricks { volume: name.clone(), bricks, force, expect_brick: state.next_brick };
            let command = Command::AddBricks(new.clone());
            let mut copy = (*state).clone();
            copy.apply(&command).map_err(|e| refused(&e))?;
            self.prepare(&state, &new.bricks, force).await?;
            let before = &volume(&state, &name)?.sets;
            let added = volume(&copy, &name)?.sets.iter().filter(|set| !before.contains(set));
            tries += 1;
            match self.propose_with_bricks(&state, &copy, command).await {
                Ok(()) => return Ok(added.copied().collect()),
                Err(e) if e.code == admin::ErrorCode::Stale && tries < TRIES => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// Proposes a command that gives volumes more bricks, with their directories made. `after`: the state that it makes of
    /// `before`. Bricks of volumes that are new themselves are not looked at.
    pub(super) async fn propose_with_bricks(
        &self,
        before: &State,
        after: &State,
        command: Command,
    ) -> Result<(), AdminError> {
        let shares = shares(before, after);
        let mut made = Vec::new();
        for share in &shares {
            if let Err(e) = self.make_share(share, true).await {
                self.take_apart(&made).await;
                return Err(e);
            }
            made.push(share);
        }
        let proposed = self.store().propose_anywhere(command, ADMIN_WAIT).await;
        // If it is not known whether the pool took them they stay bricks.
        if let Err(ProposeError::Refused(_)) = &proposed {
            self.take_apart(&made).await;
        }
        proposed.map(drop).map_err(|e| not_agreed(&e))
    }

    async fn take_apart(&self, made: &[&Share<'_>]) {
        for share in made {
            if let Err(e) = self.make_share(share, false).await {
                tracing::warn!("take new bricks at {} apart again: {e}", share.address);
            }
        }
    }

    async fn make_share(&self, share: &Share<'_>, make: bool) -> Result<(), AdminError> {
        let request = Request::NewBricks {
            volume: Box::new(share.volume.clone()),
            sets: share.sets.clone(),
            bricks: share.bricks.clone(),
            make,
        };
        match self.peers.ask(share.address, &request, ADMIN_WAIT).await {
            Ok(Response::Done) => Ok(()),
            Ok(Response::Error(e)) => Err(failed(e)),
            Ok(_) => Err(failed(format!("{}: it gave an unexpected answer", share.address))),
            Err(e) => Err(unreachable(e)),
        }
    }

    /// Makes this server's bricks among new ones, all or none, or takes them apart.
    pub(super) async fn new_bricks(
        &self,
        volume: &Volume,
        sets: &[Set],
        new: &BTreeSet<BrickId>,
        make: bool,
    ) -> Result<(), String> {
        let state = self.linearizable().await.map_err(|e| e.message)?;
        let pool = server_core::pool_bytes(&state);
        let mut made = Vec::new();
        for set in sets {
            for b in set.bricks.iter().filter(|b| b.server == self.shared.me() && new.contains(&b.id)) {
                let (shown, id) = (state.brick_name(b), b.id);
                if state.brick(id).is_some() {
                    return Err(format!(
                        "brick {shown}: its number {id} was given meanwhile: run the command again"
                    ));
                }
                let identity = server_core::identity(pool, volume, set, b);
                if let Err(e) = make_brick(&b.path, identity.clone(), make).await {
                    undo(&made).await;
                    return Err(format!("brick {shown}: {e}"));
                }
                if make {
                    made.push((b.path.clone(), identity));
                }
            }
        }
        Ok(())
    }
}

async fn undo(made: &[(String, disk_format::Identity)]) {
    for (path, identity) in made {
        if let Err(e) = make_brick(path, identity.clone(), false).await {
            tracing::warn!("take the new brick {path} apart again: {e}");
        }
    }
}

/// The bricks that volumes of `before` have in `after` only, by volume and server.
fn shares<'a>(before: &State, after: &'a State) -> Vec<Share<'a>> {
    let mut all = Vec::new();
    for volume in after.volumes.values().filter(|v| before.volumes.contains_key(&v.id)) {
        let mut of_server: BTreeMap<ServerId, Share<'_>> = BTreeMap::new();
        for set in after.sets_of(volume) {
            for b in set.bricks.iter().filter(|b| before.brick(b.id).is_none()) {
                let Some(server) = after.servers.get(&b.server) else { continue };
                let empty =
                    || Share { address: &server.address, volume, sets: vec![], bricks: BTreeSet::new() };
                let share = of_server.entry(b.server).or_insert_with(empty);
                share.bricks.insert(b.id);
                if share.sets.last().is_none_or(|last| last.id != set.id) {
                    share.sets.push(set.clone());
                }
            }
        }
        all.extend(of_server.into_values());
    }
    all
}

//! `volume remove-brick VOL BRICK...` and `peer drain`: sets are emptied, and bricks find places beside others that stay
//! (docs/design/0022).

use super::answers::{conflict, refused};
use super::copies::brick_of;
use super::grow::anew_if_stale;
use super::rebalance::set_moves;
use super::volumes::volume;
use super::{Control, membership};
use admin::{
    AdminError, DrainAction, DrainReport, DrainedBrick, DrainedSet, PeerDrained, VolumeDrain, VolumeReport,
};
use cluster::{Brick, BrickSpec, Command, NewBrick, OptionChange, Set, State, Status, Volume};
use ids::{BrickId, SetId};
use std::collections::BTreeSet;

/// Whether what a brick holds may go to another directory of its own server, where there is a copy less meanwhile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum OwnServer {
    /// It is to leave that server.
    Never,
    /// Who asks can say so.
    IfForced,
    Allowed,
}

impl Control {
    /// Does what is asked for, and tells how far it is.
    pub(super) async fn volume_drain(&self, request: VolumeDrain) -> Result<DrainReport, AdminError> {
        let VolumeDrain { name, bricks, action } = request;
        // Who only looks does not wait for commands that take long.
        let _one = match action {
            DrainAction::Status => None,
            _ => Some(self.changing.lock().await),
        };
        let state = self.linearizable().await?;
        let of = volume(&state, &name)?;
        if of.status != Status::Started {
            return Err(conflict(format!("volume {name} is not started: mortar volume start {name}")));
        }
        let named: Result<Vec<BrickId>, AdminError> =
            bricks.iter().map(|text| Ok(brick_of(&state, of, text)?.1.id)).collect();
        let named: BTreeSet<BrickId> = named?.into_iter().collect();
        let has_named = |s: &&Set| s.bricks.iter().any(|b| named.contains(&b.id));
        let sets: Vec<SetId> = state.sets_of(of).filter(has_named).map(|s| s.id).collect();
        match action {
            DrainAction::Status => {}
            DrainAction::Start => self.set_drained(of, &drained_too(&state, of, &named, &sets)?).await?,
            DrainAction::Stop => {
                let stay = of.typed_options().drain.into_iter().filter(|s| !sets.contains(s)).collect();
                self.set_drained(of, &stay).await?;
            }
            DrainAction::Commit => self.move_out(&name, &named, false).await?,
            DrainAction::Force => self.move_out(&name, &named, true).await?,
        }
        let state = self.linearizable().await?;
        let of = volume(&state, &name)?;
        let status = self.status_of(&state, of).await;
        Ok(report(&state, of, &status, &sets))
    }

    async fn set_drained(&self, volume: &Volume, sets: &BTreeSet<SetId>) -> Result<(), AdminError> {
        let words: Vec<String> = sets.iter().map(|s| s.0.to_string()).collect();
        let (volume, key) = (volume.name.clone(), "cluster.drain".to_owned());
        let value = (!words.is_empty()).then(|| words.join(","));
        self.propose(Command::SetOptions { changes: vec![OptionChange { volume, key, value }] }).await
    }

    /// What bricks hold goes elsewhere, and they with it: all of them, or none if one has no place.
    async fn move_out(&self, name: &str, named: &BTreeSet<BrickId>, force: bool) -> Result<(), AdminError> {
        let state = self.linearizable().await?;
        let status = self.status_of(&state, volume(&state, name)?).await;
        let of = volume(&state, name)?;
        let emptied = of.typed_options().drain;
        for set in state.sets_of(of).filter(|s| s.bricks.iter().any(|b| named.contains(&b.id))) {
            check_empty(set, &status, &emptied, force)?;
        }
        let own_server = if force { OwnServer::Allowed } else { OwnServer::IfForced };
        let mut planned = (*state).clone();
        for brick in named {
            if let Some(command) = replacement(&planned, name, *brick, &status, own_server)? {
                planned.apply(&command).map_err(|e| refused(&e))?;
            }
        }
        for brick in named {
            // Bricks may leave the view meanwhile, and come back.
            anew_if_stale(|| self.find_place(name, *brick, &status, own_server)).await?;
        }
        Ok(())
    }

    /// A brick is replaced by one beside another, if it is not already.
    async fn find_place(
        &self,
        name: &str,
        brick: BrickId,
        status: &VolumeReport,
        own_server: OwnServer,
    ) -> Result<(), AdminError> {
        // Each changes the pool's state, and the set's view.
        let state = self.linearizable().await?;
        let Some(command) = replacement(&state, name, brick, status, own_server)? else { return Ok(()) };
        (*state).clone().apply(&command).map_err(|e| refused(&e))?;
        if let Command::ReplaceBrick(NewBrick { new, .. }) = &command {
            self.prepare(&state, std::slice::from_ref(new), (false, None)).await?;
        }
        self.propose(command).await
    }

    /// `peer drain`: each brick of a server gets a place beside one of another server.
    pub(super) async fn peer_drain(&self, host: &str) -> Result<PeerDrained, AdminError> {
        let _one = self.changing.lock().await;
        let state = self.linearizable().await?;
        let server = membership::find(&state, host)?.id;
        let mut out = PeerDrained { host: host.to_owned(), ..PeerDrained::default() };
        for of in state.volumes.values() {
            let bricks = || state.sets_of(of).flat_map(|s| &s.bricks).filter(|b| b.server == server);
            if bricks().next().is_none() {
                continue;
            }
            let status = self.status_of(&state, of).await;
            for b in bricks() {
                if let Err(e) = self.find_place(&of.name, b.id, &status, OwnServer::Never).await {
                    out.notes.push(format!(
                        "{} of volume {} stays: {}",
                        state.brick_name(b),
                        of.name,
                        e.message
                    ));
                }
            }
        }
        let state = self.linearizable().await?;
        for (set, b) in state.bricks_of(server) {
            out.bricks.push(drained_brick(&state, set, b));
        }
        Ok(out)
    }
}

fn drained_brick(state: &State, set: &Set, old: &Brick) -> DrainedBrick {
    let new = set.bricks.iter().find(|b| b.replaces == Some(old.id));
    DrainedBrick { brick: state.brick_name(old), goes_to: new.map(|b| state.brick_name(b)) }
}

/// The sets that are emptied when these are too.
fn drained_too(
    state: &State,
    volume: &Volume,
    named: &BTreeSet<BrickId>,
    sets: &[SetId],
) -> Result<BTreeSet<SetId>, AdminError> {
    for set in state.sets_of(volume).filter(|s| sets.contains(&s.id)) {
        let missing: Vec<String> =
            set.bricks.iter().filter(|b| !named.contains(&b.id)).map(|b| state.brick_name(b)).collect();
        if !missing.is_empty() {
            return Err(conflict(format!(
                "{} has other bricks too: name all of them ({}); for fewer copies write replica N",
                state.named_set(set),
                missing.join(", ")
            )));
        }
    }
    let all: BTreeSet<SetId> = volume.typed_options().drain.into_iter().chain(sets.iter().copied()).collect();
    if volume.sets.iter().all(|s| all.contains(s)) {
        return Err(conflict(format!(
            "no set of volume {} would stay: add bricks first (mortar volume add-brick), or delete the volume",
            volume.name
        )));
    }
    Ok(all)
}

/// Refuses it while files may still leave the set, as far as is known.
fn check_empty(set: &Set, status: &VolumeReport, emptied: &[SetId], force: bool) -> Result<(), AdminError> {
    let named = format!("set {} of volume {}", set.name(), status.name);
    if !emptied.contains(&set.id) {
        return Err(conflict(format!("files of {named} do not leave it: begin with start")));
    }
    match set_moves(set, status) {
        _ if force => Ok(()),
        Some(of) if of.moved.none_can_move => Ok(()),
        Some(_) => Err(conflict(format!(
            "files can still leave {named}: status tells how far it is; force takes what is there along"
        ))),
        None => Err(conflict(format!("{named} is not led by anybody: how it does is not known"))),
    }
}

/// The command by which a brick is replaced by one beside another; `None` if it is already, or has gone.
fn replacement(
    state: &State,
    name: &str,
    brick: BrickId,
    status: &VolumeReport,
    own_server: OwnServer,
) -> Result<Option<Command>, AdminError> {
    let of = volume(state, name)?;
    let Some((set, old)) = state.brick(brick) else { return Ok(None) };
    if set.bricks.iter().any(|b| b.replaces == Some(brick)) {
        return Ok(None);
    }
    let new = place(state, of, (set, old), status, own_server)?;
    let (set, expect_epoch, force) = (set.id, set.view.epoch, own_server == OwnServer::Allowed);
    Ok(Some(Command::ReplaceBrick(NewBrick { set, expect_epoch, old: brick, new, force })))
}

/// Where what a brick holds goes.
fn place(
    state: &State,
    volume: &Volume,
    (set, old): (&Set, &Brick),
    status: &VolumeReport,
    own_server: OwnServer,
) -> Result<BrickSpec, AdminError> {
    let room = |b: &Brick| status.bricks.iter().find(|s| s.brick == b.id).map_or(0, |s| s.free_bytes);
    state.place_for(volume, set, old, own_server == OwnServer::Allowed, &room).ok_or_else(|| {
        let forced = match own_server {
            OwnServer::IfForced => " (force also takes the brick's own server, with a copy less meanwhile)",
            OwnServer::Never | OwnServer::Allowed => "",
        };
        conflict(format!(
            "there is no place for {}: it needs a brick of another set on a server that has none of set {}, in a \
             directory of its file system{forced}; or choose one with mortar volume replace-brick {}",
            state.brick_name(old),
            set.name(),
            volume.name
        ))
    })
}

fn report(state: &State, volume: &Volume, status: &VolumeReport, named: &[SetId]) -> DrainReport {
    let emptied = volume.typed_options().drain;
    let mut out = DrainReport { name: volume.name.clone(), ..DrainReport::default() };
    for set in state.sets_of(volume).filter(|s| named.contains(&s.id)) {
        let moves = set_moves(set, status);
        if moves.is_none() {
            out.notes.push(format!("set {} is not led by anybody: how it does is not known", set.name()));
        }
        for guest in set.bricks.iter().flat_map(|b| state.guests_of(b)) {
            out.notes.push(format!("{} lies there too: take it out as well", state.brick_name(guest)));
        }
        let old = set.bricks.iter().filter(|b| b.replaces.is_none());
        out.sets.push(DrainedSet {
            set: set.name(),
            drains: emptied.contains(&set.id),
            moved: moves.map(|m| m.moved).unwrap_or_default(),
            bricks: old.map(|b| drained_brick(state, set, b)).collect(),
        });
    }
    out
}

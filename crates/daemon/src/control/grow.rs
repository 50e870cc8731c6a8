//! New volumes, and sets for a volume that serves (`volume add-brick`): how their bricks are made.
//!
//! Directories are made bricks before the pool takes them: as soon as it has, clients are told of the sets and use them.
//! The numbers that the bricks will get are known from a trial on a copy of the state; the command names the first of
//! them, and is refused if another command took it meanwhile. The directories are taken apart then, and all is tried again.
//! What a command has made that was interrupted, the next one takes over (`leftovers`).

use super::Control;
use super::answers::{failed, not_agreed, refused};
use super::protocol::{Request, Response};
use super::volumes::{MakeBrick, make_brick, resolve, volume};
use crate::clock;
use crate::limits::ADMIN_WAIT;
use crate::shared::lock;
use admin::{AdminError, BricksAdded, VolumeAddBrick};
use cluster::{Brick, BrickSpec, Command, NewBricks, Set, State, Status, Volume};
use config_store::ProposeError;
use ids::{BrickId, ServerId, SetId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// A command that made a brick and was not agreed on within this time was interrupted: it has [`ADMIN_WAIT`] to make all of
/// them, and as long to be agreed on.
const MAKING: Duration = ADMIN_WAIT.saturating_mul(2);

/// So often is a command made anew because its numbers were taken, or a view has changed.
const TRIES: u32 = 5;

/// Makes and proposes a command, anew as long as what it was made by has changed meanwhile.
pub(super) async fn anew_if_stale<T, F>(mut attempt: impl FnMut() -> F) -> Result<T, AdminError>
where
    F: Future<Output = Result<T, AdminError>>,
{
    let mut tries = 0;
    loop {
        tries += 1;
        match attempt().await {
            Err(e) if e.code == admin::ErrorCode::Stale && tries < TRIES => {}
            done => return done,
        }
    }
}

/// The new bricks of one volume, on one server.
struct Share<'a> {
    address: &'a str,
    volume: &'a Volume,
    sets: Vec<Set>,
    bricks: BTreeSet<BrickId>,
}

/// A command that made bricks.
pub(super) struct WithBricks {
    /// The pool's state before it.
    pub(super) before: Arc<State>,
    /// The state after it.
    pub(super) after: State,
    /// What speaks against the bricks all the same, for people.
    pub(super) notes: Vec<String>,
}

/// What is to be done with new bricks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Making {
    /// They are made; this one of the data that lies there.
    Make {
        /// Which.
        adopt: Option<BrickId>,
    },
    /// They are taken apart again.
    TakeApart,
}

impl Making {
    fn of(self, volume: &Volume, brick: BrickId) -> MakeBrick {
        match self {
            Making::Make { adopt } if adopt == Some(brick) => MakeBrick::Adopt,
            Making::Make { .. } => MakeBrick::Make(server_core::made(volume)),
            Making::TakeApart => MakeBrick::TakeApart,
        }
    }
}

/// The brick that the command makes of existing data.
fn with_data<'a>(command: &Command, after: &'a State) -> Option<&'a Brick> {
    let Command::AdoptVolume(new) = command else { return None };
    after.sets_of(after.volume(&new.name)?).next()?.bricks.first()
}

impl Control {
    pub(super) async fn volume_add_brick(&self, request: VolumeAddBrick) -> Result<BricksAdded, AdminError> {
        let (name, replica) = (request.name.clone(), request.replica);
        let sets = match replica {
            Some(replica) => self.add_copies(request, replica).await?,
            None => self.add_sets(request).await?,
        };
        let state = self.linearizable().await?;
        let numbers = sets.iter().map(|set| state.named(*set).set.number).collect();
        let started = state.volume(&name).is_some_and(|v| v.status == Status::Started);
        let serving = !started || self.await_service(&name).await;
        Ok(BricksAdded { name, sets, numbers, replica, serving })
    }

    async fn add_sets(&self, request: VolumeAddBrick) -> Result<Vec<SetId>, AdminError> {
        let VolumeAddBrick { name, bricks: given, force, .. } = request;
        let _one = self.changing.lock().await;
        let command = |state: &State| {
            let (volume, bricks) = (name.clone(), resolve(state, &given)?);
            Ok(Command::AddBricks(NewBricks { volume, bricks, force, expect_brick: state.next_brick }))
        };
        let made = self.propose_with_bricks(force, command).await?;
        let before = &volume(&made.before, &name)?.sets;
        Ok(volume(&made.after, &name)?.sets.iter().filter(|set| !before.contains(set)).copied().collect())
    }

    /// Proposes a command that makes volumes or gives them more bricks, with their directories made.
    pub(super) async fn propose_with_bricks(
        &self,
        force: bool,
        command: impl Fn(&State) -> Result<Command, AdminError>,
    ) -> Result<WithBricks, AdminError> {
        anew_if_stale(|| async {
            let before = self.linearizable().await?;
            let command = command(&before)?;
            let (after, notes) = self.check_new_bricks(&before, (&before, &command), force).await?;
            self.make_and_propose(&before, &after, command).await?;
            Ok(WithBricks { before, after, notes })
        })
        .await
    }

    /// Whether the pool takes a command, and its servers the directories of the new bricks. Tells the state after it,
    /// and what speaks against the bricks all the same. Servers that are not in the pool yet are in `before`, and are not asked.
    pub(super) async fn check_new_bricks(
        &self,
        pool: &State,
        (before, command): (&State, &Command),
        force: bool,
    ) -> Result<(State, Vec<String>), AdminError> {
        // Tried on a copy first: what the pool would refuse needs no look at any disk.
        let mut after = before.clone();
        after.apply(command).map_err(|e| refused(&e))?;
        let new = after.bricks().filter(|(_, b)| before.brick(b.id).is_none());
        let new: Vec<BrickSpec> = new.map(|(_, b)| b.spec()).collect();
        let adopt = with_data(command, &after).map(Brick::spec);
        let notes = self.prepare(pool, &new, (force, adopt.as_ref())).await?;
        Ok((after, notes))
    }

    async fn make_and_propose(
        &self,
        before: &State,
        after: &State,
        command: Command,
    ) -> Result<(), AdminError> {
        let adopt = with_data(&command, after).map(|b| b.id);
        let shares = shares(before, after);
        let until = clock::now() + ADMIN_WAIT;
        for (i, share) in shares.iter().enumerate() {
            if let Err(e) =
                self.make_share(share, Making::Make { adopt }, until.saturating_sub(clock::now())).await
            {
                // Not of this one: what is there may be another command's of the same number.
                self.take_apart(&shares[..i]).await;
                return Err(e);
            }
        }
        let proposed = self.store().propose_anywhere(command, ADMIN_WAIT).await;
        // If it is not known whether the pool took them they stay bricks.
        if let Err(ProposeError::Refused(_)) = &proposed {
            self.take_apart(&shares).await;
        }
        proposed.map(drop).map_err(|e| not_agreed(&e))
    }

    async fn take_apart(&self, made: &[Share<'_>]) {
        for share in made {
            if let Err(e) = self.make_share(share, Making::TakeApart, ADMIN_WAIT).await {
                tracing::warn!("take new bricks at {} apart again: {e}", share.address);
            }
        }
    }

    async fn make_share(&self, share: &Share<'_>, making: Making, wait: Duration) -> Result<(), AdminError> {
        let (make, adopt) = match making {
            Making::Make { adopt } => (true, adopt),
            Making::TakeApart => (false, None),
        };
        let request = Request::NewBricks {
            volume: Box::new(share.volume.clone()),
            sets: share.sets.clone(),
            bricks: share.bricks.clone(),
            make,
            adopt,
        };
        match self.peers.ask(share.address, &request, wait).await {
            Ok(Response::Done) => Ok(()),
            Ok(Response::Error(e)) => Err(failed(e)),
            Ok(_) => Err(failed(format!("{}: it gave an unexpected answer", share.address))),
            Err(e) => Err(e.into()),
        }
    }

    /// Makes this server's bricks among new ones, all or none, or takes them apart.
    pub(super) async fn new_bricks(
        &self,
        volume: &Volume,
        sets: &[Set],
        new: &BTreeSet<BrickId>,
        making: Making,
    ) -> Result<(), String> {
        let state = self.linearizable().await.map_err(|e| e.message)?;
        let pool = server_core::pool_bytes(&state);
        let make = making != Making::TakeApart;
        let mut made = Vec::new();
        for set in sets {
            for b in set.bricks.iter().filter(|b| b.server == self.shared.me() && new.contains(&b.id)) {
                let (shown, id) = (state.brick_name(b), b.id);
                if state.brick(id).is_some_and(|(_, b)| make || b.server == self.shared.me()) {
                    return Err(format!(
                        "brick {shown}: its number {id} was given meanwhile: run the command again"
                    ));
                }
                let identity = server_core::identity(pool, volume, set, b);
                if make {
                    self.note_making(id, &b.path);
                }
                if let Err(e) = make_brick(&b.path, identity.clone(), making.of(volume, id)).await {
                    self.undo(&made).await;
                    return Err(format!("brick {shown}: {e}"));
                }
                if make {
                    made.push((b.path.clone(), identity));
                } else {
                    self.forget_making(id, &b.path);
                }
            }
        }
        Ok(())
    }

    async fn undo(&self, made: &[(String, disk_format::Identity)]) {
        for (path, identity) in made {
            if let Err(e) = make_brick(path, identity.clone(), MakeBrick::TakeApart).await {
                tracing::warn!("take the new brick {path} apart again: {e}");
            }
            self.forget_making(identity.brick, path);
        }
    }

    /// Noted before the brick is there, and if it cannot be made: another command of the same number may have made it.
    fn note_making(&self, brick: BrickId, path: &str) {
        let now = clock::now();
        let mut making = lock(&self.making);
        making.retain(|_, since| now < *since + MAKING);
        making.insert((brick, path.to_owned()), now);
    }

    fn forget_making(&self, brick: BrickId, path: &str) {
        lock(&self.making).remove(&(brick, path.to_owned()));
    }

    /// The numbers of bricks that commands made here which may not be over.
    pub(super) fn being_made(&self) -> BTreeSet<BrickId> {
        let now = clock::now();
        lock(&self.making).iter().filter(|(_, since)| now < **since + MAKING).map(|((b, _), _)| *b).collect()
    }
}

/// The bricks that are in `after` only, by volume and server.
fn shares<'a>(before: &State, after: &'a State) -> Vec<Share<'a>> {
    let mut all = Vec::new();
    for volume in after.volumes.values() {
        let mut of_server: BTreeMap<ServerId, Share<'_>> = BTreeMap::new();
        for set in after.sets_of(volume) {
            // One that joins is made by its server when it opens it.
            for b in set.bricks.iter().filter(|b| before.brick(b.id).is_none() && !b.joining) {
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

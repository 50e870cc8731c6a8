//! Volumes and their options: what the command line asks for, checked on the servers it concerns.

use super::Control;
use super::answers::{failed, not_agreed, not_found, option_line, refused, volume_state};
use super::brick_warnings::{apart_from, warnings};
use super::hosts;
use super::import::retired;
use super::leftovers::Leftovers;
use super::protocol::{ClusterReply, ClusterRequest, Request, Response};
use crate::clock::unix_now;
use crate::limits::ADMIN_WAIT;
use admin::{
    AdminAnswer, AdminError, AdminRequest, BrickDescription, Document, OptionLines, OptionsReset, OptionsSet,
    Peers, SetDescription, VolumeCreate, VolumeCreated, VolumeDelete, VolumeDeleted, VolumeDescription,
    VolumeDescriptions, VolumeNames, VolumeReport, VolumeReset, VolumeSet, VolumeStarted, VolumeStopped,
};
use cluster::config;
use cluster::{
    BrickSpec, Command, NEW_VOLUMES_HAVE_OPTIONS, NewVolume, OptionChange, Refusal, Set, State, Volume,
};
use config_store::ProposeError;
use ids::{ServerId, Time};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// What a volume lacks that is made while the pool has servers of before.
const WITHOUT_OPTIONS: &str = "large files stay on the sets of their directories, as servers of the pool run a program of before: \
                               update them, and set cluster.large-file-size to 1MB";

impl Control {
    pub(super) async fn admin(self: &Arc<Self>, request: AdminRequest) -> Result<AdminAnswer, AdminError> {
        use {AdminAnswer as A, AdminRequest as R};
        Ok(match request {
            R::PeerProbe(r) => A::PeerProbe(self.peer_probe(r).await?),
            R::PeerDetach(r) => A::PeerDetach(self.peer_detach(&r.host, r.force).await?),
            R::PeerReplace(r) => A::PeerReplace(self.peer_replace(&r.host, r.by.as_deref()).await?),
            R::PeerDrain(r) => A::PeerDrain(self.peer_drain(&r.host).await?),
            R::PeerStatus(_) => A::PeerStatus(self.peer_status().await),
            R::PoolSecure(_) => A::PoolSecure(self.pool_secure().await?),
            R::PoolToken(r) => A::PoolToken(self.pool_token(r).await?),
            R::PoolKey(r) => A::PoolKey(self.pool_key(r.name).await?),
            R::PoolRotateKey(r) => A::PoolRotateKey(self.pool_rotate_key(r.server.as_deref()).await?),
            R::PoolRotateAuthority(r) => A::PoolRotateAuthority(self.pool_rotate_authority(r).await?),
            R::LocalKey(r) => A::LocalKey(self.local_key(r).await?),
            R::ClientAdd(r) => A::ClientAdd(self.client_add(r).await?),
            R::ClientList(_) => A::ClientList(self.client_list().await?),
            R::ClientRevoke(r) => A::ClientRevoke(self.client_revoke(r.name).await?),
            R::ClientRotate(r) => A::ClientRotate(self.client_rotate(r).await?),
            R::PoolList(_) => A::PoolList(Peers { peers: self.peers() }),
            R::VolumeCreate(r) => A::VolumeCreate(self.volume_create(r).await?),
            R::VolumeAddBrick(r) => A::VolumeAddBrick(self.volume_add_brick(r).await?),
            R::VolumeRemoveBrick(r) => A::VolumeRemoveBrick(self.volume_remove_brick(r).await?),
            R::VolumeReplaceBrick(r) => A::VolumeReplaceBrick(self.volume_replace_brick(r).await?),
            R::VolumeStart(r) => A::VolumeStart(self.volume_start(r.name).await?),
            R::VolumeStop(r) => A::VolumeStop(self.volume_stop(r.name).await?),
            R::VolumeDelete(r) => A::VolumeDelete(self.volume_delete(r).await?),
            R::VolumeImport(r) => A::VolumeImport(self.volume_import(r).await?),
            R::VolumeInfo(r) => A::VolumeInfo(self.volume_info(r.name.as_deref()).await?),
            R::VolumeStatus(r) => A::VolumeStatus(self.volume_status(r.name.as_deref()).await?),
            R::VolumeClients(r) => A::VolumeClients(self.volume_clients(r.name).await?),
            R::VolumeFds(r) => A::VolumeFds(self.volume_fds(r.name).await?),
            R::VolumeQueues(r) => A::VolumeQueues(self.volume_queues(r.name).await?),
            R::VolumeProfile(r) => A::VolumeProfile(self.volume_profile(r.name, r.action).await?),
            R::VolumeTop(r) => A::VolumeTop(self.volume_top(r.name).await?),
            R::Doctor(_) => A::Doctor(self.doctor().await?),
            R::Events(r) => A::Events(self.events(r.since_ms, r.most).await),
            R::EventsWebhook(r) => A::EventsWebhook(self.events_webhook(r).await?),
            R::VolumeList(_) => A::VolumeList(self.volume_list().await?),
            R::VolumeSet(r) => A::VolumeSet(self.volume_set(r).await?),
            R::VolumeGet(r) => A::VolumeGet(self.volume_get(&r.name, r.key.as_deref()).await?),
            R::VolumeReset(r) => A::VolumeReset(self.volume_reset(r).await?),
            R::ConfigExport(_) => A::ConfigExport(Document {
                document: config::export(&*self.linearizable().await?, unix_now()),
            }),
            R::ConfigDiff(r) => A::ConfigDiff(self.config_diff(&r.document).await?),
            R::ConfigApply(r) => A::ConfigApply(self.config_apply(r).await?),
            R::VolumeHeal(r) => A::VolumeHeal(self.heal_info(&r.name).await?),
            R::VolumeAdopt(r) => A::VolumeAdopt(self.volume_adopt(r).await?),
            R::VolumeRebalance(r) => A::VolumeRebalance(self.volume_rebalance(r).await?),
            R::VolumeDrain(r) => A::VolumeDrain(self.volume_drain(r).await?),
            R::VolumePromote(r) => A::VolumePromote(self.volume_promote(r).await?),
            R::VolumeHealInfo(r) => A::VolumeHealInfo(self.heal_info(&r.name).await?),
        })
    }

    pub(crate) async fn propose(&self, command: Command) -> Result<(), AdminError> {
        self.store().propose_anywhere(command, ADMIN_WAIT).await.map(drop).map_err(|e| not_agreed(&e))
    }

    /// Proposes a command, and tells whether there was nothing to do.
    async fn propose_unless_done(&self, command: Command) -> Result<bool, AdminError> {
        match self.store().propose_anywhere(command, ADMIN_WAIT).await {
            Ok(_) => Ok(false),
            Err(ProposeError::Refused(Refusal::AlreadyStarted { .. } | Refusal::NotStarted { .. })) => {
                Ok(true)
            }
            Err(e) => Err(not_agreed(&e)),
        }
    }

    pub(crate) async fn linearizable(&self) -> Result<Arc<State>, AdminError> {
        self.store().linearizable_state(ADMIN_WAIT).await.map_err(|e| not_agreed(&e))
    }

    async fn volume_start(&self, name: String) -> Result<VolumeStarted, AdminError> {
        let already = self.propose_unless_done(Command::StartVolume { name: name.clone() }).await?;
        let serving = self.await_service(&name).await;
        Ok(VolumeStarted { name, serving, already })
    }

    async fn volume_stop(&self, name: String) -> Result<VolumeStopped, AdminError> {
        let already = self.propose_unless_done(Command::StopVolume { name: name.clone() }).await?;
        Ok(VolumeStopped { name, already })
    }

    async fn volume_info(&self, name: Option<&str>) -> Result<VolumeDescriptions, AdminError> {
        let state = self.linearizable().await?;
        let volumes = chosen(&state, name)?.into_iter().map(|v| describe(&state, v)).collect();
        Ok(VolumeDescriptions { volumes })
    }

    async fn volume_list(&self) -> Result<VolumeNames, AdminError> {
        let state = self.linearizable().await?;
        let mut names: Vec<String> = state.volumes.values().map(|v| v.name.clone()).collect();
        names.sort();
        Ok(VolumeNames { names })
    }

    async fn volume_set(&self, request: VolumeSet) -> Result<OptionsSet, AdminError> {
        let VolumeSet { name, options } = request;
        let change = |(key, value)| OptionChange { volume: name.clone(), key, value: Some(value) };
        let changes: Vec<OptionChange> = options.into_iter().map(change).collect();
        let options = count(&changes);
        let command = Command::SetOptions { changes };
        if let Some(note) = hosts::note_before(&*self.linearizable().await?, &command).await? {
            self.propose(note).await?;
        }
        self.propose(command).await?;
        Ok(OptionsSet { name, options })
    }

    async fn volume_get(&self, name: &str, key: Option<&str>) -> Result<OptionLines, AdminError> {
        let state = self.linearizable().await?;
        let mut lines = volume(&state, name)?.option_lines();
        if let Some(key) = key {
            lines.retain(|l| l.key == key);
            if lines.is_empty() {
                return Err(refused(&cluster::options::unknown(key)));
            }
        }
        Ok(OptionLines { options: lines.into_iter().map(option_line).collect() })
    }

    async fn volume_create(&self, request: VolumeCreate) -> Result<VolumeCreated, AdminError> {
        let VolumeCreate { name, replica, arbiter, stripe, bricks: given, force, adopt } = request;
        let _one = self.changing.lock().await;
        let command = |state: &State| {
            let mut options = state.options_of_new_volumes();
            if let Some(count) = stripe {
                state.check_stripes().map_err(|refusal| refused(&refusal))?;
                options.insert("cluster.stripe-count".to_owned(), count.to_string());
            }
            let new = NewVolume {
                name: name.clone(),
                replica: replica.unwrap_or(1),
                arbiter: arbiter.unwrap_or(0),
                bricks: resolve(state, &given)?,
                force,
                created: unix_now(),
                expect_brick: Some(state.next_brick),
                options,
            };
            Ok(if adopt { Command::AdoptVolume(new) } else { Command::CreateVolume(new) })
        };
        let mut made = self.propose_with_bricks(force, command).await?;
        if made.before.level < NEW_VOLUMES_HAVE_OPTIONS {
            made.notes.push(WITHOUT_OPTIONS.to_owned());
        }
        let sets = given.len() / usize::try_from(replica.unwrap_or(1)).unwrap_or(usize::MAX).max(1);
        if let Some(count) = stripe.filter(|count| usize::try_from(*count).is_ok_and(|count| count > sets)) {
            made.notes.push(format!(
                "stripe {count} needs {count} sets, and the volume has {sets}: large files use those that it has (mortar \
                 volume add-brick)"
            ));
        }
        Ok(VolumeCreated { name, notes: made.notes })
    }

    /// Asks every server whether its paths can become bricks; of one (`adopt`) with the data that lies there. Tells what
    /// speaks against them all the same.
    pub(super) async fn prepare(
        &self,
        state: &State,
        specs: &[BrickSpec],
        (force, adopt): (bool, Option<&BrickSpec>),
    ) -> Result<Vec<String>, AdminError> {
        let mut notes = Vec::new();
        for spec in specs {
            let Some(server) = state.servers.get(&spec.server) else { continue };
            let (path, adopt) = (spec.path.clone(), adopt == Some(spec));
            let request = ClusterRequest::BrickPrepare { path, force, adopt };
            let asked = self.ask_cluster(&server.address, request).await;
            let name = state.spec_name(spec);
            if let ClusterReply::BrickPrepared { warnings } =
                asked.map_err(|e| e.before(&format!("brick {name}: ")))?
            {
                notes.extend(warnings.into_iter().map(|warning| format!("brick {name} {warning}")));
            }
        }
        Ok(notes)
    }

    /// Has all servers take the bricks of a volume apart.
    async fn release_everywhere(&self, state: &State, name: &str) -> Result<(), AdminError> {
        let (_, sets) = volume_or_retired(state, name)?;
        let servers: BTreeSet<ServerId> =
            sets.iter().flat_map(|s| s.bricks.iter().map(|b| b.server)).collect();
        let mut first = None;
        for server in servers.iter().filter_map(|s| state.servers.get(s)) {
            let request = Request::ReleaseBricks { volume: name.to_owned() };
            let result = match self.peers.ask(&server.address, &request, ADMIN_WAIT).await {
                Ok(Response::Done) => Ok(()),
                Ok(Response::Error(e)) => Err(failed(e)),
                Err(e) => Err(e.into()),
                Ok(_) => Err(failed(format!("{}: it gave an unexpected answer", server.address))),
            };
            first = first.or(result.err());
        }
        first.map_or(Ok(()), Err)
    }

    /// Takes this server's bricks of a volume apart.
    pub(super) async fn release_bricks(&self, name: &str) -> Result<(), String> {
        let state = self.linearizable().await?;
        let (volume, sets) = volume_or_retired(&state, name)?;
        let (me, pool) = (self.shared.me(), server_core::pool_bytes(&state));
        for set in sets {
            for b in set.bricks.iter().filter(|b| b.server == me) {
                let identity = server_core::identity(pool, volume, set, b);
                let done = make_brick(&b.path, identity, MakeBrick::TakeApart).await;
                done.map_err(|e| format!("brick {}: {e}", state.brick_name(b)))?;
            }
        }
        Ok(())
    }

    /// Whether a path of this server can become a brick. What an interrupted command left there goes.
    /// Tells what speaks against it all the same.
    pub(super) async fn check_brick(&self, path: &str, adopt: bool) -> Result<Vec<String>, AdminError> {
        let state = self.linearizable().await?;
        let (me, making, path) = (self.shared.me(), self.being_made(), path.to_owned());
        let folder = self.folder.path().to_owned();
        let checked = tokio::task::spawn_blocking(move || {
            let leftovers = Leftovers { state: &state, me, making };
            let path = Path::new(&path);
            apart_from(path, &folder)?;
            let checked = if adopt { leftovers.check_data(path) } else { leftovers.check(path) };
            checked.map(|()| warnings(path))
        });
        checked.await.map_err(failed)?.map_err(failed)
    }

    /// Waits until every set of a started volume has a primary that serves, as long as that is to be expected. Tells
    /// whether they all have one.
    pub(super) async fn await_service(&self, name: &str) -> bool {
        let serving = async {
            loop {
                if let Ok(all) = self.volume_status(Some(name)).await
                    && let Some(status) = all.volumes.first()
                    && self.all_sets_led(name, status)
                {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), serving).await.is_ok()
    }

    fn all_sets_led(&self, name: &str, status: &VolumeReport) -> bool {
        let state = self.state();
        let Some(volume) = state.volume(name) else { return true };
        volume.sets.iter().all(|set| {
            let serving =
                |b: &&admin::BrickStatus| b.set.id == *set && b.online && b.role == admin::BrickRole::Primary;
            status.bricks.iter().any(|b| serving(&b))
        })
    }

    async fn volume_delete(&self, request: VolumeDelete) -> Result<VolumeDeleted, AdminError> {
        let VolumeDelete { name, release } = request;
        let _one = self.changing.lock().await;
        let state = self.linearizable().await?;
        let command = match state.retired(&name).filter(|_| state.volume(&name).is_none()) {
            Some(retired) if release => Command::ForgetRetired { volume: retired.volume.id },
            _ if release => Command::DeleteVolume { name: name.clone() },
            _ => Command::RetireVolume { name: name.clone() },
        };
        (*state).clone().apply(&command).map_err(|e| refused(&e))?;
        let released = if release { self.release_everywhere(&state, &name).await } else { Ok(()) };
        self.propose(command).await?;
        Ok(VolumeDeleted { name, not_released: released.err().map(|e| e.message) })
    }

    async fn volume_reset(&self, request: VolumeReset) -> Result<OptionsReset, AdminError> {
        let VolumeReset { name, key } = request;
        let state = self.linearizable().await?;
        let keys: Vec<String> = match key {
            Some(key) => vec![key],
            None => volume(&state, &name)?.options.keys().cloned().collect(),
        };
        let options = count(&keys);
        let changes =
            keys.into_iter().map(|key| OptionChange { volume: name.clone(), key, value: None }).collect();
        self.propose(Command::SetOptions { changes }).await?;
        Ok(OptionsReset { name, options })
    }
}

/// What is done with a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum MakeBrick {
    /// It is made a brick of a volume that has its root since then.
    Make(Time),
    /// Its data is to become a brick's.
    Adopt,
    /// It is taken apart.
    TakeApart,
}

/// Makes the directory a brick, or takes it apart.
pub(super) async fn make_brick(
    path: &str,
    identity: disk_format::Identity,
    what: MakeBrick,
) -> Result<(), String> {
    let path = path.to_owned();
    let done = tokio::task::spawn_blocking(move || {
        let path = Path::new(&path);
        match what {
            MakeBrick::Make(since) => brick::format(path, &identity, since).map_err(|e| e.to_string()),
            MakeBrick::Adopt => brick::begin_adoption(path, &identity).map_err(|e| e.to_string()),
            MakeBrick::TakeApart => brick::release(path, &identity),
        }
    });
    done.await.map_err(|e| e.to_string())?
}

/// The bricks that an administrator wrote as HOST:/PATH.
pub(super) fn resolve(state: &State, given: &[String]) -> Result<Vec<BrickSpec>, AdminError> {
    given.iter().map(|b| state.resolve_brick(b).map_err(|e| refused(&e))).collect()
}

/// The volume of that name.
pub(super) fn volume<'a>(state: &'a State, name: &str) -> Result<&'a Volume, AdminError> {
    state
        .volume(name)
        .ok_or_else(|| not_found(format!("volume {name} does not exist: see mortar volume list")))
}

/// The volume of that name, or else the deleted one, and its sets.
fn volume_or_retired<'a>(state: &'a State, name: &str) -> Result<(&'a Volume, Vec<&'a Set>), AdminError> {
    match state.volume(name) {
        Some(volume) => Ok((volume, state.sets_of(volume).collect())),
        None => retired(state, name).map(|r| (&r.volume, r.sets.iter().collect())),
    }
}

/// The volume of that name, or all.
pub(super) fn chosen<'a>(state: &'a State, name: Option<&str>) -> Result<Vec<&'a Volume>, AdminError> {
    match name {
        Some(name) => Ok(vec![volume(state, name)?]),
        None => Ok(state.volumes.values().collect()),
    }
}

fn describe(state: &State, volume: &Volume) -> VolumeDescription {
    let brick =
        |b: &cluster::Brick| BrickDescription { id: b.id, name: state.brick_name(b), arbiter: b.arbiter };
    let set = |s: &cluster::Set| SetDescription {
        id: s.id,
        number: s.number,
        bricks: s.bricks.iter().map(brick).collect(),
    };
    VolumeDescription {
        id: volume.id,
        name: volume.name.clone(),
        status: volume_state(volume.status),
        replica: volume.replica,
        arbiter: volume.arbiter,
        created: volume.created,
        sets: state.sets_of(volume).map(set).collect(),
        options: volume.options.clone(),
    }
}

fn count<T>(of: &[T]) -> u32 {
    u32::try_from(of.len()).unwrap_or(u32::MAX)
}

//! Volumes and their options: what the command line asks for, checked on the servers it concerns.

use super::protocol::{Request, Response};
use super::{Control, bricks};
use cluster::admin::{AdminReply, AdminRequest, BrickInfo, ClusterRequest, SetInfo, VolumeInfo};
use cluster::config;
use cluster::{BrickSpec, Command, NewVolume, OptionChange, State, Volume};
use ids::ServerId;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

const PATIENCE: Duration = Duration::from_secs(30);

impl Control {
    pub(super) async fn admin(self: &Arc<Self>, request: AdminRequest) -> Result<AdminReply, String> {
        match request {
            AdminRequest::PeerProbe { host, port } => self.peer_probe(&host, port).await,
            AdminRequest::PeerDetach { host, force } => self.peer_detach(&host, force).await,
            AdminRequest::PeerReplace { host, by } => self.peer_replace(&host, by.as_deref()).await,
            AdminRequest::PeerStatus => Ok(self.peer_status().await),
            AdminRequest::PoolList => Ok(AdminReply::PoolList(self.peers())),
            AdminRequest::VolumeCreate { name, replica, arbiter, bricks, force } => {
                let replica = replica.unwrap_or(1);
                self.volume_create(name, replica, arbiter.unwrap_or(0), &bricks, force).await
            }
            AdminRequest::VolumeStart { name } => {
                let done = format!("volume {name} is started");
                self.propose(Command::StartVolume { name: name.clone() }).await?;
                self.await_service(&name).await;
                Ok(AdminReply::Done(done))
            }
            AdminRequest::VolumeStop { name } => {
                self.propose(Command::StopVolume { name: name.clone() }).await?;
                Ok(AdminReply::Done(format!("volume {name} is stopped")))
            }
            AdminRequest::VolumeDelete { name } => self.volume_delete(&name).await,
            AdminRequest::VolumeInfo { name } => {
                let state = self.linearizable().await?;
                let infos = chosen(&state, name.as_deref())?.into_iter().map(|v| info(&state, v)).collect();
                Ok(AdminReply::VolumeInfo(infos))
            }
            AdminRequest::VolumeStatus { name } => self.volume_status(name.as_deref()).await,
            AdminRequest::VolumeList => {
                let state = self.linearizable().await?;
                let mut names: Vec<String> = state.volumes.values().map(|v| v.name.clone()).collect();
                names.sort();
                Ok(AdminReply::VolumeList(names))
            }
            AdminRequest::VolumeSet { name, options } => {
                let change = |(key, value)| OptionChange { volume: name.clone(), key, value: Some(value) };
                let changes: Vec<OptionChange> = options.into_iter().map(change).collect();
                let n = changes.len();
                self.propose(Command::SetOptions { changes }).await?;
                Ok(AdminReply::Done(format!(
                    "{n} option{} of volume {name} set",
                    if n == 1 { "" } else { "s" }
                )))
            }
            AdminRequest::VolumeGet { name, key } => {
                let state = self.linearizable().await?;
                let mut lines = volume(&state, &name)?.option_lines();
                if let Some(key) = key {
                    lines.retain(|l| l.key == key);
                    if lines.is_empty() {
                        return Err(cluster::options::unknown(&key).to_string());
                    }
                }
                Ok(AdminReply::Options(lines))
            }
            AdminRequest::VolumeReset { name, key } => self.volume_reset(&name, key).await,
            AdminRequest::ConfigExport => {
                Ok(AdminReply::Document(config::export(&*self.linearizable().await?)))
            }
            AdminRequest::ConfigApply { document, dry_run } => self.config_apply(&document, dry_run).await,
            AdminRequest::VolumePromote { name, brick } => self.volume_promote(&name, &brick).await,
            AdminRequest::VolumeHeal { name } | AdminRequest::VolumeHealInfo { name } => {
                self.heal_info(&name).await
            }
        }
    }

    pub(crate) async fn propose(&self, command: Command) -> Result<(), String> {
        self.store().propose_anywhere(command, PATIENCE).await.map(drop).map_err(|e| e.to_string())
    }

    pub(crate) async fn linearizable(&self) -> Result<Arc<State>, String> {
        self.store().linearizable_state(PATIENCE).await.map_err(|e| e.to_string())
    }

    async fn volume_create(
        &self,
        name: String,
        replica: u32,
        arbiter: u32,
        given: &[String],
        force: bool,
    ) -> Result<AdminReply, String> {
        let _one = self.changing.lock().await;
        let state = self.linearizable().await?;
        let resolved: Result<Vec<BrickSpec>, _> = given.iter().map(|b| state.resolve_brick(b)).collect();
        let specs = resolved.map_err(|e| e.to_string())?;
        let new = NewVolume {
            name: name.clone(),
            replica,
            arbiter,
            bricks: specs.clone(),
            force,
            created: unix_now(),
        };
        // Tried on a copy first: what the pool would refuse needs no look at any disk.
        let mut copy = (*state).clone();
        copy.apply(&Command::CreateVolume(new.clone())).map_err(|e| e.to_string())?;
        self.prepare(&state, &specs, force).await?;
        self.propose(Command::CreateVolume(new)).await?;
        self.make_or_undo(&name).await?;
        Ok(AdminReply::Done(format!("volume {name} is created: start it with mortar volume start {name}")))
    }

    /// Asks every server whether its paths can become bricks.
    async fn prepare(&self, state: &State, specs: &[BrickSpec], force: bool) -> Result<(), String> {
        for spec in specs {
            let Some(server) = state.servers.get(&spec.server) else { continue };
            let request = ClusterRequest::BrickPrepare { path: spec.path.clone(), force };
            let asked = self.ask_cluster(&server.address, request).await;
            asked.map_err(|e| format!("brick {}:{}: {e}", server.host, spec.path))?;
        }
        Ok(())
    }

    /// Has the bricks of a volume made; if one cannot be, the volume goes again.
    async fn make_or_undo(&self, name: &str) -> Result<(), String> {
        let state = self.linearizable().await?;
        if let Err(why) = self.on_all_servers(&state, name, true).await {
            if let Err(e) = self.on_all_servers(&state, name, false).await {
                tracing::warn!("take bricks of volume {name} apart again: {e}");
            }
            self.propose(Command::DeleteVolume { name: name.to_owned() }).await?;
            return Err(why);
        }
        Ok(())
    }

    async fn on_all_servers(&self, state: &State, name: &str, make: bool) -> Result<(), String> {
        let servers: BTreeSet<ServerId> =
            state.sets_of(volume(state, name)?).flat_map(|s| s.bricks.iter().map(|b| b.server)).collect();
        let mut failed = None;
        for server in servers.iter().filter_map(|s| state.servers.get(s)) {
            let request = Request::Bricks { volume: name.to_owned(), make };
            let result = match self.peers.ask(&server.address, &request, PATIENCE).await {
                Ok(Response::Done) => Ok(()),
                Ok(Response::Error(e)) | Err(e) => Err(e),
                Ok(_) => Err(format!("{}: it gave an unexpected answer", server.address)),
            };
            failed = failed.or(result.err());
        }
        failed.map_or(Ok(()), Err)
    }

    /// Makes this server's bricks of a volume, or takes them apart.
    pub(super) async fn bricks(&self, name: &str, make: bool) -> Result<(), String> {
        let state = self.linearizable().await?;
        let volume = volume(&state, name)?;
        let (me, pool) = (self.shared.me(), bricks::pool_bytes(&state));
        for set in state.sets_of(volume) {
            for b in set.bricks.iter().filter(|b| b.server == me) {
                let identity = bricks::identity(pool, volume, set, b);
                let (path, shown) = (b.path.clone(), state.brick_name(b));
                let done = tokio::task::spawn_blocking(move || {
                    let path = Path::new(&path);
                    if make {
                        brick::format(path, &identity).map_err(|e| e.to_string())
                    } else {
                        brick::release(path, &identity)
                    }
                })
                .await
                .map_err(|e| e.to_string())?;
                done.map_err(|e| format!("brick {shown}: {e}"))?;
            }
        }
        Ok(())
    }

    /// Whether a path of this server can become a brick.
    pub(super) async fn check_brick(&self, path: &str, _force: bool) -> Result<(), String> {
        let path = path.to_owned();
        let checked = tokio::task::spawn_blocking(move || brick::check_path(Path::new(&path))).await;
        checked.map_err(|e| e.to_string())?.map_err(|e| e.to_string())
    }

    /// Waits until every set of a started volume has a primary that serves, as long as that is to be expected.
    async fn await_service(&self, name: &str) {
        let serving = async {
            loop {
                if let Ok(AdminReply::VolumeStatus(all)) = self.volume_status(Some(name)).await
                    && let Some(status) = all.first()
                    && self.all_sets_led(name, status)
                {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let _late = tokio::time::timeout(Duration::from_secs(10), serving).await;
    }

    fn all_sets_led(&self, name: &str, status: &cluster::admin::VolumeStatus) -> bool {
        let state = self.state();
        let Some(volume) = state.volume(name) else { return true };
        volume.sets.iter().all(|set| {
            let serving = |b: &&cluster::admin::BrickStatus| {
                b.set == *set && b.online && b.role == cluster::admin::BrickRole::Primary
            };
            status.bricks.iter().any(|b| serving(&b))
        })
    }

    async fn volume_delete(&self, name: &str) -> Result<AdminReply, String> {
        let _one = self.changing.lock().await;
        let state = self.linearizable().await?;
        let mut copy = (*state).clone();
        copy.apply(&Command::DeleteVolume { name: name.to_owned() }).map_err(|e| e.to_string())?;
        let released = self.on_all_servers(&state, name, false).await;
        self.propose(Command::DeleteVolume { name: name.to_owned() }).await?;
        let done = format!("volume {name} is deleted; its files stay in the bricks' directories");
        Ok(AdminReply::Done(match released {
            Ok(()) => done,
            Err(e) => format!("{done}; remove .mortar by hand where this failed: {e}"),
        }))
    }

    async fn volume_reset(&self, name: &str, key: Option<String>) -> Result<AdminReply, String> {
        let state = self.linearizable().await?;
        let keys: Vec<String> = match key {
            Some(key) => vec![key],
            None => volume(&state, name)?.options.keys().cloned().collect(),
        };
        let n = keys.len();
        let changes =
            keys.into_iter().map(|key| OptionChange { volume: name.to_owned(), key, value: None }).collect();
        self.propose(Command::SetOptions { changes }).await?;
        Ok(AdminReply::Done(format!("{n} option{} of volume {name} reset", if n == 1 { "" } else { "s" })))
    }

    async fn config_apply(&self, text: &str, dry_run: bool) -> Result<AdminReply, String> {
        let _one = self.changing.lock().await;
        let document = config::parse(text).map_err(|e| e.to_string())?;
        let state = self.linearizable().await?;
        let command = config::to_command(&state, &document, unix_now()).map_err(|e| e.to_string())?;
        let mut copy = (*state).clone();
        copy.apply(&command).map_err(|e| e.to_string())?;
        let changes = config::diff(&state, &document).iter().map(ToString::to_string).collect();
        if dry_run {
            return Ok(AdminReply::Changes(changes));
        }
        let new: Vec<&Volume> =
            copy.volumes.values().filter(|v| !state.volumes.contains_key(&v.id)).collect();
        for volume in &new {
            let all = copy.sets_of(volume).flat_map(|s| &s.bricks);
            let specs: Vec<BrickSpec> =
                all.map(|b| BrickSpec { server: b.server, path: b.path.clone() }).collect();
            self.prepare(&copy, &specs, false).await?;
        }
        self.propose(command).await?;
        for volume in new {
            self.make_or_undo(&volume.name).await?;
        }
        Ok(AdminReply::Changes(changes))
    }
}

/// The volume of that name.
pub(super) fn volume<'a>(state: &'a State, name: &str) -> Result<&'a Volume, String> {
    state.volume(name).ok_or_else(|| format!("volume {name} does not exist: see mortar volume list"))
}

/// The volume of that name, or all.
pub(super) fn chosen<'a>(state: &'a State, name: Option<&str>) -> Result<Vec<&'a Volume>, String> {
    match name {
        Some(name) => Ok(vec![volume(state, name)?]),
        None => Ok(state.volumes.values().collect()),
    }
}

fn info(state: &State, volume: &Volume) -> VolumeInfo {
    let brick = |b: &cluster::Brick| BrickInfo { id: b.id, name: state.brick_name(b), arbiter: b.arbiter };
    let set = |s: &cluster::Set| SetInfo { id: s.id, bricks: s.bricks.iter().map(brick).collect() };
    VolumeInfo {
        id: volume.id,
        name: volume.name.clone(),
        status: volume.status,
        replica: volume.replica,
        arbiter: volume.arbiter,
        created: volume.created,
        sets: state.sets_of(volume).map(set).collect(),
        options: volume.options.clone(),
    }
}

fn unix_now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

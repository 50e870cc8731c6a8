//! The keys that a server finds in its state folder when it starts, or makes for a pool of its own.
//!
//! Always true: a pool that is secured is never served without keys, the store that is opened is the one that the keys are
//! for, and a pool that was begun here is secured before anybody is served.

use super::peers::Peers;
use super::state_folder::StateFolder;
use super::{Control, open_store};
use crate::clock::unix_now;
use crate::keys::{ServerKeys, server_key};
use crate::limits::ADMIN_WAIT;
use cluster::{Command, Key, KeyHolder, NewServer, Outcome};
use config_store::ConfigStore;
use ids::ServerId;
use server_core::pool_bytes;
use std::path::Path;
use trust::{Authority, PrivateKey};

/// This server's keys.
///
/// # Errors
/// They cannot be used, and the pool takes nobody without.
pub(super) fn read(folder: &StateFolder) -> Result<Option<ServerKeys>, String> {
    let path = folder.keys();
    if !folder.is_secured() && !path.exists() {
        return Ok(None);
    }
    match ServerKeys::read(&path) {
        Ok(keys) => Ok(Some(keys)),
        Err(e) if folder.is_secured() => Err(format!(
            "{e}: restore the folder from a backup, or empty the state folder and join again (mortar pool token --replace \
             HOST on another server, mortar server --join here)"
        )),
        // A first start, or mortar pool secure, was interrupted.
        Err(e) => {
            tracing::info!("{e}: it is made anew");
            Ok(None)
        }
    }
}

/// The server that this one is: by its keys, if it ended while it followed an invitation; then its store is still that of a
/// pool of one, and goes.
///
/// # Errors
/// The keys are another server's than the store, which would be lost.
pub(super) async fn number_by_keys(
    stored: ServerId,
    keys: Option<&ServerKeys>,
    store: &Path,
    peers: &Peers,
) -> Result<ServerId, String> {
    let Some(me) = keys.map(ServerKeys::server).filter(|me| *me != stored) else { return Ok(stored) };
    let own = open_store(store, stored, peers).await?;
    let state = own.state();
    own.shutdown().await;
    if state.servers.len() > 1 || !state.volumes.is_empty() {
        return Err(format!(
            "{}: it is the store of server {stored}, and the keys beside it are those of server {me}: restore those that \
             belong together",
            store.display()
        ));
    }
    ConfigStore::wipe(store).map_err(|e| format!("{}: {e}", store.display()))?;
    tracing::info!("this server had begun to follow an invitation: it goes on as server {me}");
    Ok(me)
}

impl Control {
    /// A pool of this server alone, which lets nobody in without a key. Doing it again after a crash half-way is fine.
    pub(super) async fn make_pool(&self, store: &ConfigStore) -> Result<(), String> {
        // As long as this is there and nothing else says that the pool is secured, a start goes on here.
        self.folder.begin_keys().map_err(|e| format!("{}: {e}", self.folder.keys().display()))?;
        let host = self.address.rsplit_once(':').map_or(self.address.as_str(), |(h, _)| h);
        let server = NewServer {
            identity: self.folder.identity.clone(),
            host: host.trim_matches(['[', ']']).to_owned(),
            address: self.address.clone(),
        };
        let pool = cluster::hex::encode(rand::random());
        store.init_pool(pool, server).await.map_err(|e| e.to_string())?;
        self.secure_alone(store).await
    }

    /// Makes a pool of this server alone if this is its first start, or if that was interrupted before the pool was secured.
    pub(super) async fn begin_pool(
        &self,
        store: &ConfigStore,
        me: ServerId,
        first_start: bool,
    ) -> Result<(), String> {
        let state = store.state();
        let alone = me == ServerId(1) && state.servers.len() <= 1 && state.volumes.is_empty();
        if first_start || alone && !self.folder.is_secured() && self.folder.keys().exists() {
            self.make_pool(store).await?;
        }
        self.log_fingerprint();
        Ok(())
    }

    /// Makes the authority of a pool of one, and this server's key.
    async fn secure_alone(&self, store: &ConfigStore) -> Result<(), String> {
        let state = store.linearizable_state(ADMIN_WAIT).await.map_err(|e| e.to_string())?;
        if state.keys.secured {
            // Only the folder does not know it yet, and its keys were written before.
            self.shared.set_secured(true);
            return self.folder.note_secured().map_err(|e| e.to_string());
        }
        let me = *state.servers.keys().next().ok_or("the pool has no server")?;
        let propose = async |command: Command| {
            store.propose_anywhere(command, ADMIN_WAIT).await.map_err(|e| format!("secure the pool: {e}"))
        };
        let authority = PrivateKey::generate().and_then(|key| Authority::new(pool_bytes(&state), key));
        let authority = authority.map_err(|e| e.to_string())?;
        let key = Key { holder: KeyHolder::Server(me), created: unix_now(), until: None };
        let Outcome::Key(number) = propose(Command::AddKey(key)).await? else {
            return Err("secure the pool: it gave an unexpected answer".to_owned());
        };
        let own = server_key(&authority, me, number).map_err(|e| e.to_string())?;
        let keys = ServerKeys::new(authority, own)?;
        keys.write(&self.folder.keys())?;
        propose(Command::SecurePool { keys: [(me, number)].into() }).await?;
        self.use_keys(keys)
    }

    /// Logs by what others know this server's pool.
    pub(super) fn log_fingerprint(&self) {
        if let Some(keys) = self.shared.keys() {
            tracing::info!("the pool's authority has fingerprint {}", keys.authority().fingerprint());
        }
    }
}

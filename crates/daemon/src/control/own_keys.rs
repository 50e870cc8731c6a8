//! The keys that a server finds in its state folder when it starts.
//!
//! Always true: a pool that is secured is never served without keys, and the store that is opened is the one that the keys
//! are for.

use super::open_store;
use super::peers::Peers;
use super::state_folder::StateFolder;
use crate::keys::ServerKeys;
use config_store::ConfigStore;
use ids::ServerId;
use std::path::Path;

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
        Err(e) => {
            tracing::warn!("{e}: an interrupted mortar pool secure left it");
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

//! Disaster recovery, with the server stopped: the pool goes on from one state folder.

use crate::control::state_folder::StateFolder;
use config_store::{ConfigStore, Recovery};
use std::path::Path;

/// The state folder of a stopped server.
#[derive(Debug)]
pub struct RecoveryFolder {
    folder: StateFolder,
}

/// What a recovery does, or did.
#[derive(Clone, Debug)]
pub struct RecoveryReport {
    /// The version of the pool's state that it goes on from.
    pub version: u64,
    /// The servers that are fenced off.
    pub lost: Vec<String>,
    /// What may be lost, and what to do.
    pub notes: Vec<String>,
}

impl From<Recovery> for RecoveryReport {
    fn from(r: Recovery) -> RecoveryReport {
        RecoveryReport { version: r.state.version, lost: r.lost, notes: r.notes }
    }
}

impl RecoveryFolder {
    /// Takes the folder, which no server may have in use.
    ///
    /// # Errors
    /// One line that says why it cannot be used.
    pub fn open(path: &Path) -> Result<RecoveryFolder, String> {
        if !path.join("store/pool.redb").exists() {
            return Err(format!("state folder {}: no server was ever started with it", path.display()));
        }
        Ok(RecoveryFolder { folder: StateFolder::open(path)? })
    }

    /// What a recovery would do. Changes nothing.
    ///
    /// # Errors
    /// One line that says why there can be none.
    pub fn plan(&self) -> Result<RecoveryReport, String> {
        ConfigStore::plan_recovery(&self.folder.store()).map(RecoveryReport::from).map_err(|e| e.to_string())
    }

    /// Does it.
    ///
    /// # Errors
    /// One line that says why it was not done.
    pub fn recover(&self) -> Result<RecoveryReport, String> {
        let store = self.folder.store();
        let stored = ConfigStore::stored_server(&store).map_err(|e| e.to_string())?;
        let me = stored.ok_or_else(|| format!("{}: there is no pool store", store.display()))?;
        ConfigStore::recover_single(&store, me).map(RecoveryReport::from).map_err(|e| e.to_string())
    }
}

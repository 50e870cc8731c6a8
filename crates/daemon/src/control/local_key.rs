//! Keys for root of this server's machine, who needs to bring none: for mounts, and for commands to other servers of the pool.
//!
//! The pool's store knows one client of each server and volume, and one administrator of each server; whoever asks gets
//! another file for that number. They go with the server, and can be revoked like others.

use super::Control;
use super::answers::failed;
use super::volumes::volume;
use crate::clock::unix_now;
use crate::keys::Signing;
use crate::speaker::{local_admin, local_client};
use admin::{AdminError, ErrorCode, GetLocalKey, LocalKey};
use cluster::{ClientKey, Command, Key, KeyHolder, State};
use ids::{KeyId, ServerId};
use trust::{Holder, KeyName};

impl Control {
    pub(super) async fn local_key(&self, request: GetLocalKey) -> Result<LocalKey, AdminError> {
        if !self.shared.is_secured() {
            return Ok(LocalKey { file: None });
        }
        let keys = self.own_keys()?;
        // What this server knows is enough if it is not new: it may be cut off from the others.
        let (name, number) = match self.known_local_key(&self.state(), &request) {
            Ok((name, _, Some(number))) => (name, number),
            _ => self.agreed_local_key(&request).await?,
        };
        let name =
            KeyName::new(&name).ok_or_else(|| failed(format!("{name} cannot be the name of a key")))?;
        let holder = if request.volume.is_some() { Holder::Client(name) } else { Holder::Admin(name) };
        // What this server knows is enough here, too: as long as keys of the old authority are let in, all believe it.
        let signing = Signing::of(&self.state(), number);
        let file = keys.issue(&signing, holder, None).map_err(failed)?.encode();
        Ok(LocalKey { file: Some(file) })
    }

    /// What the key is called, whose it is, and its number if the pool has one.
    fn known_local_key(
        &self,
        state: &State,
        request: &GetLocalKey,
    ) -> Result<(String, KeyHolder, Option<KeyId>), AdminError> {
        let me = self.shared.me();
        let (name, holder) = match &request.volume {
            None => (local_admin(me), KeyHolder::Admin { name: local_admin(me) }),
            Some(of) => {
                let volume = volume(state, of)?.id;
                let name = local_client(me, volume);
                (
                    name.clone(),
                    KeyHolder::Client(ClientKey {
                        name,
                        volume,
                        read_only: false,
                        squash: None,
                        users: vec![],
                        subdir: None,
                    }),
                )
            }
        };
        let mut all = state.keys.keys.iter();
        let known = all.find(|(_, key)| key.holder == holder && key.until.is_none()).map(|(id, _)| *id);
        Ok((name, holder, known))
    }

    async fn agreed_local_key(&self, request: &GetLocalKey) -> Result<(String, KeyId), AdminError> {
        let (name, holder, known) = self.known_local_key(&*self.linearizable().await?, request)?;
        if let Some(number) = known {
            return Ok((name, number));
        }
        match self.add_key(Key { holder, created: unix_now(), until: None }).await {
            Ok(number) => Ok((name, number)),
            // Somebody else mounted at the same time.
            Err(e) if e.code == ErrorCode::Exists => {
                let (_, _, known) = self.known_local_key(&*self.linearizable().await?, request)?;
                known.map(|number| (name, number)).ok_or(e)
            }
            Err(e) => Err(e),
        }
    }

    /// A server is out of the pool: root of its machine is let in no more.
    pub(super) async fn revoke_local_keys(&self, server: ServerId) {
        let Ok(state) = self.linearizable().await else { return };
        let root = local_admin(server);
        let volumes = format!("{root}.volume");
        let own = state.keys.keys.iter().filter(|(_, key)| {
            let name = state.key_name(key);
            !matches!(key.holder, KeyHolder::Server(_)) && (name == root || name.starts_with(&volumes))
        });
        for (key, _) in own {
            if let Err(e) = self.propose(Command::RevokeKey { key: *key }).await {
                tracing::warn!(%key, "revoke the key of root on server {server}: {e}");
            }
        }
    }
}

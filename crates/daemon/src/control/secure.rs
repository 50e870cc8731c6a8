//! Keys as an administrator makes them: the pool's authority, keys of servers, clients and administrators, tokens to join.

use super::answers::{conflict, failed, not_agreed, not_found, refused};
use super::protocol::{ClusterReply, ClusterRequest, NewKeys};
use super::volumes::volume;
use super::{Control, answers, membership};
use crate::clock::unix_now;
use crate::findings::server_named;
use crate::keys::{ServerKeys, server_key};
use crate::limits::{ADMIN_WAIT, SECURED_WAIT};
use admin::{
    AdminError, ClientAdd, ClientRotate, GetPoolToken, KeyList, KeyMade, KeysRevoked, PoolSecured, PoolToken,
};
use cluster::{
    Command, GROUPS_ARE_LOOKED_UP_AGAIN, Key, KeyHolder, KeyRefusal, Outcome, State, Token, is_local_name,
};
use ids::{KeyId, ServerId};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use trust::{Authority, Holder, JoinToken, KeyFile, KeyName, PrivateKey, hex};

/// The name of a key, which the pool's store has checked.
pub(super) fn key_name(name: &str) -> Result<KeyName, AdminError> {
    if is_local_name(name) {
        return Err(conflict(format!(
            "key name '{name}': servers give such names to keys of root on their machines"
        )));
    }
    KeyName::new(name).ok_or_else(|| refused(&KeyRefusal::Name { name: name.to_owned() }.into()))
}

impl Control {
    /// Makes the pool's authority, gives each server a key, and lets nobody in without one from then on.
    pub(super) async fn pool_secure(self: &Arc<Self>) -> Result<PoolSecured, AdminError> {
        let _one = self.changing.lock().await;
        let state = self.linearizable().await?;
        if state.keys.secured {
            let fingerprint = self.shared.keys().map(|keys| keys.authority().fingerprint().to_string());
            let fingerprint = fingerprint.ok_or_else(|| refused(&KeyRefusal::Secured.into()))?;
            return Ok(PoolSecured { fingerprint, servers: 0 });
        }
        if let Some(lost) = state.servers.values().find(|s| s.lost) {
            let host = ids::bracketed(&lost.host);
            return Err(conflict(format!(
                "server {host} is fenced off: replace it first (mortar peer replace {host})"
            )));
        }
        let pool = server_core::pool_bytes(&state);
        let authority = PrivateKey::generate().and_then(|key| Authority::new(pool, key)).map_err(failed)?;
        let mut keys = BTreeMap::new();
        for server in state.servers.values() {
            let key = self.secure_server(&authority, server).await;
            keys.insert(server.id, key.map_err(|e| e.before(&format!("{}: ", server_named(&server.host))))?);
        }
        let servers = u32::try_from(keys.len()).unwrap_or(u32::MAX);
        self.propose(Command::SecurePool { keys }).await?;
        self.await_secured(&state).await;
        tracing::info!(fingerprint = %authority.fingerprint(), "the pool is secured");
        Ok(PoolSecured { fingerprint: authority.fingerprint().to_string(), servers })
    }

    /// Waits until all servers know it. What is asked of them before might be lost with the connections that end.
    async fn await_secured(&self, state: &State) {
        let all = async {
            for server in state.servers.values() {
                while self.peers.lets_anybody_in(&server.address).await {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
        };
        if tokio::time::timeout(SECURED_WAIT, all).await.is_err() {
            tracing::warn!("the pool is secured, but not all its servers know it yet");
        }
        self.peers.forget();
    }

    /// Has a server take its key and the authority.
    async fn secure_server(
        &self,
        authority: &Authority,
        server: &cluster::Server,
    ) -> Result<KeyId, AdminError> {
        let holder = KeyHolder::Server(server.id);
        let key = self.add_key(Key { holder, created: unix_now(), until: None }).await?;
        let own = server_key(authority, server.id, key).map_err(failed)?;
        let keys = NewKeys { server: server.id, authority: authority.encode(), key: own.encode() };
        if server.id == self.shared.me() {
            self.take_keys(&keys)?;
        } else {
            self.ask_cluster(&server.address, ClusterRequest::TakeKeys(keys)).await?;
        }
        Ok(key)
    }

    /// Takes keys that a server of a pool without keys gives.
    pub(super) fn take_keys(&self, given: &NewKeys) -> Result<ClusterReply, AdminError> {
        if self.shared.is_secured() {
            return Err(refused(&KeyRefusal::Secured.into()));
        }
        let authority = Authority::decode(given.authority.as_bytes()).map_err(failed)?;
        let own = KeyFile::decode(given.key.as_bytes()).map_err(failed)?;
        let me = self.shared.me();
        if authority.pool() != self.shared.pool() || own.identity().holder != Holder::Server(me) {
            return Err(conflict(format!("{}: the keys are another server's", self.address)));
        }
        let keys = ServerKeys::new(authority, own).map_err(failed)?;
        keys.write(&self.folder.keys()).map_err(failed)?;
        self.shared.set_keys(Some(keys));
        Ok(ClusterReply::Done)
    }

    async fn proposed(&self, command: Command) -> Result<Outcome, AdminError> {
        self.store().propose_anywhere(command, ADMIN_WAIT).await.map_err(|e| not_agreed(&e))
    }

    async fn numbered(&self, command: Command) -> Result<KeyId, AdminError> {
        match self.proposed(command).await? {
            Outcome::Key(key) => Ok(key),
            _ => Err(failed("the pool gave an unexpected answer")),
        }
    }

    pub(super) async fn add_key(&self, key: Key) -> Result<KeyId, AdminError> {
        self.numbered(Command::AddKey(key)).await
    }

    /// This server's keys, if the pool is secured.
    pub(super) fn own_keys(&self) -> Result<Arc<ServerKeys>, AdminError> {
        self.shared
            .keys()
            .filter(|_| self.shared.is_secured())
            .ok_or_else(|| refused(&KeyRefusal::NotSecured.into()))
    }

    /// Makes the file of a key that the store has given a number.
    async fn made(
        &self,
        (name, key): (String, KeyId),
        holder: Holder,
        until: Option<u64>,
    ) -> Result<KeyMade, AdminError> {
        let signing = self.signing(key).await?;
        let file = self.own_keys()?.issue(&signing, holder, until).map_err(failed)?.encode();
        tracing::info!(%key, name, "a key was made");
        Ok(KeyMade { name, key, file, until })
    }

    pub(super) async fn pool_key(&self, name: String) -> Result<KeyMade, AdminError> {
        self.own_keys()?;
        let holder = key_name(&name)?;
        let key = Key { holder: KeyHolder::Admin { name: name.clone() }, created: unix_now(), until: None };
        let number = self.add_key(key).await?;
        self.made((name, number), Holder::Admin(holder), None).await
    }

    pub(super) async fn client_add(&self, request: ClientAdd) -> Result<KeyMade, AdminError> {
        self.own_keys()?;
        let (name, holder) = (request.name.clone(), key_name(&request.name)?);
        let volume = volume(&*self.linearizable().await?, &request.volume)?.id;
        let created = unix_now();
        let until = request.expires.map(|after| created.saturating_add(after));
        let subdir = match &request.subdir {
            Some(path) => Some(self.subdir_of(&request.volume, path.clone()).await?),
            None => None,
        };
        let client = KeyHolder::Client(answers::asked_client(request, volume, subdir));
        let number = self.add_key(Key { holder: client, created, until }).await?;
        self.made((name, number), Holder::Client(holder), until).await
    }

    pub(super) async fn client_list(&self) -> Result<KeyList, AdminError> {
        let state = self.linearizable().await?;
        let (connections, now) = (self.shared.guests.by_key(), unix_now());
        let line = |(id, key): (&KeyId, &Key)| {
            answers::key_line(&state, *id, key, connections.get(id).copied().unwrap_or_default())
        };
        let good = state.keys.keys.iter().filter(|(id, _)| state.keys.get(**id, now).is_some());
        Ok(KeyList { keys: good.map(line).collect() })
    }

    pub(super) async fn client_revoke(&self, name: String) -> Result<KeysRevoked, AdminError> {
        let state = self.linearizable().await?;
        let own = named(&state, &name);
        if own.is_empty() {
            return Err(unknown(&name));
        }
        for (key, _) in &own {
            self.propose(Command::RevokeKey { key: *key }).await?;
        }
        tracing::info!(name, keys = own.len(), "keys were revoked");
        Ok(KeysRevoked { name, keys: u32::try_from(own.len()).unwrap_or(u32::MAX) })
    }

    pub(super) async fn client_rotate(&self, request: ClientRotate) -> Result<KeyMade, AdminError> {
        self.own_keys()?;
        let name = request.name;
        let (state, now) = (self.linearizable().await?, unix_now());
        let is_good = |(id, _): &(KeyId, Key)| state.keys.get(*id, now).is_some();
        // The newest: older ones are about to end.
        let newest = named(&state, &name).into_iter().rfind(is_good);
        let (old, key) = newest.ok_or_else(|| unknown(&name))?;
        let holder = key_name(&name)?;
        let holder = match key.holder {
            KeyHolder::Admin { .. } => Holder::Admin(holder),
            _ => Holder::Client(holder),
        };
        let (end, users) = (now.saturating_add(request.after), request.users);
        if !users.is_empty() && state.level < GROUPS_ARE_LOOKED_UP_AGAIN {
            return Err(conflict(
                "a server of the pool would not hear of the users' other groups: update all servers first, or keep the groups \
                 as they were (--keep-groups)"
                    .to_owned(),
            ));
        }
        let number = self.numbered(Command::RotateKey { key: old, created: now, end, users }).await?;
        self.made((name, number), holder, key.until).await
    }

    pub(super) async fn pool_token(&self, request: GetPoolToken) -> Result<PoolToken, AdminError> {
        let keys = self.own_keys()?;
        let state = self.linearizable().await?;
        let replaces = request.replace.as_deref().map(|host| membership::find(&state, host).map(|s| s.id));
        let replaces: Option<ServerId> = replaces.transpose()?;
        if replaces == Some(self.shared.me()) {
            return Err(conflict("a server is not replaced by itself: ask another one".to_owned()));
        }
        let now = unix_now();
        let (secret, until) = (rand::random(), now.saturating_add(request.valid));
        let fingerprint = keys.authority().fingerprint();
        let hash = hex(&JoinToken::new(fingerprint, KeyId(0), secret, until).stored().secret_hash);
        let token = Token { hash, until, replaces, spent: None };
        let number = self.numbered(Command::AddToken { token, now }).await?;
        let token = JoinToken::new(fingerprint, number, secret, until).text();
        Ok(PoolToken { token, until, address: self.address.clone() })
    }
}

/// The keys of clients and administrators of that name, the newest last.
fn named(state: &State, name: &str) -> Vec<(KeyId, Key)> {
    let is = |key: &Key| !matches!(key.holder, KeyHolder::Server(_)) && state.key_name(key) == name;
    state.keys.keys.iter().filter(|(_, key)| is(key)).map(|(id, key)| (*id, key.clone())).collect()
}

fn unknown(name: &str) -> AdminError {
    not_found(format!("there is no key of the name {name}: see mortar client list"))
}

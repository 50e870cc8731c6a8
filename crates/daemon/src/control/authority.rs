//! Another authority takes the place of the pool's while the pool serves.
//!
//! Always true: a key is shown only when whoever is to believe it believes the authority that signed it. So all servers
//! believe the next authority before it signs anything, all keys are its own before the one before is forgotten, and each step
//! is known to be done on all servers before the next one begins. Each step may be done again.

use super::answers::{conflict, failed, refused};
use super::protocol::{ClusterReply, ClusterRequest, NextAuthority};
use super::{Control, membership};
use crate::clock::unix_now;
use crate::keys::ServerKeys;
use crate::speaker::is_local_name;
use admin::{AdminError, AuthorityRotated, PoolRotateAuthority};
use cluster::{Command, KeyHolder, KeyRefusal, Server, State};
use ids::KeyId;
use std::collections::BTreeSet;
use std::sync::Arc;
use trust::{Authority, PrivateKey};

impl Control {
    /// Begins or ends a change of the authority.
    pub(super) async fn pool_rotate_authority(
        self: &Arc<Self>,
        request: PoolRotateAuthority,
    ) -> Result<AuthorityRotated, AdminError> {
        self.own_keys()?;
        let state = self.linearizable().await?;
        if let Some(lost) = state.servers.values().find(|s| s.lost) {
            let host = &lost.host;
            return Err(conflict(format!(
                "server {host} is fenced off: replace it first (mortar peer replace {host})"
            )));
        }
        if !request.finish {
            return self.begin_authority(&state).await;
        }
        // The key with which somebody asks may be one that ends, and his connection with it.
        let this = self.clone();
        tokio::spawn(async move { this.end_authority(request.force).await }).await.map_err(failed)?
    }

    /// Whether the next authority signs the key of that number, which the pool's store has given.
    pub(super) async fn is_signed_by_next(&self, key: KeyId) -> Result<bool, AdminError> {
        Ok(self.linearizable().await?.is_signed_by_next(key))
    }

    async fn begin_authority(&self, state: &State) -> Result<AuthorityRotated, AdminError> {
        let keys = self.own_keys()?;
        let known = state.keys.change.as_ref().map(|change| change.next.as_str());
        let (file, next) = match (keys.next(), known) {
            (Some(next), Some(known)) if next.fingerprint().to_string() == known => {
                (next.encode(), next.fingerprint())
            }
            (_, Some(_)) => {
                return Err(conflict(
                    "another authority is taking the place of the pool's, and this server does not have it yet: ask the \
                     server that began, or end it (mortar pool rotate-authority --finish)"
                        .to_owned(),
                ));
            }
            (_, None) => {
                let made = PrivateKey::generate().and_then(|key| Authority::new(self.shared.pool(), key));
                let made = made.map_err(failed)?;
                (made.encode(), made.fingerprint())
            }
        };
        self.all_believe(&file).await?;
        self.propose(Command::BeginAuthority { next: next.to_string() }).await?;
        // Somebody who began at the same time may have given some of them another one. He is refused now.
        self.all_believe(&file).await?;
        let state = self.linearizable().await?;
        let old_keys = names(&state, old_keys(&state));
        tracing::info!(fingerprint = %next, "another authority signs the pool's keys from now on");
        Ok(AuthorityRotated { fingerprint: next.to_string(), old_keys, finished: false })
    }

    /// All servers believe that authority.
    async fn all_believe(&self, file: &str) -> Result<(), AdminError> {
        for server in self.linearizable().await?.servers.values() {
            let done = if server.id == self.shared.me() {
                self.believe_authority(file).await
            } else {
                let given = NextAuthority(file.to_owned());
                self.ask_cluster(&server.address, ClusterRequest::BelieveAuthority(given)).await
            };
            expect_done(server, done)?;
        }
        Ok(())
    }

    /// Believes another authority, too. Until the pool has agreed on one it may be another one than before.
    pub(super) async fn believe_authority(&self, file: &str) -> Result<ClusterReply, AdminError> {
        let _one = self.changing.lock().await;
        let keys = self.own_keys()?;
        let next = Authority::decode(file.as_bytes()).map_err(failed)?;
        let fingerprint = next.fingerprint().to_string();
        let agreed = self.linearizable().await?.keys.change.as_ref().map(|change| change.next.clone());
        if agreed.is_some_and(|agreed| agreed != fingerprint) {
            return Err(refused(&KeyRefusal::AuthorityChanges.into()));
        }
        if !keys.has(&fingerprint) {
            self.take_up(keys.with_next(next).map_err(failed)?)?;
        }
        Ok(ClusterReply::Done)
    }

    /// Uses these keys from now on.
    fn take_up(&self, keys: ServerKeys) -> Result<(), AdminError> {
        keys.write(&self.folder.keys()).map_err(failed)?;
        self.shared.set_keys(Some(keys));
        self.peers.forget();
        Ok(())
    }

    async fn end_authority(&self, force: bool) -> Result<AuthorityRotated, AdminError> {
        let state = self.linearizable().await?;
        let Some(change) = state.keys.change.clone() else {
            return Err(refused(&KeyRefusal::AuthorityStays.into()));
        };
        let old = old_keys(&state);
        let old_keys = names(&state, old.iter().copied());
        if !old_keys.is_empty() && !force {
            return Err(conflict(format!(
                "the old authority has signed keys that are in use: {}: make them anew (mortar client rotate NAME --after 0s), \
                 or let them end (--force)",
                old_keys.join(", ")
            )));
        }
        // Mounts of root on servers' machines ask for another key at once, which believes both.
        for (key, known) in state.keys_of_old_authority() {
            if !matches!(known.holder, KeyHolder::Server(_)) {
                self.propose(Command::RevokeKey { key }).await?;
            }
        }
        for server in state.servers.values() {
            if has_old_key(&*self.linearizable().await?, server) {
                self.rotate_key_of(server).await.map_err(|e| e.before(&of(server)))?;
            }
        }
        for server in state.servers.values() {
            let done = if server.id == self.shared.me() {
                self.replace_authority(&change.next).await
            } else {
                let next = change.next.clone();
                self.ask_cluster(&server.address, ClusterRequest::ReplaceAuthority { next }).await
            };
            expect_done(server, done)?;
        }
        self.propose(Command::EndAuthority { next: change.next.clone() }).await?;
        tracing::info!(fingerprint = change.next, "the pool has another authority, and only that one");
        Ok(AuthorityRotated { fingerprint: change.next, old_keys, finished: true })
    }

    /// Believes only the next authority from now on.
    pub(super) async fn replace_authority(&self, next: &str) -> Result<ClusterReply, AdminError> {
        let _one = self.changing.lock().await;
        let keys = self.own_keys()?;
        let state = self.linearizable().await?;
        let agreed = state.keys.change.as_ref().is_some_and(|change| change.next == next);
        if !agreed || !keys.has(next) || state.keys_of_old_authority().next().is_some() {
            return Err(refused(&KeyRefusal::OldKeys.into()));
        }
        if keys.next().is_some() || keys.authorities().len() > 1 {
            self.take_up(keys.with_next_alone().map_err(failed)?)?;
        }
        Ok(ClusterReply::Done)
    }
}

/// The keys in use that the old authority has signed and somebody has to make anew: not those of servers, nor those that
/// root on their machines gets by itself.
fn old_keys(state: &State) -> Vec<KeyId> {
    let now = unix_now();
    let by_hand = |key: &cluster::Key| {
        !matches!(key.holder, KeyHolder::Server(_)) && !is_local_name(&state.key_name(key))
    };
    let old =
        state.keys_of_old_authority().filter(|(id, key)| by_hand(key) && state.keys.get(*id, now).is_some());
    old.map(|(id, _)| id).collect()
}

fn names(state: &State, keys: impl IntoIterator<Item = KeyId>) -> Vec<String> {
    let known = keys.into_iter().filter_map(|id| state.keys.keys.get(&id));
    known.map(|key| state.key_name(key)).collect::<BTreeSet<String>>().into_iter().collect()
}

fn has_old_key(state: &State, server: &Server) -> bool {
    state.keys_of_old_authority().any(|(_, key)| key.holder == KeyHolder::Server(server.id))
}

fn of(server: &Server) -> String {
    format!("server {}: ", server.host)
}

fn expect_done(server: &Server, done: Result<ClusterReply, AdminError>) -> Result<(), AdminError> {
    match done {
        Ok(ClusterReply::Done) => Ok(()),
        Ok(_) => Err(membership::unexpected(&server.address)),
        Err(e) => Err(e.before(&of(server)).after("; do it again when all servers are there")),
    }
}

//! Another authority takes the place of the pool's while the pool serves.
//!
//! Always true: a key is shown only when whoever is to believe it believes the authority that signed it. So all servers
//! believe the next authority before it signs anything, all keys are its own before the one before is forgotten, and each step
//! is known to be done on all servers before the next one begins. Each step may be done again, and by two administrators at
//! once: servers take only the authority that the pool's store has announced last.

use super::answers::{conflict, failed, refused};
use super::protocol::{ClusterReply, ClusterRequest, NextAuthority};
use super::{Control, membership};
use crate::clock::unix_now;
use crate::findings::server_named;
use crate::keys::{ServerKeys, Signing};
use admin::{AdminError, AuthorityRotated, ErrorCode, PoolRotateAuthority};
use cluster::{AuthorityChange, Command, Key, KeyHolder, KeyRefusal, Server, State, is_local_name};
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
            let host = ids::bracketed(&lost.host);
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

    /// Who signs the key of that number, which the pool's store has given.
    pub(super) async fn signing(&self, key: KeyId) -> Result<Signing, AdminError> {
        Ok(Signing::of(&*self.linearizable().await?, key))
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
                    "another authority is taking the place of the pool's: end that (mortar pool rotate-authority --finish), or \
                     ask the server that began"
                        .to_owned(),
                ));
            }
            (_, None) => {
                let made = PrivateKey::generate().and_then(|key| Authority::new(self.shared.pool(), key));
                let made = made.map_err(failed)?;
                let next = made.fingerprint();
                self.propose(Command::AnnounceAuthority { next: next.to_string() }).await?;
                (made.encode(), next)
            }
        };
        self.all_believe(&file).await?;
        self.propose(Command::BeginAuthority { next: next.to_string() }).await?;
        // Somebody may have joined meanwhile.
        self.all_believe(&file).await?;
        let state = self.linearizable().await?;
        let old_keys = names(&state, old_keys(&state));
        tracing::info!(fingerprint = %next, "another authority signs the pool's keys from now on");
        Ok(AuthorityRotated { fingerprint: next.to_string(), old_keys, ..AuthorityRotated::default() })
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

    /// Believes another authority, too, which the pool's store has announced. It may be another one than before: then nothing
    /// was signed by that.
    pub(super) async fn believe_authority(&self, file: &str) -> Result<ClusterReply, AdminError> {
        let _one = self.changing.lock().await;
        let keys = self.own_keys()?;
        let next = Authority::decode(file.as_bytes()).map_err(failed)?;
        let fingerprint = next.fingerprint().to_string();
        // After that nobody can have this server take one that was announced before: he would have to take its turn.
        if self.linearizable().await?.authority_to_come() != Some(&*fingerprint) {
            return Err(refused(&KeyRefusal::AnotherAuthority.into()));
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
        let Some(change) = &state.keys.change else {
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
        let done = self.forget_old_authority(&state, change).await;
        let after = self.linearizable().await?;
        // Unless somebody else has ended it at the same time.
        if after.keys.change.as_ref().is_some_and(|now| now.next == change.next) {
            done?;
        }
        let made_since =
            after.keys.keys.range(change.first..).filter(|(id, key)| is_made_by_hand(&after, **id, key));
        let believe_both = names(&after, made_since.map(|(id, _)| *id));
        tracing::info!(fingerprint = change.next, "the pool has another authority, and only that one");
        let fingerprint = change.next.clone();
        Ok(AuthorityRotated { fingerprint, old_keys, believe_both, finished: true })
    }

    /// All keys become the next authority's, then all servers believe it alone.
    async fn forget_old_authority(&self, state: &State, change: &AuthorityChange) -> Result<(), AdminError> {
        // Mounts of root on servers' machines ask for another key at once, which believes both.
        for (key, known) in state.keys_of_old_authority() {
            if !matches!(known.holder, KeyHolder::Server(_)) {
                self.revoke_if_there(key).await?;
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
        self.propose(Command::EndAuthority { next: change.next.clone() }).await
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

/// The keys in use that the old authority has signed and somebody has to make anew.
fn old_keys(state: &State) -> Vec<KeyId> {
    let old = state.keys_of_old_authority().filter(|(id, key)| is_made_by_hand(state, *id, key));
    old.map(|(id, _)| id).collect()
}

/// Whether a key is in use and somebody has its file: not those of servers, nor those that root on their machines gets by
/// itself.
fn is_made_by_hand(state: &State, id: KeyId, key: &Key) -> bool {
    let by_itself = matches!(key.holder, KeyHolder::Server(_)) || is_local_name(&state.key_name(key));
    !by_itself && state.keys.get(id, unix_now()).is_some()
}

fn names(state: &State, keys: impl IntoIterator<Item = KeyId>) -> Vec<String> {
    let known = keys.into_iter().filter_map(|id| state.keys.keys.get(&id));
    known.map(|key| state.key_name(key)).collect::<BTreeSet<String>>().into_iter().collect()
}

fn has_old_key(state: &State, server: &Server) -> bool {
    state.keys_of_old_authority().any(|(_, key)| key.holder == KeyHolder::Server(server.id))
}

fn of(server: &Server) -> String {
    format!("{}: ", server_named(&server.host))
}

fn expect_done(server: &Server, done: Result<ClusterReply, AdminError>) -> Result<(), AdminError> {
    match done {
        Ok(ClusterReply::Done) => Ok(()),
        Ok(_) => Err(membership::unexpected(&server.address)),
        Err(e) if e.code == ErrorCode::Conflict => Err(e.before(&of(server))),
        Err(e) => Err(e.before(&of(server)).after("; do it again when all servers are there")),
    }
}

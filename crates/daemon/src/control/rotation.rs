//! Servers' keys are replaced while the servers serve.
//!
//! Always true: the key in a server's folder is one that the pool's store lets in. So a new one is in the store before it is
//! written, and used before the old one is revoked. A crash in between leaves a number that nobody has a key of; the next
//! rotation revokes it. Only older ones are revoked: the key with a later number is of somebody who rotates at the same time.

use super::answers::{conflict, failed};
use super::protocol::{ClusterReply, ClusterRequest};
use super::{Control, membership};
use crate::clock::unix_now;
use crate::findings::server_named;
use admin::{AdminError, ErrorCode, KeysRotated, RotatedKey};
use cluster::{Command, Key, KeyHolder, Server};
use ids::{KeyId, ServerId};

impl Control {
    /// Has that server, or one after the other, make itself another key. The old ones are revoked then: connections on which
    /// they were shown end, and are made anew with the new ones.
    pub(super) async fn pool_rotate_key(&self, server: Option<&str>) -> Result<KeysRotated, AdminError> {
        self.own_keys()?;
        let state = self.linearizable().await?;
        let chosen: Vec<Server> = match server {
            Some(host) => vec![membership::find(&state, host)?.clone()],
            None => state.servers.values().cloned().collect(),
        };
        if let Some(lost) = chosen.iter().find(|s| s.lost) {
            let host = ids::bracketed(&lost.host);
            return Err(conflict(format!(
                "server {host} is fenced off: replace it (mortar peer replace {host})"
            )));
        }
        let mut done = KeysRotated::default();
        for server in chosen {
            match self.rotate_key_of(&server).await {
                Ok(key) => done.servers.push(RotatedKey { host: server.host, key }),
                Err(e) => {
                    let before: Vec<String> = done.servers.iter().map(|s| ids::bracketed(&s.host)).collect();
                    let e = e.before(&format!("{}: ", server_named(&server.host)));
                    return Err(match before.as_slice() {
                        [] => e,
                        hosts => e.after(&format!("; these have other keys already: {}", hosts.join(", "))),
                    });
                }
            }
        }
        Ok(done)
    }

    pub(super) async fn rotate_key_of(&self, server: &Server) -> Result<KeyId, AdminError> {
        let key = if server.id == self.shared.me() {
            self.take_another_key().await?
        } else {
            match self.ask_cluster(&server.address, ClusterRequest::RotateKey).await? {
                ClusterReply::KeyRotated(key) => key,
                _ => return Err(membership::unexpected(&server.address)),
            }
        };
        // Here, not there: with the old key the connection ends on which the answer comes.
        self.revoke_older(server.id, key).await?;
        tracing::info!(server = %server.id, %key, "a server has another key");
        Ok(key)
    }

    /// This server makes itself another key and uses it from now on.
    pub(super) async fn take_another_key(&self) -> Result<KeyId, AdminError> {
        let _one = self.changing.lock().await;
        let (keys, me) = (self.own_keys()?, self.shared.me());
        let key = Key { holder: KeyHolder::Server(me), created: unix_now(), until: None };
        let number = self.add_key(key).await?;
        let another = keys.another(&self.signing(number).await?).map_err(failed)?;
        another.write_own(&self.folder.keys()).map_err(failed)?;
        self.shared.set_keys(Some(another));
        self.peers.forget();
        Ok(number)
    }

    /// Nobody is let in any more as that server with a key from before this one.
    async fn revoke_older(&self, server: ServerId, key: KeyId) -> Result<(), AdminError> {
        let state = self.linearizable().await?;
        let older =
            state.keys.keys.range(..key).filter(|(_, known)| known.holder == KeyHolder::Server(server));
        for (old, _) in older {
            let revoked = self.revoke_if_there(*old).await;
            revoked
                .map_err(|e| e.after("; its new key is in use, the old one is not revoked: do it again"))?;
        }
        Ok(())
    }

    /// Lets a key in no more; somebody else may have done so already.
    pub(super) async fn revoke_if_there(&self, key: KeyId) -> Result<(), AdminError> {
        match self.propose(Command::RevokeKey { key }).await {
            Err(e) if e.code == ErrorCode::NotFound => Ok(()),
            done => done,
        }
    }
}

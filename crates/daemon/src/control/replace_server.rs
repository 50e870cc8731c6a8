//! `peer replace`: a new server takes over the place of one that is gone or lost its state folder.
//!
//! The newcomer gets a number of its own and the bricks of the old one. What it finds at their paths decides: a brick that
//! is whole rejoins, an empty directory is filled from the set.

use super::Control;
use super::answers::{conflict, failed, not_agreed};
use super::invitation::{Found, Newcomer};
use super::membership::{find, unexpected};
use super::protocol::{ClusterReply, ClusterRequest};
use crate::limits::REPLACE_WAIT;
use admin::{AdminError, PeerReplaced};
use cluster::membership::{Admission, Candidate, MembershipError};
use cluster::{Command, NewServer, Outcome, Server, State};
use ids::ServerId;
use std::sync::Arc;
use std::time::Duration;

const LOOK: Duration = Duration::from_secs(1);

impl Control {
    pub(super) async fn peer_replace(
        self: &Arc<Self>,
        host: &str,
        by: Option<&str>,
    ) -> Result<PeerReplaced, AdminError> {
        // With a token the server that is asked to let it in takes one after the other.
        let with_token = self.shared.is_secured();
        let _one = if with_token { None } else { Some(self.changing.lock().await) };
        let state = self.linearizable().await?;
        let old = find(&state, host)?.clone();
        if old.id == self.shared.me() {
            return Err(conflict(format!("replace {host}: {}", MembershipError::Itself)));
        }
        let address = by.map_or_else(|| old.address.clone(), transport::with_port);
        let name = match by {
            Some(_) => address.rsplit_once(':').map_or(address.as_str(), |(h, _)| h).trim_matches(['[', ']']),
            None => old.host.as_str(),
        };
        let (candidate, newcomer) = self
            .candidate_at(&address, with_token)
            .await
            .map_err(|e| e.before(&format!("replace {host}: ")))?;
        let admitted = state.admit_in_place_of(old.id, &address, &candidate);
        let identity = candidate.identity;
        let id = match admitted.map_err(|e| conflict(format!("replace {host}: {e}")))? {
            Admission::Add if with_token => {
                let newcomer = newcomer.ok_or_else(|| unexpected(&address))?;
                let taken = self.take_in(&newcomer, (&identity, name), Some(host)).await;
                let id = taken.map_err(|e| e.before(&format!("replace {host}: ")))?;
                return self.replaced(name, id, old.id).await;
            }
            Admission::Member(_) | Admission::Invite(_) if with_token => {
                return Err(conflict(format!(
                    "replace {host}: the server at {address} was taken in but its key got lost: start it with an empty state \
                     folder and run this command again"
                )));
            }
            Admission::Member(id) | Admission::Invite(id) => id,
            Admission::Add => {
                self.await_end(&old).await?;
                let new =
                    NewServer { identity: identity.clone(), host: name.to_owned(), address: address.clone() };
                let command = Command::ReplaceServer { server: old.id, new };
                match self.store().propose_anywhere(command, REPLACE_WAIT).await {
                    Ok(Outcome::Server(id)) => id,
                    Ok(_) => {
                        return Err(failed(format!("replace {host}: the pool gave an unexpected answer")));
                    }
                    Err(e) => return Err(not_agreed(&e).before(&format!("replace {host}: "))),
                }
            }
        };
        let invited = self.invite(&state, id, &identity, name, &address).await;
        invited.map_err(|e| e.before(&format!("replace {host}: ")).after("; run this command again"))?;
        self.await_member(&address, &state.pool).await?;
        self.replaced(name, id, old.id).await
    }

    /// Who is at an address, and how to invite him into a secured pool.
    async fn candidate_at(
        &self,
        address: &str,
        with_token: bool,
    ) -> Result<(Candidate, Option<Newcomer>), AdminError> {
        let silent = |e: AdminError| {
            e.after("; start a server with an empty state folder there, or name one with --by")
        };
        if !with_token {
            let reply = match self.ask_cluster(address, ClusterRequest::Identify).await {
                Ok(reply) => reply,
                Err(e) => return Err(silent(self.why_not_asked(address, e).await)),
            };
            return reply.candidate().map(|c| (c, None)).ok_or_else(|| unexpected(address));
        }
        if let Some(member) = self.member_at(address, &self.state()).await {
            return Ok((member, None));
        }
        match self.find_newcomer(address, None).await.map_err(silent)? {
            Found::Newcomer(newcomer) => Ok((newcomer.candidate().await?, Some(newcomer))),
            Found::Unconfirmed(_) => Err(conflict(format!(
                "the server at {address} does not run on the machine of the one that is asked: make a token (mortar pool \
                 token --replace HOST) and start it with --join TOKEN@HOST"
            ))),
        }
    }

    /// What came of it.
    async fn replaced(&self, name: &str, id: ServerId, old: ServerId) -> Result<PeerReplaced, AdminError> {
        self.revoke_local_keys(old).await;
        // Sets whose latest data only the old server had.
        let state = self.linearizable().await?;
        let bricks = u32::try_from(state.bricks_of(id).count()).unwrap_or(u32::MAX);
        let of = |set: &cluster::Set| state.volumes.get(&set.volume).map(|v| state.offline_note(v, set));
        let offline = state.bricks_of(id).map(|(set, _)| set).filter(|set| set.view.primary.is_none());
        let offline = offline.filter_map(of).collect();
        Ok(PeerReplaced { host: name.to_owned(), server: id, replaced: old, bricks, offline })
    }

    /// Waits until the old server cannot act any more.
    pub(super) async fn await_end(&self, old: &Server) -> Result<(), AdminError> {
        let runs = || {
            conflict(format!(
                "replace {0}: server {0} still runs at {1}: stop it first, or detach it with mortar peer detach {0}",
                ids::bracketed(&old.host),
                old.address
            ))
        };
        let is_old = |reply: &ClusterReply| matches!(reply, ClusterReply::Identity { identity, .. } if *identity == old.identity);
        if self.identify(&old.address).await.is_some_and(|r| is_old(&r)) {
            return Err(runs());
        }
        let gone = async {
            while !old.lost && !self.leases.down().contains(&old.id) {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(REPLACE_WAIT, gone).await.map_err(|_| runs())
    }

    async fn identify(&self, address: &str) -> Option<ClusterReply> {
        let asked = self.ask_cluster(address, ClusterRequest::Identify);
        tokio::time::timeout(LOOK, asked).await.ok()?.ok()
    }

    /// Whether the server answers at its address, and not another one; `None`: nobody does.
    async fn look_at(&self, server: &Server, state: &State) -> Option<bool> {
        if let Some(ClusterReply::Identity { identity, .. }) = self.identify(&server.address).await {
            return Some(identity == server.identity);
        }
        // Another one may not believe our key.
        let there = transport::handshake_reply(&server.address, LOOK).await.ok()?;
        (there.pool != server_core::pool_bytes(state)).then_some(false)
    }

    /// What to do about servers without a lease: one that lost its state folder answers, as another one.
    pub(super) async fn notes_of_silent_servers(&self, state: &State) -> Vec<String> {
        let down = self.leases.down();
        let silent: Vec<&Server> = state
            .servers
            .values()
            .filter(|s| (s.lost || down.contains(&s.id)) && s.id != self.shared.me())
            .collect();
        let looks = silent.into_iter().map(|s| async move { (s, self.look_at(s, state).await) });
        let mut notes = Vec::new();
        for (server, answer) in super::status::join_all(looks).await {
            let (host, address) = (ids::bracketed(&server.host), &server.address);
            match answer {
                Some(false) => {
                    notes.push(format!(
                        "server {host} is not the one that answers at {address}: that one has another state folder; \
                         start it with the old one, or give it the place and the bricks of {host} with mortar peer \
                         replace {host}"
                    ));
                }
                Some(_) => {}
                None if server.lost => {}
                None => notes.push(format!(
                    "server {host} does not answer at {address}: start it; if it is gone for good, another one can take \
                     its place and its bricks: mortar peer replace {host} --by NEWHOST"
                )),
            }
        }
        notes
    }
}

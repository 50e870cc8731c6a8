//! `peer replace`: a new server takes over the place of one that is gone or lost its state folder.
//!
//! The newcomer gets a number of its own and the bricks of the old one. What it finds at their paths decides: a brick that
//! is whole rejoins, an empty directory is filled from the set.

use super::Control;
use super::answers::{conflict, failed, not_agreed};
use super::membership::find;
use super::protocol::{ClusterReply, ClusterRequest};
use crate::limits::REPLACE_WAIT;
use admin::{AdminError, PeerReplaced};
use cluster::membership::{Admission, MembershipError};
use cluster::{Command, NewServer, Outcome, Server, State};
use std::sync::Arc;
use std::time::Duration;

const LOOK: Duration = Duration::from_secs(1);

impl Control {
    pub(super) async fn peer_replace(
        self: &Arc<Self>,
        host: &str,
        by: Option<&str>,
    ) -> Result<PeerReplaced, AdminError> {
        self.needs_no_token(&format!("mortar pool token --replace {host}"))?;
        let _one = self.changing.lock().await;
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
        let asked = self.ask_cluster(&address, ClusterRequest::Identify).await;
        let asked = asked.map_err(|e| {
            let e = e.before(&format!("replace {host}: "));
            e.after("; start a server with an empty state folder there, or name one with --by")
        })?;
        let Some(candidate) = asked.candidate() else {
            return Err(failed(format!("replace {host}: {address} gave an unexpected answer")));
        };
        let admitted = state.admit_in_place_of(old.id, &address, &candidate);
        let identity = candidate.identity;
        let id = match admitted.map_err(|e| conflict(format!("replace {host}: {e}")))? {
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
        let bricks = state.bricks_of(old.id).count();
        let bricks = u32::try_from(bricks).unwrap_or(u32::MAX);
        // Sets whose latest data only the old server had.
        let state = self.linearizable().await?;
        let of = |set: &cluster::Set| state.volumes.get(&set.volume).map(|v| state.offline_note(v, set));
        let offline = state.bricks_of(id).map(|(set, _)| set).filter(|set| set.view.primary.is_none());
        let offline = offline.filter_map(of).collect();
        Ok(PeerReplaced { host: name.to_owned(), server: id, replaced: old.id, bricks, offline })
    }

    /// Waits until the old server cannot act any more.
    pub(super) async fn await_end(&self, old: &Server) -> Result<(), AdminError> {
        let runs = || {
            conflict(format!(
                "replace {0}: server {0} still runs at {1}: stop it first, or detach it with mortar peer detach {0}",
                old.host, old.address
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

    /// What to do about servers without a lease: one that lost its state folder answers, as another one.
    pub(super) async fn notes_of_silent_servers(&self, state: &State) -> Vec<String> {
        let down = self.leases.down();
        let silent: Vec<&Server> = state
            .servers
            .values()
            .filter(|s| (s.lost || down.contains(&s.id)) && s.id != self.shared.me())
            .collect();
        let looks = silent.into_iter().map(|s| async move { (s, self.identify(&s.address).await) });
        let mut notes = Vec::new();
        for (server, answer) in super::status::join_all(looks).await {
            let (host, address) = (&server.host, &server.address);
            match answer {
                Some(ClusterReply::Identity { identity, .. }) if identity != server.identity => {
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

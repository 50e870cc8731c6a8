//! A server that is alone is taken into a secured pool: by its local socket if it runs on this machine, else over the network
//! if its fingerprint was confirmed and it was started to take invitations.
//!
//! It is given a token, and comes in with it as by `mortar server --join`. Always true: who has volumes or other servers
//! follows no invitation, and a token is said only to root's socket or to who has the fingerprint that was confirmed.

use super::answers::{conflict, failed, not_reached, unreachable};
use super::join::{self, Join};
use super::protocol::{self, ClusterReply, Response};
use super::{Control, membership};
use crate::keys::ServerKeys;
use crate::limits::{CONNECT_WAIT, INVITATION_VALID, INVITATION_WAIT, LOCAL_WAIT};
use crate::speaker::Speaker;
use admin::{AdminError, GetPoolToken};
use cluster::NewServer;
use cluster::membership::Candidate;
use ids::ServerId;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use transport::{Caller, Established, TransportError};
use trust::{Fingerprint, joining_config, looking_config};
use wire::Kind;

/// What a server says to one that it would take in.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Invitation {
    /// Who are you?
    Identify,
    /// Come into this pool.
    Come {
        /// A token: a secret.
        token: String,
        /// `host:port` of the server to ask.
        at: String,
        /// What you are to be called.
        host: String,
    },
}

/// This server follows an invitation as long as this is there.
struct ComesIn<'a>(&'a AtomicBool);

impl ComesIn<'_> {
    fn begin(comes_in: &AtomicBool) -> ComesIn<'_> {
        comes_in.store(true, Ordering::Relaxed);
        ComesIn(comes_in)
    }
}

impl Drop for ComesIn<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// A server that may come in.
pub(super) struct Newcomer {
    caller: Caller,
    address: String,
}

/// What was found at an address.
pub(super) enum Found {
    /// A server that can be invited.
    Newcomer(Newcomer),
    /// One whose fingerprint somebody has to confirm first.
    Unconfirmed(Fingerprint),
}

impl Control {
    /// Somebody without a key of this pool asks or invites this server.
    pub(super) async fn on_invitation(self: &Arc<Self>, body: &[u8], speaker: &Speaker) -> Response {
        let heard = match speaker {
            Speaker::Root => true,
            Speaker::Nobody => self.takes_invitations,
            Speaker::Anybody | Speaker::Key(_) => false,
        };
        if !heard {
            return Response::Error(
                "it takes no invitation over the network: start it with --invite, or with --join TOKEN@HOST (mortar pool \
                 token makes one)"
                    .to_owned(),
            );
        }
        let reply = match protocol::decode_invitation(body) {
            Ok(Invitation::Identify) => Ok(self.own_identity()),
            Ok(Invitation::Come { token, at, host }) => {
                let come = self.follow_invitation(&Join { token, at }, host).await;
                come.map(|()| ClusterReply::Done)
            }
            Err(e) => return Response::Error(format!("bad request: {e}: use programs of like age")),
        };
        Response::Cluster(reply.unwrap_or_else(ClusterReply::Error))
    }

    async fn follow_invitation(self: &Arc<Self>, join: &Join, host: String) -> Result<(), AdminError> {
        let _one = self.changing.lock().await;
        let identity = self.folder.identity.clone();
        let alone = self.state().check_join(&identity, &identity);
        alone.map_err(|e| conflict(format!("{}: {e}", self.address)))?;
        let server = NewServer { identity, host, address: self.address.clone() };
        let _comes_in = ComesIn::begin(&self.comes_in);
        let keys = join::come_in(server, join).await.map_err(failed)?;
        let me = keys.server();
        // In this order: a start after a crash finds out by the key which store is the right one.
        self.use_keys(keys).map_err(failed)?;
        self.change_store(me).await?;
        self.peers.forget();
        tracing::info!(at = join.at, "this server followed an invitation");
        Ok(())
    }

    /// From now on these are this server's keys, and nobody is let in without one.
    pub(super) fn use_keys(&self, keys: ServerKeys) -> Result<(), String> {
        keys.write(&self.folder.keys())?;
        self.folder.note_secured().map_err(|e| format!("write down that the pool is secured: {e}"))?;
        self.shared.set_keys(Some(keys));
        self.shared.set_secured(true);
        Ok(())
    }

    /// Reaches the server at `address`, which has no key of this pool.
    pub(super) async fn find_newcomer(
        &self,
        address: &str,
        confirmed: Option<&str>,
    ) -> Result<Found, AdminError> {
        if let Some(newcomer) = local_server(address).await {
            return Ok(Found::Newcomer(newcomer));
        }
        let hello = Established::control([0; 16], ServerId(0));
        let newcomer = |caller| Found::Newcomer(Newcomer { caller, address: address.to_owned() });
        let silent = |e: TransportError| match e {
            TransportError::Insecure { .. } if confirmed.is_some() => conflict(format!(
                "{address}: it does not have the fingerprint that is given: look into its log"
            )),
            TransportError::Insecure { .. } => conflict(format!(
                "{address}: it has no keys: start it with an empty state folder, or with --join TOKEN@HOST (mortar pool token)"
            )),
            other => not_reached(&other),
        };
        let Some(confirmed) = confirmed else {
            let (settings, seen) = looking_config().map_err(failed)?;
            Caller::connect(address, &hello, Some(&settings), CONNECT_WAIT).await.map_err(silent)?;
            let seen = seen.get().copied();
            return seen
                .map(Found::Unconfirmed)
                .ok_or_else(|| failed(format!("{address}: it shows no fingerprint")));
        };
        let wanted = Fingerprint::parse(confirmed)
            .ok_or_else(|| AdminError::new(admin::ErrorCode::Invalid, not_a_fingerprint(confirmed)))?;
        let settings = joining_config(wanted).map_err(failed)?;
        let caller = Caller::connect(address, &hello, Some(&settings), CONNECT_WAIT).await;
        caller.map(newcomer).map_err(silent)
    }

    /// Has a newcomer come in, under that name, in the place of `replace` if one is named. Its number.
    pub(super) async fn take_in(
        &self,
        newcomer: &Newcomer,
        (identity, host): (&str, &str),
        replace: Option<&str>,
    ) -> Result<ServerId, AdminError> {
        let replace = replace.map(str::to_owned);
        let token = self.pool_token(GetPoolToken { valid: INVITATION_VALID, replace }).await?;
        let come = Invitation::Come { token: token.token, at: token.address, host: host.to_owned() };
        let came = newcomer.ask(&come).await;
        let state = self.linearizable().await?;
        let known = state.server_by_identity(identity);
        match (came, known) {
            (Ok(_), Some(server)) => {
                let id = server.id;
                self.await_member(&newcomer.address, &state.pool).await?;
                Ok(id)
            }
            (Ok(_), None) => Err(failed(format!("{}: it did not come in", newcomer.address))),
            (Err(e), None) => Err(e),
            (Err(e), Some(server)) => {
                if let Err(e) = self.store().remove_server(server.id, true).await {
                    tracing::warn!("take server {} out again: {e}", server.id);
                }
                Err(e)
            }
        }
    }
}

/// The server at `address`, if it has its local socket here.
pub(super) async fn local_server(address: &str) -> Option<Newcomer> {
    let path = transport::local_socket_of(address, LOCAL_WAIT).await?.display().to_string();
    let hello = Established::control([0; 16], ServerId(0));
    let caller = Caller::connect(&path, &hello, None, CONNECT_WAIT).await.ok()?;
    Some(Newcomer { caller, address: address.to_owned() })
}

fn not_a_fingerprint(given: &str) -> String {
    format!("fingerprint {given}: write the 64 hex digits that the server wrote into its log")
}

impl Newcomer {
    async fn ask(&self, invitation: &Invitation) -> Result<ClusterReply, AdminError> {
        let body = protocol::encode_invitation(invitation);
        let answer = self.caller.call(Kind::Control, body, bytes::Bytes::new(), INVITATION_WAIT).await;
        let answer = answer.map_err(|e| unreachable(format!("{}: {e}", self.address)))?;
        match protocol::decode_response(&answer.body) {
            Ok(Response::Cluster(ClusterReply::Error(e))) => Err(e),
            Ok(Response::Cluster(reply)) => Ok(reply),
            Ok(Response::Error(e)) | Err(e) => Err(conflict(format!("{}: {e}", self.address))),
            Ok(_) => Err(membership::unexpected(&self.address)),
        }
    }

    /// What it says of itself.
    pub(super) async fn candidate(&self) -> Result<Candidate, AdminError> {
        let reply = self.ask(&Invitation::Identify).await?;
        reply.candidate().ok_or_else(|| membership::unexpected(&self.address))
    }
}

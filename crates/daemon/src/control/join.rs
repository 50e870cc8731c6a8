//! A server joins a secured pool with a token: both sides of it.
//!
//! Always true: the secret is said only to who has the authority's fingerprint, and a token is spent in the same command
//! that adds the server.

use super::Control;
use super::answers::{failed, not_agreed, refused};
use super::protocol::{self, Response};
use super::state_folder::StateFolder;
use crate::clock::unix_now;
use crate::keys::ServerKeys;
use crate::limits::{JOIN_WAIT, REPLACE_WAIT};
use admin::AdminError;
use cluster::{Command, Joining, KeyRefusal, NewServer, Outcome};
use ids::{KeyId, ServerId};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use transport::{Caller, Established};
use trust::{
    Authority, CertificateDer, Holder, Identity, JoinToken, KeyFile, PrivateKey, PublicKey, hex,
    joining_config, unhex,
};
use wire::Kind;

/// How often it is tried, and the pause between.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_secs(1);

/// What a server that joins says.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct JoinRequest {
    /// The token's number.
    token: KeyId,
    /// Its secret, in hex digits.
    secret: String,
    /// The public key that is to be signed, likewise.
    public: String,
    /// Who it is and where it listens.
    server: NewServer,
}

/// What it is answered.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Joined {
    /// Its certificate, in hex digits.
    certificate: String,
    /// The pool's authority: a secret.
    authority: String,
}

/// Which pool to join.
#[derive(Clone)]
pub struct Join {
    /// The token.
    pub token: String,
    /// `host:port` of a server of the pool.
    pub at: String,
}

impl Join {
    /// Whether this is a token, or what is left of one.
    pub fn is_token(text: &str) -> bool {
        JoinToken::is_begun(text)
    }
}

impl fmt::Debug for JoinRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JoinRequest(of {:?} with token {})", self.server, self.token)
    }
}

impl fmt::Debug for Joined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Joined(..)")
    }
}

impl fmt::Debug for Join {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Join(at {})", self.at)
    }
}

impl Control {
    /// Somebody with a token wants to come in.
    pub(super) async fn on_join(self: &Arc<Self>, body: &[u8]) -> Response {
        let request: JoinRequest = match protocol::decode_join(body) {
            Ok(request) => request,
            Err(e) => return Response::Error(format!("bad request: {e}: use programs of like age")),
        };
        let host = request.server.host.clone();
        match self.join_server(request).await {
            Ok(joined) => {
                tracing::info!(host, "a server joined with a token");
                Response::Joined(joined)
            }
            Err(e) => {
                tracing::warn!(host, "a server could not join with a token: {e}");
                Response::Error(e.to_string())
            }
        }
    }

    async fn join_server(self: &Arc<Self>, request: JoinRequest) -> Result<Joined, AdminError> {
        let keys = self.own_keys()?;
        let JoinRequest { token, secret, public, server } = request;
        let wrong = || refused(&KeyRefusal::BadToken.into());
        let secret: [u8; 16] = unhex(&secret).ok_or_else(wrong)?;
        let public_key: [u8; 32] = unhex(&public).ok_or_else(wrong)?;
        let authority = keys.authority();
        let hash = hex(&JoinToken::new(authority.fingerprint(), token, secret, 0).stored().secret_hash);
        // Guesses are not worth a command.
        let state = self.linearizable().await?;
        let known = state.keys.tokens.get(&token).filter(|t| t.hash == hash).ok_or_else(wrong)?;
        let _one = self.changing.lock().await;
        if let Some(old) =
            known.replaces.and_then(|old| state.servers.get(&old)).filter(|_| known.spent.is_none())
        {
            self.await_end(old).await?;
        }
        let joining = Joining { token, hash, public, server, now: unix_now() };
        let outcome = self.store().propose_anywhere(Command::JoinServer(joining), REPLACE_WAIT).await;
        let Outcome::Joined { server, key } = outcome.map_err(|e| not_agreed(&e))? else {
            return Err(failed("the pool gave an unexpected answer"));
        };
        let identity = Identity { pool: authority.pool(), key, holder: Holder::Server(server) };
        let certificate = authority.issue(&identity, &PublicKey(public_key), None).map_err(failed)?;
        Ok(Joined { certificate: hex(&certificate), authority: authority.encode() })
    }
}

/// Joins the pool of `join`: this server's keys lie in its folder afterwards. The number that it has there.
///
/// # Errors
/// One line.
pub(super) async fn join(folder: &StateFolder, join: &Join, address: &str) -> Result<ServerId, String> {
    let host = address.rsplit_once(':').map_or(address, |(h, _)| h).trim_matches(['[', ']']).to_owned();
    let server = NewServer { identity: folder.identity.clone(), host, address: address.to_owned() };
    let keys = come_in(server, join).await?;
    keys.write(&folder.keys())?;
    folder.note_secured().map_err(|e| format!("write down that the pool is secured: {e}"))?;
    Ok(keys.server())
}

/// Has the pool of `join` take the server in. The keys that it has there.
///
/// # Errors
/// One line.
pub(super) async fn come_in(server: NewServer, join: &Join) -> Result<ServerKeys, String> {
    let token = JoinToken::parse(&join.token, unix_now()).map_err(|e| format!("the token: {e}"))?;
    let key = PrivateKey::generate().map_err(|e| e.to_string())?;
    let request = JoinRequest {
        token: token.number(),
        secret: hex(token.secret()),
        public: hex(&key.public().0),
        server,
    };
    let mut tries = 0;
    let joined = loop {
        match ask(&token, &join.at, &request).await {
            Ok(joined) => break joined,
            Err((why, again)) if !again || tries == TRIES => {
                return Err(format!("join at {}: {why}", join.at));
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
        tries += 1;
    };
    keys(&token, key, &joined).map_err(|e| format!("join at {}: {e}", join.at))
}

/// Asks once; why not, and whether it makes sense to ask again.
async fn ask(token: &JoinToken, at: &str, request: &JoinRequest) -> Result<Joined, (String, bool)> {
    let settings = joining_config(token.authority()).map_err(|e| (e.to_string(), false))?;
    let hello = Established::control([0; 16], ServerId(0));
    let lost = |e: transport::TransportError| {
        let refused = matches!(
            e,
            transport::TransportError::Insecure { .. } | transport::TransportError::Unwelcome { .. }
        );
        (e.to_string(), !refused)
    };
    let caller = Caller::connect(at, &hello, Some(&settings), JOIN_WAIT).await.map_err(lost)?;
    let body = protocol::encode_join(request);
    let answer = caller.call(Kind::Control, body, bytes::Bytes::new(), JOIN_WAIT).await.map_err(lost)?;
    match protocol::decode_response(&answer.body) {
        Ok(Response::Joined(joined)) => Ok(joined),
        Ok(Response::Error(e)) => Err((e, false)),
        Ok(_) => Err(("it gave an unexpected answer".to_owned(), false)),
        Err(e) => Err((e, false)),
    }
}

/// What was given, if it is what the token promised.
fn keys(token: &JoinToken, key: PrivateKey, joined: &Joined) -> Result<ServerKeys, String> {
    let authority = Authority::decode(joined.authority.as_bytes()).map_err(|e| e.to_string())?;
    if authority.fingerprint() != token.authority() {
        return Err("its authority is not the token's".to_owned());
    }
    let digits = joined.certificate.as_bytes().as_chunks::<2>();
    let certificate: Option<Vec<u8>> = digits
        .0
        .iter()
        .map(|pair| std::str::from_utf8(pair).ok().and_then(unhex::<1>).map(|[byte]| byte))
        .collect();
    let certificate =
        CertificateDer::from(certificate.ok_or("its certificate is not written as hex digits")?);
    let own = KeyFile::new(certificate, vec![authority.certificate().clone()], key);
    ServerKeys::new(authority, own.map_err(|e| e.to_string())?)
}

/// Waits until this server, which has just joined, knows the pool.
pub(super) async fn await_pool(control: &Control) {
    let mut states = control.store().watch();
    let known = tokio::time::timeout(JOIN_WAIT, states.wait_for(|state| !state.pool.is_empty())).await;
    if !matches!(known, Ok(Ok(_))) {
        tracing::warn!(
            "this server joined, but its pool has not told it anything yet: can the others reach it?"
        );
    }
}

/// Why a server does not start.
pub(super) fn has_lost_its_store(folder: &std::path::Path) -> String {
    format!(
        "state folder {}: its pool store is gone: empty the folder and join again (mortar pool token --replace HOST on another \
         server, mortar server --join here)",
        folder.display()
    )
}

//! Asking a server of the pool.

use crate::cli::Global;
use anyhow::{anyhow, bail};
use cluster::admin::{AdminReply, AdminRequest};
use daemon::protocol::{self, Request, Response};
use ids::ServerId;
use std::time::Duration;
use transport::{Caller, Greeted, TransportError};
use wire::Kind;

const CONNECT: Duration = Duration::from_secs(5);
/// Longer than any step of a server has.
const ANSWER: Duration = Duration::from_secs(120);

/// Asks the server named by `--server`.
///
/// # Errors
/// It cannot be reached, or it refuses.
pub(crate) fn ask(global: &Global, request: AdminRequest) -> anyhow::Result<AdminReply> {
    ask_at(&transport::with_port(&global.server), request)
}

/// Asks the server at `address` (HOST:PORT).
pub(crate) fn ask_at(address: &str, request: AdminRequest) -> anyhow::Result<AdminReply> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match runtime.block_on(exchange(address, request))? {
        AdminReply::Error(e) => Err(anyhow!(e.message)),
        reply => Ok(reply),
    }
}

async fn exchange(address: &str, request: AdminRequest) -> anyhow::Result<AdminReply> {
    let hello = Greeted::control([0; 16], ServerId(0));
    let caller = Caller::connect(address, &hello, CONNECT).await.map_err(|e| unreachable(address, &e))?;
    let body = protocol::encode(&Request::Admin(request));
    let frame = caller.call(Kind::Control, body, bytes::Bytes::new(), ANSWER).await.map_err(|e| {
        anyhow!("server {address}: {}: whether it was done is not known, look again", bare(address, &e))
    })?;
    match protocol::decode_response(&frame.body).map_err(|e| anyhow!("server {address}: {e}"))? {
        Response::Admin(reply) => Ok(reply),
        Response::Error(e) => bail!("server {address}: {e}"),
        _ => bail!("server {address}: it gave an unexpected answer: use programs of like age"),
    }
}

/// The error without the address, which some name.
fn bare(address: &str, e: &TransportError) -> String {
    let text = e.to_string();
    text.strip_prefix(&format!("{address}: ")).map_or(text.clone(), str::to_owned)
}

fn unreachable(address: &str, e: &TransportError) -> anyhow::Error {
    let why = match e {
        TransportError::Refused { .. } => "connection refused".to_owned(),
        other => bare(address, other),
    };
    anyhow!(
        "server {address} cannot be reached: {why}: start one there (mortar server --state DIR --address HOST) or name \
         another with --server HOST"
    )
}

/// An answer of another kind than was asked for.
pub(crate) fn unexpected<T>(reply: &AdminReply) -> anyhow::Result<T> {
    tracing::debug!("unexpected answer: {reply:?}");
    bail!("the server gave an unexpected answer: use programs of like age")
}

/// Asks, and prints the one line that says what was done.
pub(crate) fn do_it(global: &Global, request: AdminRequest) -> anyhow::Result<()> {
    match ask(global, request)? {
        AdminReply::Done(what) => crate::output::done(global.json, &what),
        other => unexpected(&other),
    }
}

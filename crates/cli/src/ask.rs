//! Asking a server of the pool.

use crate::cli::Global;
use crate::local;
use admin::{AdminAnswer, AdminRequest, Ask};
use anyhow::anyhow;
use ids::ServerId;
use std::time::Duration;
use transport::{Caller, Established, TransportError};
use wire::Kind;

/// Who is asked if nobody else is known.
const HERE: &str = "127.0.0.1";
const CONNECT: Duration = Duration::from_secs(5);
/// Longer than any step of a server has.
const ANSWER: Duration = Duration::from_secs(120);

/// Asks the server named by `--server`, or the one that runs here.
///
/// # Errors
/// It cannot be reached, or it refuses.
pub(crate) fn ask<R: Ask>(global: &Global, request: R) -> anyhow::Result<R::Answer> {
    ask_at(&address(global)?, request)
}

/// Asks the server at `address` (HOST:PORT).
pub(crate) fn ask_at<R: Ask>(address: &str, request: R) -> anyhow::Result<R::Answer> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let answer = runtime.block_on(exchange(address, request.into_request()))?;
    R::take(answer).ok_or_else(|| {
        anyhow!("server {address}: it gave the answer to another request: use programs of like age")
    })
}

/// Where to ask: as `--server` says (the path of a local socket too), or the local socket of the only server here.
fn address(global: &Global) -> anyhow::Result<String> {
    if let Some(server) = &global.server {
        return Ok(if server.starts_with('/') { server.clone() } else { transport::with_port(server) });
    }
    let here = local::sockets()?;
    match here.as_slice() {
        [] => Ok(transport::with_port(HERE)),
        [only] => Ok(only.clone()),
        several => {
            let folders: Vec<&str> = several.iter().map(|s| s.trim_end_matches("/socket")).collect();
            Err(anyhow!(
                "{} servers run here, with state folders {}: name one with --server HOST, or --server {}",
                several.len(),
                folders.join(", "),
                several.first().map_or("", String::as_str)
            ))
        }
    }
}

async fn exchange(address: &str, request: AdminRequest) -> anyhow::Result<AdminAnswer> {
    let hello = Established::control([0; 16], ServerId(0));
    let caller =
        Caller::connect(address, &hello, None, CONNECT).await.map_err(|e| unreachable(address, &e))?;
    let body = admin::encode_request(request);
    let frame = caller.call(Kind::Control, body, bytes::Bytes::new(), ANSWER).await.map_err(|e| {
        anyhow!("server {address}: {}: whether it was done is not known, look again", bare(address, &e))
    })?;
    let answer = admin::decode_answer(&frame.body).map_err(|e| anyhow!("server {address}: {e}"))?;
    Ok(answer?)
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

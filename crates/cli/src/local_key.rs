//! The key of root on a machine where a server of the pool runs: that server gives it.

use crate::ask::ask_socket;
use crate::limits::{KEY_WAIT, LOCAL_WAIT};
use admin::{AdminError, ErrorCode};
use anyhow::{Context, anyhow};
use std::path::Path;
use std::sync::Arc;
use transport::{handshake_reply, local_sockets};
use trust::{ClientConfig, KeyFile, client_config};

/// What to show to the servers at these addresses: a client's key if a volume is named, else an administrator's. `None`: no
/// server of their pool runs here, or the pool has no keys.
///
/// # Errors
/// The servers that run here refuse.
pub(crate) async fn key_for(
    addresses: &[String],
    volume: Option<&str>,
) -> anyhow::Result<Option<Arc<ClientConfig>>> {
    let full = |at: &String| if at.starts_with('/') { at.clone() } else { transport::with_port(at) };
    let addresses: Vec<String> = addresses.iter().map(full).collect();
    let (mut refused, mut asked) = (None, Vec::new());
    // One of those servers may be out of the pool by now: then another one is meant.
    let all = local_sockets();
    for address in &addresses {
        let mut named = all.iter().filter(|s| s.address == *address);
        // The same address in several network namespaces says nothing.
        if let (Some(one), None) = (named.next(), named.next())
            && pool_of(&one.path).await.is_some()
        {
            asked.push(one.path.clone());
            match ask(&one.path, volume, address).await {
                Ok(key) => return Ok(key),
                Err(e) => refused = Some(e),
            }
        }
    }
    for address in &addresses {
        if asked.len() == all.len() {
            break;
        }
        let Ok(there) = handshake_reply(address, LOCAL_WAIT).await else { continue };
        for socket in &all {
            if !asked.contains(&socket.path) && pool_of(&socket.path).await == Some(there.pool) {
                asked.push(socket.path.clone());
                match ask(&socket.path, volume, address).await {
                    Ok(key) => return Ok(key),
                    Err(e) => refused = Some(e),
                }
            }
        }
    }
    refused.map_or(Ok(None), Err)
}

/// Another client's key for a volume of that pool, from a server that runs here. `turn`: which one is asked first.
pub(crate) async fn another_key(pool: [u8; 16], volume: &str, turn: usize) -> Option<Arc<ClientConfig>> {
    let mut of_pool = Vec::new();
    for socket in local_sockets() {
        if pool_of(&socket.path).await == Some(pool) {
            of_pool.push(socket.path);
        }
    }
    let turn = turn % of_pool.len().max(1);
    of_pool.rotate_left(turn);
    for path in of_pool {
        match tokio::time::timeout(KEY_WAIT, ask(&path, Some(volume), &path.display().to_string())).await {
            Ok(Ok(Some(key))) => return Some(key),
            Ok(Ok(None)) => {}
            Ok(Err(e)) => tracing::debug!("no other key: {e:#}"),
            Err(_) => tracing::debug!(path = %path.display(), "no other key: no answer"),
        }
    }
    None
}

/// The pool of the server that has this socket, if it answers.
async fn pool_of(socket: &Path) -> Option<[u8; 16]> {
    let hello = handshake_reply(&socket.display().to_string(), LOCAL_WAIT).await;
    hello.ok().map(|hello| hello.pool)
}

/// Asks the server that has this socket; `called` is what somebody knows it by.
async fn ask(socket: &Path, volume: Option<&str>, called: &str) -> anyhow::Result<Option<Arc<ClientConfig>>> {
    let socket = socket.display().to_string();
    let request = admin::GetLocalKey { volume: volume.map(str::to_owned) };
    let file = match (ask_socket(&socket, request).await, volume) {
        (Ok(answer), _) => answer.file,
        (Err(e), Some(volume)) if is_not_found(&e) => {
            let (volume, server) = (volume.to_owned(), called.to_owned());
            return Err(mount::ConnectError::NoSuchVolume { volume, server }.into());
        }
        (Err(e), _) => return Err(e),
    };
    let Some(file) = file else { return Ok(None) };
    let key =
        KeyFile::decode(file.as_bytes()).map_err(|e| anyhow!("server {socket}: the key it gives: {e}"))?;
    client_config(&key).map(Some).with_context(|| format!("server {socket}: the key it gives"))
}

fn is_not_found(e: &anyhow::Error) -> bool {
    e.downcast_ref::<AdminError>().is_some_and(|e| e.code == ErrorCode::NotFound)
}

//! The key of root on a machine where a server of the pool runs: that server gives it.

use crate::ask::ask_socket;
use crate::limits::LOCAL_WAIT;
use anyhow::{Context, anyhow};
use std::path::PathBuf;
use std::sync::Arc;
use transport::{handshake_reply, local_sockets};
use trust::{ClientConfig, KeyFile, client_config};

/// What to show to the servers at these addresses: a client's key if a volume is named, else an administrator's. `None`: no
/// server of their pool runs here, or the pool has no keys.
///
/// # Errors
/// The server that runs here refuses.
pub(crate) async fn key_for(
    addresses: &[String],
    volume: Option<&str>,
) -> anyhow::Result<Option<Arc<ClientConfig>>> {
    let Some(socket) = server_of_pool(addresses).await else { return Ok(None) };
    let socket = socket.display().to_string();
    let request = admin::GetLocalKey { volume: volume.map(str::to_owned) };
    let Some(file) = ask_socket(&socket, request).await?.file else { return Ok(None) };
    let key =
        KeyFile::decode(file.as_bytes()).map_err(|e| anyhow!("server {socket}: the key it gives: {e}"))?;
    client_config(&key).map(Some).with_context(|| format!("server {socket}: the key it gives"))
}

/// The local socket of a server that is in the pool of those: of one of them, or of another one.
async fn server_of_pool(addresses: &[String]) -> Option<PathBuf> {
    let all = local_sockets();
    let pool_of = async |socket: &PathBuf| {
        let hello = handshake_reply(&socket.display().to_string(), LOCAL_WAIT).await;
        hello.ok().map(|hello| hello.pool)
    };
    for address in addresses {
        let mut named = all.iter().filter(|s| s.address == *address);
        // The same address in several network namespaces says nothing.
        if let (Some(one), None) = (named.next(), named.next())
            && pool_of(&one.path).await.is_some()
        {
            return Some(one.path.clone());
        }
    }
    if all.is_empty() {
        return None;
    }
    for address in addresses {
        let Ok(there) = handshake_reply(address, LOCAL_WAIT).await else { continue };
        for socket in &all {
            if pool_of(&socket.path).await == Some(there.pool) {
                return Some(socket.path.clone());
            }
        }
    }
    None
}

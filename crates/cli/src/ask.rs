//! Asking a server of the pool.

use crate::address::host_and_port;
use crate::cli::Global;
use crate::contexts::PoolContext;
use crate::limits::LOCAL_WAIT;
use crate::local_key::key_for;
use crate::{contexts, keys, local};
use admin::{AdminAnswer, AdminError, AdminRequest, Ask, ErrorCode};
use anyhow::anyhow;
use ids::ServerId;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use transport::{Caller, Established, TransportError};
use trust::ClientConfig;
use wire::Kind;
use wire::limits::BODY_MAX;

/// The variable of the environment that names servers.
const SERVER_VARIABLE: &str = "MORTAR_SERVER";
/// Who is asked if nobody else is known.
const HERE: &str = "127.0.0.1";
const CONNECT: Duration = Duration::from_secs(5);
/// Longer than any step of a server has.
const ANSWER: Duration = Duration::from_secs(120);

/// Asks the server named by `--server`, MORTAR_SERVER or a context, or the one that runs here.
///
/// # Errors
/// It cannot be reached, or it refuses.
pub(crate) fn ask<R: Ask>(global: &Global, request: R) -> anyhow::Result<R::Answer> {
    let pool = pool(global)?;
    let local = pool.addresses.iter().all(|address| address.starts_with('/'));
    let named = keys::named(global.key_file.as_deref()).or(pool.key);
    let key = if local { None } else { keys::settings(named.as_deref())? };
    let key = match key {
        Some(key) if named.is_some() => Show::This(key),
        Some(key) => Show::Elsewhere(key),
        None => Show::AsNeeded,
    };
    let answer = ask_one_of(&pool.addresses, &key, request);
    if pool.is_named || rustix::process::geteuid().is_root() {
        return answer;
    }
    answer.map_err(|e| match e.downcast_ref::<AdminError>() {
        Some(e) if e.code == ErrorCode::ConnectionRefused => {
            let line = "only root reaches the server that runs on this machine, if one does: ask as root (sudo), or name \
                        one with --server HOST";
            AdminError::new(ErrorCode::ConnectionRefused, line).into()
        }
        _ => e,
    })
}

/// What to show to a server.
enum Show {
    /// This key: somebody named it.
    This(Arc<ClientConfig>),
    /// This one, unless the server has a local socket here.
    Elsewhere(Arc<ClientConfig>),
    /// None, or that of root on a machine of the pool.
    AsNeeded,
}

/// Asks the server that has this local socket.
///
/// # Errors
/// It cannot be reached, or it refuses.
pub(crate) async fn ask_socket<R: Ask>(socket: &str, request: R) -> anyhow::Result<R::Answer> {
    let hello = Established::control([0; 16], ServerId(0));
    let caller = Caller::connect(socket, &hello, None, CONNECT).await.map_err(|e| unreachable(socket, &e))?;
    taken::<R>(socket, exchange(socket, &caller, request.into_request()).await?)
}

/// Asks the server at `address` (HOST:PORT).
pub(crate) fn ask_at<R: Ask>(address: &str, request: R) -> anyhow::Result<R::Answer> {
    ask_one_of(&[address.to_owned()], &Show::AsNeeded, request)
}

/// Asks the first of these servers that can be reached.
fn ask_one_of<R: Ask>(addresses: &[String], key: &Show, request: R) -> anyhow::Result<R::Answer> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (address, answer) = runtime.block_on(async {
        let (address, caller) = connect(addresses, key).await?;
        Ok::<_, anyhow::Error>((address, exchange(address, &caller, request.into_request()).await?))
    })?;
    taken::<R>(address, answer)
}

fn taken<R: Ask>(address: &str, answer: AdminAnswer) -> anyhow::Result<R::Answer> {
    R::take(answer).ok_or_else(|| {
        anyhow!("server {address}: it gave the answer to another request: use programs of like age")
    })
}

/// Where to ask.
struct Asked {
    /// Each HOST:PORT, or the path of a local socket.
    addresses: Vec<String>,
    /// The key file that goes with them.
    key: Option<PathBuf>,
    /// Somebody named them.
    is_named: bool,
}

/// Where to ask: what is given (the path of a local socket too), or the local socket of the only server here.
fn pool(global: &Global) -> anyhow::Result<Asked> {
    let variable = || std::env::var(SERVER_VARIABLE).ok().filter(|_| global.context.is_none());
    let given = match global.server.clone().or_else(variable).filter(|s| !s.is_empty()) {
        Some(server) => Some(PoolContext { server, key: None }),
        None => contexts::pool(global.context.as_deref())?,
    };
    if let Some(PoolContext { server, key }) = given {
        let words = server.split(',').map(str::trim).filter(|s| !s.is_empty());
        let addresses = words.map(address).collect::<anyhow::Result<_>>()?;
        return Ok(Asked { addresses, key, is_named: true });
    }
    let here = local::sockets()?;
    let addresses = match here.as_slice() {
        [] => vec![transport::with_port(HERE)],
        [only] => vec![only.clone()],
        several => {
            let folders: Vec<&str> = several.iter().map(|s| s.trim_end_matches("/socket")).collect();
            return Err(anyhow!(
                "{} servers run here, with state folders {}: name one with --server HOST, or --server {}",
                several.len(),
                folders.join(", "),
                several.first().map_or("", String::as_str)
            ));
        }
    };
    Ok(Asked { addresses, key: None, is_named: false })
}

/// HOST:PORT of a server that somebody names, or the path of its socket: a state folder has one.
fn address(given: &str) -> anyhow::Result<String> {
    if given.starts_with('/') {
        let folder = Path::new(given).is_dir();
        return Ok(if folder { format!("{}/socket", given.trim_end_matches('/')) } else { given.to_owned() });
    }
    host_and_port("server", given)
}

/// The first that can be reached. After that there is no other try: it may have done what it was asked for.
async fn connect<'a>(addresses: &'a [String], key: &Show) -> anyhow::Result<(&'a str, Caller)> {
    let mut last = None;
    for address in addresses {
        match reach(address, key).await {
            Ok(caller) => return Ok((address, caller)),
            Err(e) => last = Some(e),
        }
    }
    let last = last.unwrap_or_else(|| anyhow!("no server is named: name one with --server HOST"));
    match addresses {
        [] | [_] => Err(last),
        several => Err(last.context(format!("none of {} answers", several.join(", ")))),
    }
}

/// By the local socket if the server runs on this machine.
async fn reach(address: &str, key: &Show) -> anyhow::Result<Caller> {
    let hello = Established::control([0; 16], ServerId(0));
    let to =
        async |at: &str, key: Option<&Arc<ClientConfig>>| Caller::connect(at, &hello, key, CONNECT).await;
    let runs_here = transport::local_sockets().iter().any(|socket| socket.address == address);
    if runs_here
        && !matches!(key, Show::This(_))
        && let Some(socket) = transport::local_socket_of(address, LOCAL_WAIT).await
    {
        match to(&socket.display().to_string(), None).await {
            // It ended without a word, and another machine may have its address by now.
            Err(TransportError::Refused { .. } | TransportError::Connect { .. }) => {}
            reached => return reached.map_err(|e| unreachable(address, &e)),
        }
    }
    let shown = match key {
        Show::This(key) | Show::Elsewhere(key) => Some(key),
        Show::AsNeeded => None,
    };
    match to(address, shown).await {
        Err(refused @ TransportError::Unwelcome { .. }) if shown.is_none() => {
            match key_for(&[address.to_owned()], None).await? {
                Some(key) => to(address, Some(&key)).await.map_err(|e| unreachable(address, &e)),
                None => Err(unreachable(address, &refused)),
            }
        }
        reached => reached.map_err(|e| unreachable(address, &e)),
    }
}

async fn exchange(address: &str, caller: &Caller, request: AdminRequest) -> anyhow::Result<AdminAnswer> {
    let body = admin::encode_request(request);
    if body.len() > BODY_MAX as usize {
        let line = format!(
            "the request has {} bytes, and a server takes {BODY_MAX} at most: ask for less at once",
            body.len()
        );
        return Err(AdminError::new(ErrorCode::Limit, line).into());
    }
    let frame = caller.call(Kind::Control, body, bytes::Bytes::new(), ANSWER).await.map_err(|e| {
        let why = bare(address, &e);
        let line = format!("server {address}: {why}: whether it was done is not known, look again");
        AdminError::new(ErrorCode::Unreachable, line)
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
    let (why, code) = match e {
        TransportError::Refused { .. } => ("connection refused".to_owned(), ErrorCode::ConnectionRefused),
        // It runs, and says itself what is missing.
        TransportError::Unwelcome { .. } => {
            let line = format!("server {address}: {}", bare(address, e));
            return AdminError::new(ErrorCode::Unreachable, line).into();
        }
        TransportError::Insecure { .. } => {
            let line = format!("server {address} refuses: {}", bare(address, e));
            return AdminError::new(ErrorCode::Unreachable, line).into();
        }
        other => (bare(address, other), ErrorCode::Unreachable),
    };
    // The only error of a lookup that has no kind of its own.
    let remedy = if why.contains("lookup address") {
        "write its name as DNS or /etc/hosts has it, or its address"
    } else {
        "start one there (mortar server --state DIR --address HOST) or name another with --server HOST"
    };
    let line = format!("server {address} cannot be reached: {why}: {remedy}");
    AdminError::new(code, line).into()
}

#[cfg(test)]
mod tests {
    use super::address;

    #[test]
    fn servers_are_named_by_host_and_port_or_by_their_socket() {
        for (given, wanted) in
            [("h", "h:24240"), ("/s/socket", "/s/socket"), ("/tmp", "/tmp/socket"), ("/tmp/", "/tmp/socket")]
        {
            assert_eq!(address(given).unwrap(), wanted);
        }
        assert!(address("http://h").unwrap_err().to_string().starts_with("server http://h: write HOST"));
    }
}

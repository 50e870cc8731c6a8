//! Asking a server of the pool.

use crate::cli::Global;
use crate::limits::LOCAL_WAIT;
use crate::local_key::key_for;
use crate::{contexts, keys, local};
use admin::{AdminAnswer, AdminError, AdminRequest, Ask, ErrorCode};
use anyhow::anyhow;
use ids::ServerId;
use std::sync::Arc;
use std::time::Duration;
use transport::{Caller, Established, TransportError};
use trust::ClientConfig;
use wire::Kind;

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
    let addresses = addresses(global)?;
    let local = addresses.iter().all(|address| address.starts_with('/'));
    let key = if local { None } else { keys::settings(global.key_file.as_deref())? };
    let key = match key {
        Some(key) if keys::is_named(global.key_file.as_deref()) => Show::This(key),
        Some(key) => Show::Elsewhere(key),
        None => Show::AsNeeded,
    };
    ask_one_of(&addresses, &key, request)
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

/// Where to ask: what is given (the path of a local socket too), or the local socket of the only server here.
fn addresses(global: &Global) -> anyhow::Result<Vec<String>> {
    let variable = || std::env::var(SERVER_VARIABLE).ok().filter(|_| global.context.is_none());
    let given = match global.server.clone().or_else(variable).filter(|s| !s.is_empty()) {
        Some(given) => Some(given),
        None => contexts::servers(global.context.as_deref())?,
    };
    if let Some(given) = given {
        let address = |s: &str| if s.starts_with('/') { s.to_owned() } else { transport::with_port(s) };
        return Ok(given.split(',').map(str::trim).filter(|s| !s.is_empty()).map(address).collect());
    }
    let here = local::sockets()?;
    match here.as_slice() {
        [] => Ok(vec![transport::with_port(HERE)]),
        [only] => Ok(vec![only.clone()]),
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
    let others = addresses.split_last().map_or(&[][..], |(_, others)| others);
    if others.is_empty() {
        Err(last)
    } else {
        Err(last.context(format!("server {} does not answer either", others.join(", "))))
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
    let line = format!(
        "server {address} cannot be reached: {why}: start one there (mortar server --state DIR --address HOST) or name \
         another with --server HOST"
    );
    AdminError::new(code, line).into()
}

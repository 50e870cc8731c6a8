//! Looks up the hosts that options of volumes name, by whatever this machine looks names up (DNS, /etc/hosts).
//!
//! Who sets an option looks its hosts up before, so that a misspelt one is refused; the leader looks all up again from time to
//! time. The addresses go into the pool's state, so that all servers let the same clients in.

use super::Control;
use super::answers::refused;
use super::status::join_all;
use admin::{AdminError, ErrorCode};
use cluster::{Command, Hosts, State};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// The leader looks all hosts up so often.
const EVERY: Duration = Duration::from_secs(60);
/// A name that has no address within this time has none.
const WAIT: Duration = Duration::from_secs(5);
/// So many names are looked up at a time: each takes a thread.
const AT_ONCE: usize = 16;

/// The addresses of a host, or why there are none.
async fn look_up(host: &str) -> Result<BTreeSet<std::net::IpAddr>, String> {
    match tokio::time::timeout(WAIT, tokio::net::lookup_host((host, 0))).await {
        Ok(Ok(found)) => Ok(found.map(|at| at.ip().to_canonical()).collect()),
        Ok(Err(e)) => Err(e.to_string()),
        Err(_) => Err(format!("no answer within {} s", WAIT.as_secs())),
    }
}

/// The addresses of those that were found, and why others were not.
async fn look_up_all(hosts: &BTreeSet<String>) -> (Hosts, BTreeMap<String, String>) {
    let (mut found, mut failed) = (Hosts::new(), BTreeMap::new());
    let all: Vec<&String> = hosts.iter().collect();
    for some in all.chunks(AT_ONCE) {
        let looked = join_all(some.iter().map(|host| async move { (*host, look_up(host).await) })).await;
        for (host, addresses) in looked {
            match addresses {
                Ok(addresses) if !addresses.is_empty() => drop(found.insert(host.clone(), addresses)),
                Ok(_) => drop(failed.insert(host.clone(), "it has no address".to_owned())),
                Err(why) => drop(failed.insert(host.clone(), why)),
            }
        }
    }
    (found, failed)
}

/// Looks up what a command names, and says what has to be noted before it; `None`: nothing.
///
/// # Errors
/// A host that cannot be found and is not known to the pool, with the reason; servers of an older version are in the pool.
pub(super) async fn note_before(state: &State, command: &Command) -> Result<Option<Command>, AdminError> {
    let named = command.named_hosts();
    if named.is_empty() || state.level < cluster::HOSTS_BY_NAME {
        return Ok(None);
    }
    let (found, failed) = look_up_all(&named).await;
    if let Some((host, why)) = failed.iter().find(|(host, _)| !state.hosts.contains_key(*host)) {
        let line = format!(
            "no address of host '{host}' is found ({why}): write its address, or make its name known to the servers (DNS, \
             /etc/hosts)"
        );
        return Err(AdminError::new(ErrorCode::Invalid, line));
    }
    let Some(hosts) = state.hosts_to_note(&found) else { return Ok(None) };
    let note = Command::NoteHosts { hosts };
    // What is refused leaves no note.
    let mut planned = state.clone();
    planned.apply(&note).map_err(|e| refused(&e))?;
    if let Command::SetOptions { .. } = command {
        planned.apply(command).map_err(|e| refused(&e))?;
    }
    Ok(Some(note))
}

/// As long as this server leads, it looks all hosts up again and notes what has changed.
pub(super) async fn run(control: Arc<Control>) {
    let mut told = BTreeMap::new();
    loop {
        tokio::time::sleep(EVERY).await;
        let state = control.state();
        if !control.store().is_leader() || state.level < cluster::HOSTS_BY_NAME {
            continue;
        }
        let (found, failed) = look_up_all(&state.named_hosts()).await;
        for (host, why) in &failed {
            if told.get(host) != Some(why) {
                let then =
                    if state.hosts.contains_key(host) { "it counts as where it was" } else { "nobody is it" };
                tracing::warn!(
                    "no address of host '{host}', which auth.allow or auth.reject names, is found ({why}): {then}"
                );
            }
        }
        told = failed;
        if let Some(hosts) = control.state().hosts_to_note(&found)
            && let Err(e) = control.propose(Command::NoteHosts { hosts }).await
        {
            tracing::warn!("note the addresses of hosts: {e}");
        }
    }
}

//! `mortar peer probe`.

use crate::address::host_and_port;
use crate::cli::Global;
use crate::limits::{PROBE_AGAIN, PROBE_WAIT};
use crate::table::shown_host;
use crate::{ask, confirm, output};
use admin::{AdminError, ErrorCode};
use anyhow::bail;
use clap::Args;
use std::io::IsTerminal;
use std::time::Instant;

/// Take a server into the pool.
///
/// It must run, and have no volumes and no other servers of its own. One that is just being started is waited for.
/// One on the machine of the server that is asked needs nothing else. One on another machine has to be started with
/// --invite: its fingerprint is shown, to be compared with the one in its log; or start it with a token (mortar pool token).
#[derive(Args, Debug)]
#[command(after_help = "Example: mortar peer probe server2")]
pub(crate) struct Probe {
    /// The server. The name is what bricks are written with from now on: HOST:/PATH.
    #[arg(value_name = "HOST[:PORT]")]
    host: String,
    /// The fingerprint in the log of the server, on another machine. Unless given: asked for at a terminal.
    #[arg(long, value_name = "HEX")]
    fingerprint: Option<String>,
}

impl Probe {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<()> {
        let (host, port) = split(&self.host)?;
        let probe = admin::PeerProbe { host, port, fingerprint: self.fingerprint };
        let answer = take_in(global, probe, "confirm it with --fingerprint")?;
        output::done(global.json, &answer, &line(&answer))
    }
}

/// What became of a server.
pub(in crate::commands) fn line(answer: &admin::PeerProbed) -> String {
    let when = if answer.already { "already" } else { "now" };
    format!("{} is in the pool {when}, as server {}", shown_host(&answer.host), answer.server)
}

/// Takes a server in. Whoever is at the terminal confirms its fingerprint if it has to be; `how`: what else to do with it.
pub(in crate::commands) fn take_in(
    global: &Global,
    mut probe: admin::PeerProbe,
    how: &str,
) -> anyhow::Result<admin::PeerProbed> {
    let mut answer = ask_patiently(global, &probe)?;
    if let Some(shown) = answer.confirm.take() {
        let host = shown_host(&probe.host);
        if !std::io::stdin().is_terminal() {
            bail!(
                "probe {host}: it shows fingerprint {shown}: compare it with the one in its log, and {how} {shown}"
            );
        }
        // Not answered by --yes: somebody has to look.
        let asking = Global { yes: false, ..global.clone() };
        let question = format!("Server {host} shows fingerprint {shown}. Is it the one in its log?");
        confirm::confirm(&asking, &question)?;
        probe.fingerprint = Some(shown);
        answer = ask_patiently(global, &probe)?;
    }
    Ok(answer)
}

/// A server that was started a moment ago may not answer yet.
fn ask_patiently(global: &Global, request: &admin::PeerProbe) -> anyhow::Result<admin::PeerProbed> {
    let until = Instant::now() + PROBE_WAIT;
    loop {
        match ask::ask(global, request.clone()) {
            Err(e) if nobody_listens(&e) && Instant::now() < until => std::thread::sleep(PROBE_AGAIN),
            answer => return answer,
        }
    }
}

/// Whether nobody listens yet: at the server that is probed, or at the one that is asked.
fn nobody_listens(e: &anyhow::Error) -> bool {
    e.downcast_ref::<AdminError>().is_some_and(|e| e.code == ErrorCode::ConnectionRefused)
}

/// Host and port of `HOST[:PORT]`.
fn split(given: &str) -> anyhow::Result<(String, Option<u16>)> {
    // Only if no port is added there was one.
    let written = host_and_port("server", given)? == given;
    let parts = given.rsplit_once(':').filter(|_| written);
    Ok(match parts.and_then(|(host, port)| Some((host, port.parse().ok()?))) {
        Some((host, port)) => (host.to_owned(), Some(port)),
        None => (given.to_owned(), None),
    })
}

#[cfg(test)]
mod tests {
    use super::{nobody_listens, split};
    use admin::{AdminError, ErrorCode};
    use anyhow::Context;

    #[test]
    fn a_code_tells_that_nobody_listens_and_no_sentence() {
        let failed =
            |code, line: &str| Err::<(), _>(AdminError::new(code, line)).context("probe").unwrap_err();
        assert!(nobody_listens(&failed(ErrorCode::ConnectionRefused, "h:1: Verbindung abgelehnt")));
        assert!(!nobody_listens(&failed(ErrorCode::Conflict, "h:1: connection refused by its owner")));
        assert!(!nobody_listens(&anyhow::anyhow!("connection refused")));
    }

    #[test]
    fn a_port_is_told_apart_from_its_host() {
        assert_eq!(split("h").unwrap(), ("h".to_owned(), None));
        assert_eq!(split("h:9").unwrap(), ("h".to_owned(), Some(9)));
        assert_eq!(split("[::1]:9").unwrap(), ("[::1]".to_owned(), Some(9)));
        assert!(split("h:x").is_err() && split(":1").is_err());
    }
}

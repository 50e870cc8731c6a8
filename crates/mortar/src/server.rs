//! `mortar server`: one server in the foreground.

use anyhow::Context;
use clap::Args;
use cli::{LogArgs, die_with, end_at_panics, host_and_port, notify_ready, output, usage};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::PathBuf;

/// Bytes of a token with its host.
const JOIN_LINE: u64 = 4096;

/// Run a server in the foreground.
///
/// With an empty state folder it is a pool of one that lets nobody in without a key, but root of this machine. It comes into
/// another pool with a token (--join), or by `mortar peer probe` there.
/// Prints `ready HOST:PORT` once it serves and ends cleanly on SIGTERM and SIGINT; SIGHUP has it open its log file anew.
/// Several servers on one machine: give each its own loopback address and state folder.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples: mortar server --state /var/lib/mortar --address 192.0.2.11; mortar server --state /var/lib/mortar \
                  --address 192.0.2.11 --metrics 192.0.2.11:9240 --metrics-tls"
)]
pub(crate) struct ServerCommand {
    /// The state folder: identity and pool store. Made if it is not there.
    #[arg(long, value_name = "DIR")]
    state: PathBuf,
    /// Where to listen, and where others find this server. Port 24240 unless given.
    #[arg(long, value_name = "HOST[:PORT]")]
    address: String,
    /// Join the pool of HOST with a token (mortar pool token), if the state folder is empty. In place of it the name of a file
    /// that holds it, or - for the standard input: so it is not in the list of processes.
    #[arg(long, value_name = "TOKEN@HOST[:PORT]|FILE|-")]
    join: Option<String>,
    /// While this server is alone, let it be taken into a pool over the network (mortar peer probe on another machine, which
    /// shows its fingerprint). Whoever reaches its port first could do that: a token (--join) needs no such trust.
    #[arg(long, conflicts_with = "join")]
    invite: bool,
    /// A second address, for the command line only.
    #[arg(long, value_name = "HOST:PORT")]
    admin: Option<String>,
    /// Where Prometheus reads metrics, at /metrics: over plain HTTP, best at a loopback address, or over HTTPS
    /// (--metrics-tls). Nowhere unless given.
    #[arg(long, value_name = "HOST:PORT")]
    metrics: Option<String>,
    /// Give out metrics over HTTPS, with the console's certificate, which the pool's authority signs; a secured pool's only.
    #[arg(long, requires = "metrics")]
    metrics_tls: bool,
    /// Give out metrics over HTTPS, with this key: PEM, the host's certificate, those between, and the private key.
    #[arg(long, value_name = "FILE", requires = "metrics", conflicts_with = "metrics_tls")]
    metrics_key: Option<PathBuf>,
    /// Where browsers find the web console, over HTTPS; a secured pool's only. Nowhere unless given.
    #[arg(long, value_name = "HOST:PORT")]
    console: Option<String>,
    /// A key for the console that browsers believe: PEM, the host's certificate, those between, and the private key.
    #[arg(long, value_name = "FILE", requires = "console")]
    console_key: Option<PathBuf>,
    /// Memory for requests of all clients together, and for answers that they have not taken yet: 256MiB at least. A quarter of
    /// the machine's unless given.
    #[arg(long, value_name = "SIZE")]
    client_memory: Option<String>,
    #[command(flatten)]
    log: LogArgs,
    /// End when the process of this number, which started us, ends.
    #[arg(long, value_name = "PID", hide = true)]
    die_with: Option<i32>,
}

impl ServerCommand {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let address = checked_own(&self.address)?;
        let admin = self.admin.as_deref().map(|given| host_and_port("address", given)).transpose()?;
        let page =
            |given: &Option<String>, what| given.as_deref().map(|at| checked_page(at, what)).transpose();
        let (metrics, console) = (page(&self.metrics, "metrics")?, page(&self.console, "console")?);
        let client_memory = self.client_memory.as_deref().map(checked_memory).transpose()?;
        // Whoever has joined needs the token no more: its file may be gone.
        let join = self.join.as_deref().filter(|_| !daemon::ServerOptions::has_pool(&self.state));
        let join = join.map(pool_to_join).transpose()?;
        end_at_panics();
        die_with(self.die_with)?;
        let log = self.log.start()?;
        raise_descriptor_limit();
        crate::privileges::keep_needed();
        log.reopen_on_hangup()?;
        let ServerCommand { state, metrics_tls, metrics_key, console_key, invite, .. } = self;
        let metrics_key =
            metrics_key.map(daemon::PageKey::File).or(metrics_tls.then_some(daemon::PageKey::Own));
        let options = daemon::ServerOptions {
            state,
            address,
            admin,
            join,
            metrics,
            metrics_key,
            console,
            console_key,
            invite,
            client_memory,
        };
        let server = daemon::Server::start(&options)?;
        tracing::info!("serving on {}", server.address());
        output::line(&format!("ready {}", server.address()))?;
        notify_ready();
        server.run();
        Ok(())
    }
}

fn checked_memory(given: &str) -> anyhow::Result<usize> {
    const LEAST: u64 = 256 << 20;
    match daemon::parse_size(given).filter(|n| *n >= LEAST).map(usize::try_from) {
        Some(Ok(bytes)) => Ok(bytes),
        _ => usage(format!("--client-memory {given}: it is a size of 256MiB or more, as 512MiB or 4GiB")),
    }
}

/// What `--join` says, or what the file says that it names.
fn pool_to_join(given: &str) -> anyhow::Result<daemon::Join> {
    if let Some(join) = join_of(given)? {
        return Ok(join);
    }
    if daemon::Join::is_token(given) {
        return usage("--join: the token lacks its @HOST: give it as mortar pool token prints it");
    }
    let text = match given {
        "-" => first_line(&mut std::io::stdin().lock()),
        path => File::open(path).and_then(|mut file| first_line(&mut BufReader::new(&mut file))),
    };
    let text = text.with_context(|| format!("--join {given}: it is no TOKEN@HOST, and as a file"))?;
    match join_of(&text)? {
        Some(join) => Ok(join),
        None => usage(format!("--join {given}: it holds no TOKEN@HOST, as mortar pool token prints it")),
    }
}

fn join_of(text: &str) -> anyhow::Result<Option<daemon::Join>> {
    let Some((token, at)) = text.split_once('@') else { return Ok(None) };
    Ok(Some(daemon::Join { token: token.to_owned(), at: host_and_port("address", at)? }))
}

fn first_line(from: &mut impl BufRead) -> std::io::Result<String> {
    let mut line = String::new();
    from.take(JOIN_LINE).read_line(&mut line)?;
    Ok(line.trim().to_owned())
}

/// The address of this server, which others are told.
fn checked_own(given: &str) -> anyhow::Result<String> {
    let address = host_and_port("address", given)?;
    // The number of a network card means nothing to others.
    let is_nobodys =
        |at: SocketAddr| at.ip().is_unspecified() || matches!(at, SocketAddr::V6(at) if at.scope_id() != 0);
    if address.parse().is_ok_and(is_nobodys) {
        return usage(format!(
            "address {given}: others cannot find this server there: give --address a name or an address of this machine"
        ));
    }
    Ok(address)
}

/// There is no usual port for metrics and the console: one must be named.
fn checked_page(given: &str, what: &str) -> anyhow::Result<String> {
    if given.parse::<SocketAddr>().is_ok_and(|a| a.port() > 0) {
        return Ok(given.to_owned());
    }
    match given.rsplit_once(':') {
        Some((host, port))
            if !host.is_empty() && !host.contains(':') && port.parse().is_ok_and(|p: u16| p > 0) =>
        {
            Ok(given.to_owned())
        }
        _ => {
            usage(format!("{what} {given}: write HOST:PORT with a port from 1 to 65535, like 127.0.0.1:9240"))
        }
    }
}

/// Descriptors up to the hard limit: nobody should have to know about `ulimit -n`.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(e) = setrlimit(Resource::Nofile, wanted) {
        tracing::warn!("raise the limit of open files from {:?}: {e}", limit.current);
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn addresses() {
        for bad in
            ["", "h:0", "0.0.0.0", "0.0.0.0:9", "::", "[::]", "[::]:9", ":::9", "[x]:9", "[fe80::1%2]:9"]
        {
            let refused = super::checked_own(bad).unwrap_err().to_string();
            assert!(refused.starts_with("address"), "{refused}");
        }
        assert_eq!(super::checked_own("fd00::1").unwrap(), "[fd00::1]:24240");
        for good in ["127.0.0.1:9240", "[::1]:9240", "localhost:1"] {
            assert_eq!(super::checked_page(good, "metrics").unwrap(), good);
        }
        for bad in ["127.0.0.1", "::1", "h:0", ":9240", "h:x"] {
            assert!(super::checked_page(bad, "metrics").is_err(), "{bad}");
        }
    }

    #[test]
    fn a_token_is_given_as_a_word_or_in_a_file() {
        let join = super::pool_to_join("abc@h1").unwrap();
        assert_eq!((join.token.as_str(), join.at.as_str()), ("abc", "h1:24240"));
        let file = std::env::temp_dir().join(format!("mortar-join-{}", std::process::id()));
        let path = file.display().to_string();
        let why = super::pool_to_join(&path).err().map(|e| format!("{e:#}")).unwrap();
        assert!(why.contains("as a file") && why.contains("No such file"), "{why}");
        std::fs::write(&file, " abc@h1:99 \nmore").unwrap();
        let join = super::pool_to_join(&path).unwrap();
        assert_eq!((join.token.as_str(), join.at.as_str()), ("abc", "h1:99"));
        let halved = super::pool_to_join("mortar-join-1-abc").err().unwrap().to_string();
        assert!(
            halved.contains("lacks its @HOST") && !halved.contains("abc"),
            "a token is a secret: {halved}"
        );
        std::fs::write(&file, vec![b'x'; 1 << 20]).unwrap();
        assert!(super::pool_to_join(&path).err().unwrap().to_string().contains("holds no TOKEN@HOST"));
        std::fs::remove_file(&file).unwrap();
    }
}

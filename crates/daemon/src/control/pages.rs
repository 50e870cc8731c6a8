//! The pages of this server, metrics and the web console: where it listens for them, and with which key.

use super::entrance::listen_if_given;
use super::{Control, ServerOptions};
use crate::console::Console;
use crate::http::{self, Key};
use crate::keys::ServerKeys;
use crate::metrics::MetricsSite;
use crate::shared::lock;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;
use trust::{Fingerprint, ServerConfig, WebKey, read_private, write_private};

/// The key that this server makes for pages, in the folder of its keys.
const KEY: &str = "console";

/// The key that a page is encrypted with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PageKey {
    /// One that the server makes, and the pool's authority signs.
    Own,
    /// The one in a file, with certificates that others believe.
    File(PathBuf),
}

/// The ports of those pages that there are to be.
pub(super) struct Ports {
    metrics: Option<TcpListener>,
    console: Option<TcpListener>,
}

impl Ports {
    pub(super) async fn listen(options: &ServerOptions) -> Result<Ports, String> {
        Ok(Ports {
            metrics: listen_if_given(options.metrics.as_deref(), "--metrics").await?,
            console: listen_if_given(options.console.as_deref(), "--console").await?,
        })
    }

    /// # Errors
    /// One line: a page has no key, or nobody could sign in.
    pub(super) fn begin(self, control: &Arc<Control>, options: &ServerOptions) -> Result<Pages, String> {
        let mut keys = Keys { control, options, own: None };
        let console = self.console.map(|listener| {
            let key = keys.of_console()?;
            tell("the console is", "https", &listener, "/");
            Ok::<_, String>((listener, Console::new(control.clone(), key)))
        });
        let metrics = self.metrics.map(|listener| {
            let key = keys.of_metrics()?;
            tell("metrics are", if key.is_some() { "https" } else { "http" }, &listener, "/metrics");
            Ok::<_, String>((listener, key))
        });
        Ok(Pages { control: control.clone(), metrics: metrics.transpose()?, console: console.transpose()? })
    }
}

fn tell(what: &str, scheme: &str, listener: &TcpListener, path: &str) {
    if let Ok(address) = listener.local_addr() {
        tracing::info!("{what} at {scheme}://{address}{path}");
    }
}

/// Pages that can be served.
pub(super) struct Pages {
    control: Arc<Control>,
    metrics: Option<(TcpListener, Option<Key>)>,
    console: Option<(TcpListener, Console<Arc<Control>>)>,
}

impl Pages {
    /// Serves them from now on.
    pub(super) fn serve(self) {
        let Pages { control, metrics, console } = self;
        if let Some((listener, key)) = metrics {
            let text = move || {
                let control = control.clone();
                async move { control.metrics().await }
            };
            tokio::spawn(http::serve(listener, MetricsSite::new(key, text)));
        }
        if let Some((listener, console)) = console {
            tokio::spawn(http::serve(listener, console));
        }
    }
}

/// Which keys the pages get.
struct Keys<'a> {
    control: &'a Arc<Control>,
    options: &'a ServerOptions,
    /// The server's own: one for all pages.
    own: Option<Arc<OwnKey>>,
}

impl Keys<'_> {
    fn of_console(&mut self) -> Result<Key, String> {
        let keys = self.control.own_keys().map_err(|_| {
            "--console: one signs in there with a key, and this pool has none yet: start without --console, run mortar pool \
             secure, then start with it"
        })?;
        match &self.options.console_key {
            Some(path) => of_file(path, "--console-key", "console"),
            None => self.own(&keys, "console"),
        }
    }

    /// `None`: metrics are not encrypted.
    fn of_metrics(&mut self) -> Result<Option<Key>, String> {
        match &self.options.metrics_key {
            None => Ok(None),
            Some(PageKey::File(path)) => of_file(path, "--metrics-key", "metrics").map(Some),
            Some(PageKey::Own) => {
                let keys = self.control.own_keys().map_err(|_| {
                    "--metrics-tls: the pool's authority signs the certificate, and this pool has none yet: give --metrics-key \
                     FILE, or start without --metrics-tls, run mortar pool secure, then start with it"
                })?;
                self.own(&keys, "metrics").map(Some)
            }
        }
    }

    fn own(&mut self, keys: &ServerKeys, page: &'static str) -> Result<Key, String> {
        let own = match &self.own {
            Some(own) => own.clone(),
            None => Arc::new(OwnKey::new(self.control.clone(), keys, names(self.options), page)?),
        };
        self.own = Some(own.clone());
        Ok(Box::new(move || own.config()))
    }
}

/// The key in a file that a word of the command line names.
fn of_file(path: &Path, word: &str, page: &str) -> Result<Key, String> {
    let read = read_private(path).and_then(|bytes| WebKey::decode(&bytes));
    let config = used(&read.map_err(|e| format!("{word} {}: {e}", path.display()))?, page)?;
    Ok(Box::new(move || config.clone()))
}

/// What TLS is to do with a key.
fn used(key: &WebKey, page: &str) -> Result<Arc<ServerConfig>, String> {
    let config = key.config().map_err(|e| format!("the key of the {page}: {e}"))?;
    if let Some(fingerprint) = key.fingerprint() {
        tracing::info!("the certificate of the {page} has SHA-256 {fingerprint}");
    }
    Ok(config)
}

/// The key that this server makes for its pages: another one when another authority takes the place of the pool's.
struct OwnKey {
    control: Arc<Control>,
    path: PathBuf,
    names: Vec<String>,
    /// Whose page it was made for first.
    page: &'static str,
    /// The authority that has signed it, and what TLS is to do with it.
    now: Mutex<(Fingerprint, Arc<ServerConfig>)>,
}

impl OwnKey {
    fn new(
        control: Arc<Control>,
        keys: &ServerKeys,
        names: Vec<String>,
        page: &'static str,
    ) -> Result<OwnKey, String> {
        let path = control.folder.keys().join(KEY);
        let config = used(&own_key(keys, &path, &names, page)?, page)?;
        Ok(OwnKey { control, path, names, page, now: Mutex::new((keys.authority().fingerprint(), config)) })
    }

    /// For a connection that comes now.
    fn config(&self) -> Arc<ServerConfig> {
        let mut now = lock(&self.now);
        if let Some(keys) = self.control.shared.keys() {
            let authority = keys.authority().fingerprint();
            if authority != now.0 {
                let made = own_key(&keys, &self.path, &self.names, self.page);
                match made.and_then(|key| used(&key, self.page)) {
                    Ok(config) => *now = (authority, config),
                    Err(e) => tracing::warn!("the {} goes on with its old key: {e}", self.page),
                }
            }
        }
        now.1.clone()
    }
}

/// The key that is there, so that browsers find what they were told to believe; another one if it is not good any more.
fn own_key(keys: &ServerKeys, path: &Path, names: &[String], page: &str) -> Result<WebKey, String> {
    let stored = read_private(path).ok().and_then(|bytes| WebKey::decode(&bytes).ok());
    if let Some(key) = stored.filter(|key| key.is_of(keys.authority(), names) && key.config().is_ok()) {
        return Ok(key);
    }
    let key = WebKey::issue(keys.authority(), names).map_err(|e| format!("--{page}: {e}"))?;
    write_private(path, &key.encode()).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(key)
}

/// What this host is called: where the pages with that key and the server listen, and the machine's own name.
fn names(options: &ServerOptions) -> Vec<String> {
    let metrics = options.metrics.as_deref().filter(|_| options.metrics_key == Some(PageKey::Own));
    let hosts = [options.console.as_deref(), metrics, Some(options.address.as_str())].into_iter().flatten();
    let hosts =
        hosts.map(|at| at.rsplit_once(':').map_or(at, |(host, _)| host).trim_matches(['[', ']']).to_owned());
    let machine = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let mut names: Vec<String> = Vec::new();
    for name in hosts.chain([machine]) {
        let good = match name.parse::<IpAddr>() {
            Ok(address) => !address.is_unspecified(),
            Err(_) => is_host(&name),
        };
        if good && !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Whether a certificate can name such a host.
fn is_host(name: &str) -> bool {
    let label =
        |l: &str| !l.is_empty() && l.len() < 64 && l.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    name.len() < 254 && name.split('.').all(label)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(console: &str, address: &str) -> ServerOptions {
        ServerOptions {
            state: "/s".into(),
            address: address.to_owned(),
            admin: None,
            join: None,
            metrics: None,
            metrics_key: None,
            console: Some(console.to_owned()),
            console_key: None,
            invite: false,
            client_memory: None,
        }
    }

    #[test]
    fn a_certificate_names_the_host() {
        let own = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let of = |console, address| {
            let mut names = names(&options(console, address));
            names.retain(|name| *name != own);
            names
        };
        assert_eq!(of("[::1]:9", "h.example:24240"), ["::1", "h.example"]);
        assert_eq!(of("0.0.0.0:9", "192.0.2.1:24240"), ["192.0.2.1"]);
        assert_eq!(of("[::]:9", "a b:24240"), [""; 0]);
        let metrics = |key| {
            let base = options("[::1]:9", "192.0.2.1:24240");
            names(&ServerOptions { metrics: Some("m.example:9".to_owned()), metrics_key: key, ..base })
        };
        let own_key = metrics(Some(PageKey::Own));
        assert_eq!(own_key[..3], ["::1", "m.example", "192.0.2.1"]);
        for other in [None, Some(PageKey::File("/f".into()))] {
            assert_eq!(metrics(other)[..2], ["::1", "192.0.2.1"], "another key, or none");
        }
        for (name, good) in
            [("a-1.b", true), ("a..b", false), ("", false), ("a_b", false), (&*"x".repeat(64), false)]
        {
            assert_eq!(is_host(name), good, "{name}");
        }
    }
}

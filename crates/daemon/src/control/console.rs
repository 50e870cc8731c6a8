//! The web console of this server: where it listens, with which key, and what it may ask.

use super::entrance::listen;
use super::{Control, ServerOptions};
use crate::clock::unix_now;
use crate::console::{Console, Host, Key};
use crate::keys::ServerKeys;
use crate::shared::lock;
use crate::speaker::Speaker;
use admin::{AdminAnswer, AdminError, AdminRequest, Event};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;
use trust::{Fingerprint, Holder, Identity, KeyFile, ServerConfig, WebKey, read_private, write_private};

/// The console's key, in the folder of the server's keys.
const KEY: &str = "console";

/// The console's port, if it is to have one.
pub(super) async fn listen_for(options: &ServerOptions) -> Result<Option<TcpListener>, String> {
    let Some(address) = &options.console else { return Ok(None) };
    listen(address).await.map(Some).map_err(|e| e.replace("--address", "--console"))
}

/// A console that can be served.
pub(super) struct Begun {
    listener: TcpListener,
    console: Console<Arc<Control>>,
}

impl Begun {
    /// # Errors
    /// One line: the pool takes nobody's key, or the console has none.
    pub(super) fn new(
        control: &Arc<Control>,
        listener: TcpListener,
        options: &ServerOptions,
    ) -> Result<Begun, String> {
        let keys = control.shared.keys().filter(|_| control.shared.is_secured()).ok_or(
            "--console: one signs in there with a key, and this pool has none yet: start without --console, run mortar pool \
             secure, then start with it",
        )?;
        let key: Key = match &options.console_key {
            Some(path) => {
                let read = read_private(path).and_then(|bytes| WebKey::decode(&bytes));
                let config = used(&read.map_err(|e| format!("--console-key {}: {e}", path.display()))?)?;
                Box::new(move || config.clone())
            }
            None => {
                let own = OwnKey::new(control.clone(), &keys, names(options))?;
                Box::new(move || own.config())
            }
        };
        if let Ok(address) = listener.local_addr() {
            tracing::info!("the console is at https://{address}/");
        }
        Ok(Begun { listener, console: Console::new(control.clone(), key) })
    }

    /// Serves it, for ever.
    pub(super) async fn serve(self) {
        crate::http::serve(self.listener, self.console).await;
    }
}

/// What TLS is to do with a key.
fn used(key: &WebKey) -> Result<Arc<ServerConfig>, String> {
    let config = key.config().map_err(|e| format!("the console's key: {e}"))?;
    if let Some(fingerprint) = key.fingerprint() {
        tracing::info!("the console's certificate has SHA-256 {fingerprint}");
    }
    Ok(config)
}

/// The key that this server makes for the console: another one when another authority takes the place of the pool's.
struct OwnKey {
    control: Arc<Control>,
    path: PathBuf,
    names: Vec<String>,
    /// The authority that has signed it, and what TLS is to do with it.
    now: Mutex<(Fingerprint, Arc<ServerConfig>)>,
}

impl OwnKey {
    fn new(control: Arc<Control>, keys: &ServerKeys, names: Vec<String>) -> Result<OwnKey, String> {
        let path = control.folder.keys().join(KEY);
        let config = used(&own_key(keys, &path, &names)?)?;
        Ok(OwnKey { control, path, names, now: Mutex::new((keys.authority().fingerprint(), config)) })
    }

    /// For a connection that comes now.
    fn config(&self) -> Arc<ServerConfig> {
        let mut now = lock(&self.now);
        if let Some(keys) = self.control.shared.keys() {
            let authority = keys.authority().fingerprint();
            if authority != now.0 {
                match own_key(&keys, &self.path, &self.names).and_then(|key| used(&key)) {
                    Ok(config) => *now = (authority, config),
                    Err(e) => tracing::warn!("the console goes on with its old key: {e}"),
                }
            }
        }
        now.1.clone()
    }
}

/// The key that is there, so that browsers find what they were told to believe; another one if it is not good any more.
fn own_key(keys: &ServerKeys, path: &Path, names: &[String]) -> Result<WebKey, String> {
    let stored = read_private(path).ok().and_then(|bytes| WebKey::decode(&bytes).ok());
    if let Some(key) = stored.filter(|key| key.is_of(keys.authority(), names) && key.config().is_ok()) {
        return Ok(key);
    }
    let key = WebKey::issue(keys.authority(), names).map_err(|e| format!("--console: {e}"))?;
    write_private(path, &key.encode()).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(key)
}

/// What this host is called: where the console and the server listen, and the machine's own name.
fn names(options: &ServerOptions) -> Vec<String> {
    let hosts = [options.console.as_deref(), Some(options.address.as_str())].into_iter().flatten();
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

impl Host for Arc<Control> {
    fn recognize(&self, key_file: &[u8]) -> Result<Speaker, String> {
        let keys = self.own_keys().map_err(|e| e.message)?;
        let file = KeyFile::decode(key_file).map_err(|e| format!("this is no key file: {e}"))?;
        let file = file.with_authorities(keys.authorities().to_vec());
        let file = file.map_err(|_| "this key is of another pool".to_owned())?;
        if !matches!(file.identity(), Identity { holder: Holder::Admin(_), .. }) {
            return Err("this is not an administrator's key: mortar pool key makes one".to_owned());
        }
        let who = Speaker::Key(file.identity().clone());
        who.admitted(&self.state(), true, unix_now()).map(|()| who)
    }

    fn lets_in(&self, who: &Speaker) -> bool {
        // This server may have come into another pool, which gives the same numbers to other keys.
        let of_pool = matches!(who, Speaker::Key(identity) if identity.pool == self.shared.pool());
        of_pool && who.admitted(&self.state(), true, unix_now()).is_ok()
    }

    fn note_entry(&self, who: String) {
        tracing::info!("{who}: signed in");
        let text = "signed in to the console".to_owned();
        self.note(Event { kind: "admin".to_owned(), text, who: Some(who), ..Event::default() });
    }

    async fn ask(&self, request: AdminRequest, who: String) -> Result<AdminAnswer, AdminError> {
        self.audited_admin(request, who).await
    }
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
        for (name, good) in
            [("a-1.b", true), ("a..b", false), ("", false), ("a_b", false), (&*"x".repeat(64), false)]
        {
            assert_eq!(is_host(name), good, "{name}");
        }
    }
}

//! This server's keys: the pool's authority, and its own key that the authority signed. In `STATE/keys`.
//!
//! Always true: what is used belongs together, and a pool that is secured is never served without keys.

use ids::{KeyId, ServerId};
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::Arc;
use trust::{
    Authority, CertificateDer, ClientConfig, Holder, Identity, KeyFile, ServerConfig, TrustError,
    client_config, read_private, server_config, write_private,
};

const AUTHORITY: &str = "authority";
const SERVER: &str = "server";

/// The keys, and what TLS is to do with them.
#[derive(Debug)]
pub(crate) struct ServerKeys {
    authority: Arc<Authority>,
    own: KeyFile,
    server: ServerId,
    accepts: Arc<ServerConfig>,
    dials: Arc<ClientConfig>,
}

impl ServerKeys {
    /// The authority, and this server's key, which it signed.
    ///
    /// # Errors
    /// One line: they do not belong together.
    pub(crate) fn new(authority: Authority, own: KeyFile) -> Result<ServerKeys, String> {
        ServerKeys::of(Arc::new(authority), own)
    }

    fn of(authority: Arc<Authority>, own: KeyFile) -> Result<ServerKeys, String> {
        if !own.authorities().contains(authority.certificate()) || own.identity().pool != authority.pool() {
            return Err("the server's key was not made with this authority".to_owned());
        }
        let Holder::Server(server) = own.identity().holder else {
            return Err("the key is not a server's".to_owned());
        };
        let accepts = server_config(&own).map_err(|e| e.to_string())?;
        let dials = client_config(&own).map_err(|e| e.to_string())?;
        Ok(ServerKeys { authority, own, server, accepts, dials })
    }

    /// The keys in that folder.
    ///
    /// # Errors
    /// One line: some are not there, damaged, or do not belong together.
    pub(crate) fn read(folder: &Path) -> Result<ServerKeys, String> {
        let file = |name: &str| {
            let path = folder.join(name);
            let say = |e: trust::KeyFileError| format!("{}: {e}", path.display());
            read_private(&path).map_err(say)
        };
        let authority = Authority::decode(&file(AUTHORITY)?);
        let authority = authority.map_err(|e| format!("{}: {e}", folder.join(AUTHORITY).display()))?;
        let own = KeyFile::decode(&file(SERVER)?);
        let own = own.map_err(|e| format!("{}: {e}", folder.join(SERVER).display()))?;
        ServerKeys::new(authority, own).map_err(|e| format!("{}: {e}", folder.display()))
    }

    /// Writes them into that folder, which is made.
    ///
    /// # Errors
    /// One line: the file system's error.
    pub(crate) fn write(&self, folder: &Path) -> Result<(), String> {
        let say = |e: &dyn std::fmt::Display| format!("{}: {e}", folder.display());
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|e| say(&e))?;
        write_private(&folder.join(AUTHORITY), &self.authority.encode()).map_err(|e| say(&e))?;
        self.write_own(folder)?;
        let above = folder.parent().map_or(Ok(()), |above| fs::File::open(above)?.sync_all());
        above.map_err(|e| say(&e))
    }

    /// Writes this server's own key in place of the one in that folder.
    ///
    /// # Errors
    /// One line: the file system's error; the old one is there.
    pub(crate) fn write_own(&self, folder: &Path) -> Result<(), String> {
        let path = folder.join(SERVER);
        write_private(&path, &self.own.encode()).map_err(|e| format!("{}: {e}", path.display()))
    }

    /// Another key of this server, to which the pool's store gave that number.
    ///
    /// # Errors
    /// One line: no randomness.
    pub(crate) fn another(&self, number: KeyId) -> Result<ServerKeys, String> {
        let own = server_key(&self.authority, self.server, number).map_err(|e| e.to_string())?;
        let own = own.with_authorities(self.own.authorities().to_vec()).map_err(|e| e.to_string())?;
        ServerKeys::of(self.authority.clone(), own)
    }

    /// For connections that come.
    pub(crate) fn accepts(&self) -> Arc<ServerConfig> {
        self.accepts.clone()
    }

    /// For connections that this server makes.
    pub(crate) fn dials(&self) -> Arc<ClientConfig> {
        self.dials.clone()
    }

    /// The pool's authority.
    pub(crate) fn authority(&self) -> &Authority {
        &self.authority
    }

    /// All authorities of the pool that are believed.
    pub(crate) fn authorities(&self) -> &[CertificateDer<'static>] {
        self.own.authorities()
    }

    /// Whose key it is.
    pub(crate) fn server(&self) -> ServerId {
        self.server
    }

    /// Makes the key that the pool's store gave that number.
    ///
    /// # Errors
    /// No randomness, or a time that is too late.
    pub(crate) fn issue(
        &self,
        number: KeyId,
        holder: Holder,
        until: Option<u64>,
    ) -> Result<KeyFile, TrustError> {
        let identity = Identity { pool: self.authority.pool(), key: number, holder };
        KeyFile::issue(&self.authority, &identity, until)
    }
}

/// The key of a server, made with the pool's authority.
pub(crate) fn server_key(
    authority: &Authority,
    server: ServerId,
    number: KeyId,
) -> Result<KeyFile, TrustError> {
    let identity = Identity { pool: authority.pool(), key: number, holder: Holder::Server(server) };
    KeyFile::issue(authority, &identity, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use trust::PrivateKey;

    fn keys(pool: u8, server: u64) -> ServerKeys {
        let authority = Authority::new([pool; 16], PrivateKey::generate().unwrap()).unwrap();
        let identity = Identity { pool: [pool; 16], key: KeyId(2), holder: Holder::Server(ServerId(server)) };
        let own = KeyFile::issue(&authority, &identity, None).unwrap();
        ServerKeys::new(authority, own).unwrap()
    }

    #[test]
    fn keys_are_read_as_they_were_written_and_only_if_they_belong_together() {
        let dir = std::env::temp_dir().join(format!("mortar-server-keys-{}", std::process::id()));
        let _old = fs::remove_dir_all(&dir);
        assert!(ServerKeys::read(&dir).is_err());
        let first = keys(1, 7);
        first.write(&dir).unwrap();
        let read = ServerKeys::read(&dir).unwrap();
        assert_eq!(read.own.identity(), first.own.identity());
        assert_eq!(read.authority.fingerprint(), first.authority.fingerprint());
        // A crash between the two files.
        fs::copy(dir.join(SERVER), dir.join("kept")).unwrap();
        keys(1, 7).write(&dir).unwrap();
        fs::rename(dir.join("kept"), dir.join(SERVER)).unwrap();
        let mixed = ServerKeys::read(&dir).unwrap_err();
        assert!(mixed.contains("not made with this authority"), "{mixed}");
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn another_key_is_the_same_servers_and_the_same_authoritys() {
        let dir = std::env::temp_dir().join(format!("mortar-another-key-{}", std::process::id()));
        let _old = fs::remove_dir_all(&dir);
        let first = keys(1, 7);
        first.write(&dir).unwrap();
        let second = first.another(KeyId(9)).unwrap();
        second.write_own(&dir).unwrap();
        let read = ServerKeys::read(&dir).unwrap();
        assert_eq!(read.own.identity(), &Identity { key: KeyId(9), ..first.own.identity().clone() });
        assert_eq!(read.authorities(), first.authorities());
        assert_ne!(read.own.encode(), first.own.encode());
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_clients_key_is_no_servers() {
        let authority = Authority::new([1; 16], PrivateKey::generate().unwrap()).unwrap();
        let holder = Holder::Client(trust::KeyName::new("web").unwrap());
        let identity = Identity { pool: [1; 16], key: KeyId(3), holder };
        let own = KeyFile::issue(&authority, &identity, None).unwrap();
        assert!(ServerKeys::new(authority, own).is_err());
    }
}

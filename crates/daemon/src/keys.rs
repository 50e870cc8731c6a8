//! This server's keys: the pool's authority, and its own key that the authority signed. In `STATE/keys`.
//!
//! Always true: what is used belongs together, and a pool that is secured is never served without keys.

use cluster::State;
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
/// The authority that takes its place.
const NEXT: &str = "authority.next";
const SERVER: &str = "server";

/// Who signs a key, to which the pool's store has given a number, and whom its holder is to believe.
#[derive(Clone, Debug)]
pub(crate) struct Signing {
    number: KeyId,
    /// The fingerprint of the authority that takes the place of the pool's, once all servers believe it.
    next: Option<String>,
    by_next: bool,
}

impl Signing {
    /// As that state says.
    pub(crate) fn of(state: &State, number: KeyId) -> Signing {
        let next = state.keys.change.as_ref().map(|change| change.next.clone());
        Signing { number, next, by_next: state.is_signed_by_next(number) }
    }
}

/// The keys, and what TLS is to do with them.
#[derive(Debug)]
pub(crate) struct ServerKeys {
    authority: Arc<Authority>,
    /// The one that takes its place, and is believed already.
    next: Option<Arc<Authority>>,
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
        ServerKeys::of(Arc::new(authority), None, own)
    }

    /// A next authority that the key does not believe is none yet, and one that has taken its place is none any more.
    fn of(
        authority: Arc<Authority>,
        next: Option<Arc<Authority>>,
        own: KeyFile,
    ) -> Result<ServerKeys, String> {
        if !own.authorities().contains(authority.certificate()) || own.identity().pool != authority.pool() {
            return Err("the server's key was not made with this authority".to_owned());
        }
        let next = next.filter(|next| {
            own.authorities().contains(next.certificate()) && next.certificate() != authority.certificate()
        });
        let Holder::Server(server) = own.identity().holder else {
            return Err("the key is not a server's".to_owned());
        };
        let accepts = server_config(&own).map_err(|e| e.to_string())?;
        let dials = client_config(&own).map_err(|e| e.to_string())?;
        Ok(ServerKeys { authority, next, own, server, accepts, dials })
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
        let next = if folder.join(NEXT).exists() {
            let next = Authority::decode(&file(NEXT)?);
            Some(next.map_err(|e| format!("{}: {e}", folder.join(NEXT).display()))?)
        } else {
            None
        };
        let own = KeyFile::decode(&file(SERVER)?);
        let own = own.map_err(|e| format!("{}: {e}", folder.join(SERVER).display()))?;
        let keys = ServerKeys::of(Arc::new(authority), next.map(Arc::new), own);
        keys.map_err(|e| format!("{}: {e}", folder.display()))
    }

    /// Writes them into that folder, which is made.
    ///
    /// # Errors
    /// One line: the file system's error.
    pub(crate) fn write(&self, folder: &Path) -> Result<(), String> {
        let say = |e: &dyn std::fmt::Display| format!("{}: {e}", folder.display());
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|e| say(&e))?;
        // The next one comes before the key that believes it, and goes after the one that it replaces.
        if let Some(next) = &self.next {
            write_private(&folder.join(NEXT), &next.encode()).map_err(|e| say(&e))?;
        }
        write_private(&folder.join(AUTHORITY), &self.authority.encode()).map_err(|e| say(&e))?;
        self.write_own(folder)?;
        if self.next.is_none() && folder.join(NEXT).exists() {
            fs::remove_file(folder.join(NEXT)).map_err(|e| say(&e))?;
        }
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

    /// Another key of this server.
    ///
    /// # Errors
    /// One line: no randomness, or this server has not the authority that signs it.
    pub(crate) fn another(&self, signing: &Signing) -> Result<ServerKeys, String> {
        let own =
            server_key(self.signer(signing)?, self.server, signing.number).map_err(|e| e.to_string())?;
        let own = own.with_authorities(self.own.authorities().to_vec()).map_err(|e| e.to_string())?;
        ServerKeys::of(self.authority.clone(), self.next.clone(), own)
    }

    /// The same key, which believes this authority, too: it is to take the place of the pool's.
    ///
    /// # Errors
    /// One line: it is another pool's.
    pub(crate) fn with_next(&self, next: Authority) -> Result<ServerKeys, String> {
        let both = vec![self.authority.certificate().clone(), next.certificate().clone()];
        let own = KeyFile::decode(self.own.encode().as_bytes()).map_err(|e| e.to_string())?;
        let own = own.with_authorities(both).map_err(|e| e.to_string())?;
        ServerKeys::of(self.authority.clone(), Some(Arc::new(next)), own)
    }

    /// The same key, which believes the next authority alone: it is the pool's now.
    ///
    /// # Errors
    /// One line: this key is the old one's.
    pub(crate) fn with_next_alone(&self) -> Result<ServerKeys, String> {
        let authority = self.next.clone().unwrap_or_else(|| self.authority.clone());
        let own = KeyFile::decode(self.own.encode().as_bytes()).map_err(|e| e.to_string())?;
        let own = own.with_authorities(vec![authority.certificate().clone()]).map_err(|e| e.to_string())?;
        ServerKeys::of(authority, None, own)
    }

    /// The authority that takes the place of the pool's, as far as this server knows.
    pub(crate) fn next(&self) -> Option<&Authority> {
        self.next.as_deref()
    }

    /// Whether this is the pool's authority, or will be.
    pub(crate) fn has(&self, fingerprint: &str) -> bool {
        let all = [Some(&self.authority), self.next.as_ref()];
        all.into_iter().flatten().any(|authority| authority.fingerprint().to_string() == fingerprint)
    }

    /// Who signs a key. The next authority may have taken its place here already.
    fn signer(&self, signing: &Signing) -> Result<&Authority, String> {
        match (&signing.next, self.agreed_next(signing)) {
            (Some(_), Some(next)) if signing.by_next => Ok(next),
            (Some(next), None) if signing.by_next && self.authority.fingerprint().to_string() != *next => {
                Err("this server has not got the authority that signs keys now: ask another one, or run mortar pool \
                     rotate-authority again"
                    .to_owned())
            }
            _ => Ok(&self.authority),
        }
    }

    /// The next authority, if it is the one on which the pool has agreed: servers may have one that was given up.
    fn agreed_next(&self, signing: &Signing) -> Option<&Authority> {
        self.next().filter(|next| signing.next.as_ref() == Some(&next.fingerprint().to_string()))
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

    /// Makes a key, until so many seconds after 1970. It believes the pool's authority, and the one on which the pool has agreed
    /// to take its place.
    ///
    /// # Errors
    /// One line: no randomness, a time that is too late, or this server has not the authority that signs it.
    pub(crate) fn issue(
        &self,
        signing: &Signing,
        holder: Holder,
        until: Option<u64>,
    ) -> Result<KeyFile, String> {
        let identity = Identity { pool: self.authority.pool(), key: signing.number, holder };
        let made = KeyFile::issue(self.signer(signing)?, &identity, until).map_err(|e| e.to_string())?;
        let believed = std::iter::once(self.authority()).chain(self.agreed_next(signing));
        let believed = believed.map(|authority| authority.certificate().clone()).collect();
        made.with_authorities(believed).map_err(|e| e.to_string())
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

    fn signing(number: KeyId, next: Option<trust::Fingerprint>, by_next: bool) -> Signing {
        Signing { number, next: next.map(|next| next.to_string()), by_next }
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
        let second = first.another(&signing(KeyId(9), None, false)).unwrap();
        second.write_own(&dir).unwrap();
        let read = ServerKeys::read(&dir).unwrap();
        assert_eq!(read.own.identity(), &Identity { key: KeyId(9), ..first.own.identity().clone() });
        assert_eq!(read.authorities(), first.authorities());
        assert_ne!(read.own.encode(), first.own.encode());
        fs::remove_dir_all(&dir).unwrap();
    }

    /// Each step of a change of the authority, and a crash in each of them: what is read can serve.
    #[test]
    fn the_next_authority_is_believed_then_signs_then_is_alone() {
        let dir = std::env::temp_dir().join(format!("mortar-next-authority-{}", std::process::id()));
        let _old = fs::remove_dir_all(&dir);
        let read = || ServerKeys::read(&dir).unwrap();
        let first = keys(1, 7);
        first.write(&dir).unwrap();
        let (old, another) = (first.authority.fingerprint(), keys(1, 7).authority);
        let another = Authority::decode(another.encode().as_bytes()).unwrap();
        let new = another.fingerprint();
        assert!(first.with_next(Authority::new([2; 16], PrivateKey::generate().unwrap()).unwrap()).is_err());
        // Only the next one's file is there.
        write_private(&dir.join(NEXT), &another.encode()).unwrap();
        assert!(read().next().is_none() && read().authorities().len() == 1);
        let both = first.with_next(another).unwrap();
        both.write(&dir).unwrap();
        assert_eq!((read().authority().fingerprint(), read().next().unwrap().fingerprint()), (old, new));
        assert!(both.with_next_alone().is_err(), "its key is the old one's");
        let issued = |by_next| {
            let holder = Holder::Client(trust::KeyName::new("web").unwrap());
            let key = read().issue(&signing(KeyId(8), Some(new), by_next), holder, None).unwrap();
            assert_eq!(key.authorities().len(), 2);
            let one = |authority: &Authority| {
                let key = KeyFile::decode(key.encode().as_bytes()).unwrap();
                key.with_authorities(vec![authority.certificate().clone()]).is_ok()
            };
            (one(read().authority()), one(read().next().unwrap()))
        };
        assert_eq!([false, true].map(issued), [(true, false), (false, true)]);
        // One that was given up signs nothing, and nobody is to believe it.
        let holder = || Holder::Client(trust::KeyName::new("web").unwrap());
        let unagreed = read().issue(&signing(KeyId(8), None, false), holder(), None).unwrap();
        assert_eq!(unagreed.authorities(), [read().authority().certificate().clone()]);
        let third = Some(keys(1, 7).authority.fingerprint());
        let unagreed = read().issue(&signing(KeyId(8), third, false), holder(), None).unwrap();
        assert_eq!(unagreed.authorities().len(), 1);
        let missing = read().issue(&signing(KeyId(8), third, true), holder(), None).unwrap_err();
        assert!(missing.contains("rotate-authority again"), "{missing}");
        let signed = read().another(&signing(KeyId(9), Some(new), true)).unwrap();
        signed.write_own(&dir).unwrap();
        assert_eq!((read().authority().fingerprint(), read().next().unwrap().fingerprint()), (old, new));
        let alone = read().with_next_alone().unwrap();
        // The authority's file is there, and neither the key nor the end of the next one's.
        write_private(&dir.join(AUTHORITY), &alone.authority.encode()).unwrap();
        assert!(
            read().next().is_none()
                && read().authority().fingerprint() == new
                && read().has(&new.to_string())
        );
        let again = read().with_next_alone().unwrap();
        again.write(&dir).unwrap();
        assert_eq!((read().authorities().len(), read().authority().fingerprint()), (1, new));
        assert!(!dir.join(NEXT).exists() && !read().has(&old.to_string()));
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

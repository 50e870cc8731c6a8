//! Whose a key is: what a certificate says.
//!
//! It is one name, a URI in the certificate's alternative names:
//! `mortar://POOL/ROLE/KEY/NAME`, with the pool as 32 hex digits, the key's number as 16, and the name of who has it.

use crate::error::IdentityError;
use ids::{KeyId, ServerId};
use rustls::pki_types::CertificateDer;
use std::fmt;

/// A pool, as in the first words of a connection.
pub type Pool = [u8; 16];

const SCHEME: &str = "mortar://";

/// What somebody is, as far as it decides what may be asked.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Role {
    /// A server of the pool.
    Server,
    /// A client that mounts what its key is for.
    Client,
    /// Somebody who administers the pool.
    Admin,
}

impl Role {
    const ALL: [Role; 3] = [Role::Server, Role::Client, Role::Admin];

    /// The word for it, in certificates too.
    pub fn word(self) -> &'static str {
        match self {
            Role::Server => "server",
            Role::Client => "client",
            Role::Admin => "admin",
        }
    }
}

/// The name of a key that a person chose: 1 to 64 letters, digits, `.`, `_` or `-`, the first a letter or digit.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct KeyName(String);

impl KeyName {
    /// `None`: it may not be called so.
    pub fn new(name: &str) -> Option<KeyName> {
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
        let begins_well = name.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
        (begins_well && name.len() <= 64 && name.bytes().all(plain)).then(|| KeyName(name.to_owned()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for KeyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Who has a key.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Holder {
    /// A server of the pool.
    Server(ServerId),
    /// A client. What it may mount stands in the pool's store, under the key's number.
    Client(KeyName),
    /// An administrator.
    Admin(KeyName),
}

/// All that a certificate says.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Identity {
    /// The pool whose authority signs it.
    pub pool: Pool,
    /// The number of the key, by which the pool's store knows it and revokes it.
    pub key: KeyId,
    /// Who has it.
    pub holder: Holder,
}

impl Identity {
    /// What decides what may be asked.
    pub fn role(&self) -> Role {
        match self.holder {
            Holder::Server(_) => Role::Server,
            Holder::Client(_) => Role::Client,
            Holder::Admin(_) => Role::Admin,
        }
    }

    /// As it stands in the certificate.
    pub fn uri(&self) -> String {
        let (pool, role, key) = (hex(&self.pool), self.role().word(), self.key.0);
        match &self.holder {
            Holder::Server(server) => format!("{SCHEME}{pool}/{role}/{key:016x}/{server}"),
            Holder::Client(name) | Holder::Admin(name) => format!("{SCHEME}{pool}/{role}/{key:016x}/{name}"),
        }
    }

    /// Reads [`Identity::uri`]. What is written in another way than we write it is refused.
    ///
    /// # Errors
    /// It is not such a URI.
    pub fn from_uri(uri: &str) -> Result<Identity, IdentityError> {
        let read = || {
            let mut parts = uri.strip_prefix(SCHEME)?.split('/');
            let pool = unhex(parts.next()?)?;
            let role = parts.next()?;
            let role = Role::ALL.into_iter().find(|r| r.word() == role)?;
            let key = KeyId(u64::from_str_radix(parts.next()?, 16).ok()?);
            let name = parts.next()?;
            let holder = match role {
                Role::Server => Holder::Server(ServerId(name.parse().ok()?)),
                Role::Client => Holder::Client(KeyName::new(name)?),
                Role::Admin => Holder::Admin(KeyName::new(name)?),
            };
            let identity = Identity { pool, key, holder };
            (identity.uri() == uri).then_some(identity)
        };
        read().ok_or(IdentityError::BadIdentity)
    }

    /// What a certificate says. Whether it is to be believed is for whoever verifies its signature.
    ///
    /// # Errors
    /// It is no certificate, or says nothing, too much or nonsense.
    pub fn in_certificate(certificate: &CertificateDer<'_>) -> Result<Identity, IdentityError> {
        Identity::from_uri(&only_uri(certificate)?)
    }
}

/// The one URI among the names of a certificate.
pub(crate) fn only_uri(certificate: &CertificateDer<'_>) -> Result<String, IdentityError> {
    let parsed = webpki::EndEntityCert::try_from(certificate).map_err(|_| IdentityError::NotACertificate)?;
    let mut uris = parsed.valid_uri_names();
    match (uris.next(), uris.next()) {
        (Some(one), None) => Ok(one.to_owned()),
        _ => Err(IdentityError::NoIdentity),
    }
}

/// The name of a pool's authority, as it stands in its certificate.
pub(crate) fn authority_uri(pool: Pool) -> String {
    format!("{SCHEME}{}/authority", hex(&pool))
}

/// The pool whose authority a certificate says to be.
pub(crate) fn authority_pool(certificate: &CertificateDer<'_>) -> Result<Pool, IdentityError> {
    let uri = only_uri(certificate)?;
    let pool = uri.strip_prefix(SCHEME).and_then(|rest| unhex(rest.strip_suffix("/authority")?));
    pool.ok_or(IdentityError::BadIdentity)
}

/// Lower-case hex digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// The reverse of [`hex`]; `None` for anything else, and for another length.
pub fn unhex<const N: usize>(digits: &str) -> Option<[u8; N]> {
    let digit = |b: u8| match b {
        b'0'..=b'9' => Some(b - b'0'),
        b'a'..=b'f' => Some(b - b'a' + 10),
        _ => None,
    };
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    let bytes: Option<Vec<u8>> = pairs.iter().map(|[h, l]| Some(digit(*h)? << 4 | digit(*l)?)).collect();
    if rest.is_empty() { bytes?.try_into().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(holder: Holder) -> Identity {
        Identity { pool: [0xab; 16], key: KeyId(7), holder }
    }

    #[test]
    fn a_uri_says_all() {
        let name = KeyName::new("web-1").unwrap();
        for (holder, end) in [
            (Holder::Server(ServerId(3)), "server/0000000000000007/3"),
            (Holder::Client(name.clone()), "client/0000000000000007/web-1"),
            (Holder::Admin(name), "admin/0000000000000007/web-1"),
        ] {
            let identity = identity(holder);
            assert_eq!(identity.uri(), format!("mortar://abababababababababababababababab/{end}"));
            assert_eq!(Identity::from_uri(&identity.uri()), Ok(identity));
        }
    }

    #[test]
    fn other_uris_are_refused() {
        let pool = "abababababababababababababababab";
        for uri in [
            "".to_owned(),
            "mortar://".to_owned(),
            format!("http://{pool}/server/0000000000000007/3"),
            format!("mortar://{pool}/servers/0000000000000007/3"),
            format!("mortar://{pool}/server/7/3"),
            format!("mortar://{pool}/server/000000000000000A/3"),
            format!("mortar://{pool}/server/0000000000000007/03"),
            format!("mortar://{pool}/server/0000000000000007/+3"),
            format!("mortar://{pool}/server/0000000000000007/web"),
            format!("mortar://{pool}/server/0000000000000007/3/"),
            format!("mortar://{pool}/server/0000000000000007"),
            format!("mortar://{pool}/client/0000000000000007/"),
            format!("mortar://{pool}/client/0000000000000007/a b"),
            format!("mortar://{pool}/client/0000000000000007/.."),
            format!("mortar://{pool}/admin/0000000000000007/é"),
            format!("mortar://{}/admin/0000000000000007/a", &pool[2..]),
        ] {
            assert_eq!(Identity::from_uri(&uri), Err(IdentityError::BadIdentity), "{uri}");
        }
    }

    #[test]
    fn names_of_keys() {
        for good in ["a", "9", "Web_1.example-2", &"x".repeat(64)] {
            assert!(KeyName::new(good).is_some(), "{good}");
        }
        for bad in ["", ".", "-a", "_", "a/b", "a b", "a\n", "ä", &"x".repeat(65)] {
            assert!(KeyName::new(bad).is_none(), "{bad:?}");
        }
    }
}

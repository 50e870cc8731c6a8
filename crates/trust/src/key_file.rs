//! A key file: all that somebody needs to prove who he is, and to know the pool's servers.

use crate::authority::Authority;
use crate::error::{IdentityError, KeyFileError};
use crate::identity::{Identity, authority_pool};
use crate::pem::{self, Parts};
use crate::private_key::PrivateKey;
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, UnixTime};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The first line of the file.
const HEAD: &str = "mortar key 1";

/// A key, the certificate that says whose it is, and the authorities of the pool: one, or two while it changes its own.
pub struct KeyFile {
    identity: Identity,
    certificate: CertificateDer<'static>,
    authorities: Vec<CertificateDer<'static>>,
    roots: Arc<RootCertStore>,
    key: PrivateKey,
}

impl fmt::Debug for KeyFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyFile({})", self.identity.uri())
    }
}

/// Whether one of the authorities has signed the certificate.
pub(crate) fn check_signed(
    certificate: &CertificateDer<'_>,
    authorities: &RootCertStore,
) -> Result<(), KeyFileError> {
    let parsed = webpki::EndEntityCert::try_from(certificate).map_err(|_| IdentityError::NotACertificate)?;
    // Whether its time is over is the servers' matter. All certificates are valid from 1970 on.
    let early = UnixTime::since_unix_epoch(Duration::ZERO);
    let (algorithms, usage) = (webpki::ALL_VERIFICATION_ALGS, webpki::KeyUsage::client_auth());
    parsed
        .verify_for_usage(algorithms, &authorities.roots, &[], early, usage, None, None)
        .map_err(|_| KeyFileError::Foreign)?;
    Ok(())
}

impl KeyFile {
    /// Puts together what an authority issued, and what it issued it for.
    ///
    /// # Errors
    /// The parts do not belong together.
    pub fn new(
        certificate: CertificateDer<'static>,
        authorities: Vec<CertificateDer<'static>>,
        key: PrivateKey,
    ) -> Result<KeyFile, KeyFileError> {
        let identity = Identity::in_certificate(&certificate)?;
        let mut roots = RootCertStore::empty();
        for authority in &authorities {
            if authority_pool(authority)? != identity.pool {
                return Err(KeyFileError::Foreign);
            }
            roots.add(authority.clone()).map_err(|_| IdentityError::NotACertificate)?;
        }
        pem::check_key(&certificate, &key)?;
        check_signed(&certificate, &roots)?;
        Ok(KeyFile { identity, certificate, authorities, roots: Arc::new(roots), key })
    }

    /// A new key that `authority` signs.
    ///
    /// # Errors
    /// No randomness, or a time that is too late.
    pub fn issue(
        authority: &Authority,
        identity: &Identity,
        until: Option<u64>,
    ) -> Result<KeyFile, crate::TrustError> {
        let key = PrivateKey::generate()?;
        let certificate = authority.issue(identity, &key.public(), until)?;
        let made = KeyFile::new(certificate, vec![authority.certificate().clone()], key);
        Ok(made.unwrap_or_else(|e| unreachable!("an authority believes what it signed: {e}")))
    }

    /// Whose it is.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The certificates of the pool's authorities.
    pub fn authorities(&self) -> &[CertificateDer<'static>] {
        &self.authorities
    }

    /// The same key, which believes these authorities from now on.
    ///
    /// # Errors
    /// None of them has signed its certificate.
    pub fn with_authorities(
        self,
        authorities: Vec<CertificateDer<'static>>,
    ) -> Result<KeyFile, KeyFileError> {
        KeyFile::new(self.certificate, authorities, self.key)
    }

    /// The authorities, for TLS.
    pub(crate) fn roots(&self) -> Arc<RootCertStore> {
        self.roots.clone()
    }

    /// What TLS shows the other side: the certificate, and for those who only know a fingerprint the authorities.
    pub(crate) fn chain(&self) -> Vec<CertificateDer<'static>> {
        std::iter::once(&self.certificate).chain(&self.authorities).cloned().collect()
    }

    /// The key, for TLS.
    pub(crate) fn private(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.pkcs8().to_vec()))
    }

    /// The bytes of the file.
    pub fn encode(&self) -> String {
        pem::encode(HEAD, &self.chain(), &self.key)
    }

    /// Reads what [`KeyFile::encode`] wrote.
    ///
    /// # Errors
    /// It is not such a file, is damaged or newer, or its parts do not belong together.
    pub fn decode(bytes: &[u8]) -> Result<KeyFile, KeyFileError> {
        let Parts { mut certificates, key } = pem::decode(HEAD, bytes)?;
        if certificates.len() < 2 {
            return Err(KeyFileError::Parts { wanted: "a certificate, and that of its authority" });
        }
        let authorities = certificates.split_off(1);
        let own = certificates.pop().ok_or(KeyFileError::Damaged)?;
        KeyFile::new(own, authorities, key)
    }
}

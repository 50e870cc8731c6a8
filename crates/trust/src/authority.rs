//! The pool's authority: the key that says whose other keys are.

use crate::error::{KeyFileError, TrustError};
use crate::identity::{Holder, Identity, Pool, Role, authority_pool, authority_uri, hex, unhex};
use crate::key_file::check_signed;
use crate::pem::{self, Parts};
use crate::private_key::{PrivateKey, PublicKey};
use ids::{KeyId, ServerId};
use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyUsagePurpose, PublicKeyData, SanType, SerialNumber, date_time_ymd,
};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use std::fmt;
use std::time::Duration;

/// The first line of the file.
const HEAD: &str = "mortar authority 1";
/// The last second that a certificate can name: the end of the year 9999.
const LAST: u64 = 253_402_300_799;

/// SHA-256 of an authority's certificate, as `openssl x509 -fingerprint -sha256` shows it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    /// Of a certificate.
    pub fn of(certificate: &CertificateDer<'_>) -> Fingerprint {
        let digest = ring::digest::digest(&ring::digest::SHA256, certificate);
        let bytes = digest.as_ref().try_into();
        Fingerprint(bytes.unwrap_or_else(|_| unreachable!("SHA-256 has 32 bytes")))
    }

    /// Reads what [`fmt::Display`] writes; colons between the digits and capitals are taken too.
    pub fn parse(text: &str) -> Option<Fingerprint> {
        unhex(&text.replace(':', "").to_ascii_lowercase()).map(Fingerprint)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

/// The authority with its key.
pub struct Authority {
    pool: Pool,
    certificate: CertificateDer<'static>,
    key: PrivateKey,
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Authority({})", self.fingerprint())
    }
}

/// What all certificates have in common. They are valid from 1970 on: a server whose clock was reset must find its pool.
fn params(uri: &str, serial: u64) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::default();
    params.not_before = date_time_ymd(1970, 1, 1);
    params.serial_number = Some(SerialNumber::from(serial));
    params.subject_alt_names = vec![SanType::URI(Ia5String::try_from(uri)?)];
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

/// The end of a certificate's time: an expiry, or never.
fn ends(params: &mut CertificateParams, until: Option<u64>) -> Result<(), TrustError> {
    let seconds = until.unwrap_or(LAST);
    if seconds > LAST {
        return Err(TrustError::Time(seconds));
    }
    params.not_after = date_time_ymd(1970, 1, 1) + Duration::from_secs(seconds);
    Ok(())
}

fn name(pool: Pool) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, format!("Mortar pool {}", hex(&pool)));
    name
}

fn authority_params(pool: Pool) -> Result<CertificateParams, TrustError> {
    let mut params = params(&authority_uri(pool), 1).map_err(TrustError::Certificate)?;
    ends(&mut params, None)?;
    params.distinguished_name = name(pool);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    Ok(params)
}

impl Authority {
    /// A new pool's authority, or another one for a pool that changes its own.
    ///
    /// # Errors
    /// No certificate can be made of the key.
    pub fn new(pool: Pool, key: PrivateKey) -> Result<Authority, TrustError> {
        let made = authority_params(pool)?.self_signed(key.pair()).map_err(TrustError::Certificate)?;
        Ok(Authority { pool, certificate: made.der().clone(), key })
    }

    /// The pool.
    pub fn pool(&self) -> Pool {
        self.pool
    }

    /// Its own certificate, which everybody may have.
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// What it is known by.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.certificate)
    }

    /// Signs that the key of `public` is `identity`'s, until so many seconds after 1970.
    ///
    /// # Errors
    /// The time is too late for a certificate.
    ///
    /// # Panics
    /// The identity is one of another pool.
    pub fn issue(
        &self,
        identity: &Identity,
        public: &PublicKey,
        until: Option<u64>,
    ) -> Result<CertificateDer<'static>, TrustError> {
        assert!(identity.pool == self.pool, "an authority signs for its own pool");
        let mut params = params(&identity.uri(), identity.key.0).map_err(TrustError::Certificate)?;
        ends(&mut params, until)?;
        params.distinguished_name = DistinguishedName::new();
        let holder = format!("Mortar {} {}", identity.role().word(), identity.key);
        params.distinguished_name.push(DnType::CommonName, holder);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = match identity.role() {
            Role::Server => vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth],
            Role::Client | Role::Admin => vec![ExtendedKeyUsagePurpose::ClientAuth],
        };
        let issuer = Issuer::new(authority_params(self.pool)?, self.key.pair());
        let made = params.signed_by(public, &issuer).map_err(TrustError::Certificate)?;
        Ok(made.der().clone())
    }

    /// Signs a certificate that says nothing about the pool, for ever.
    pub(crate) fn sign(
        &self,
        mut params: CertificateParams,
        public: &impl PublicKeyData,
    ) -> Result<CertificateDer<'static>, TrustError> {
        params.not_before = date_time_ymd(1970, 1, 1);
        params.use_authority_key_identifier_extension = true;
        ends(&mut params, None)?;
        let issuer = Issuer::new(authority_params(self.pool)?, self.key.pair());
        let made = params.signed_by(public, &issuer).map_err(TrustError::Certificate)?;
        Ok(made.der().clone())
    }

    /// The bytes of its file.
    pub fn encode(&self) -> String {
        pem::encode(HEAD, std::slice::from_ref(&self.certificate), &self.key)
    }

    /// Reads what [`Authority::encode`] wrote.
    ///
    /// # Errors
    /// It is not such a file, is damaged or newer.
    pub fn decode(bytes: &[u8]) -> Result<Authority, KeyFileError> {
        let Parts { certificates, key } = pem::decode(HEAD, bytes)?;
        let Ok([certificate]) = <[CertificateDer<'static>; 1]>::try_from(certificates) else {
            return Err(KeyFileError::Parts { wanted: "one certificate and its private key" });
        };
        let pool = authority_pool(&certificate)?;
        pem::check_key(&certificate, &key)?;
        let authority = Authority { pool, certificate, key };
        // Nobody would believe what a damaged one signs.
        let holder = Holder::Server(ServerId(1));
        let trial = Identity { pool, key: KeyId(1), holder };
        let signed = authority.issue(&trial, &authority.key.public(), None);
        let mut itself = RootCertStore::empty();
        itself.add(authority.certificate.clone()).map_err(|_| KeyFileError::Damaged)?;
        check_signed(&signed.map_err(|_| KeyFileError::Damaged)?, &itself)?;
        Ok(authority)
    }
}

//! A key for browsers: those take no Ed25519.
//!
//! It is one of P-256 with a certificate that the pool's authority signs, which browsers do not know and warn of; or any
//! that they believe. It says nobody's name but that of a host: within the pool it is worth nothing.

use crate::authority::{Authority, Fingerprint};
use crate::error::{KeyFileError, TrustError};
use crate::pem::{LONGEST, MOST, section};
use crate::tls::web_config;
use rcgen::{
    CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256,
};
use rustls::pki_types::pem::{PemObject, SectionKind};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::{RootCertStore, ServerConfig};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A key for browsers, and certificates that say which hosts have it, the host's first.
pub struct WebKey {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl fmt::Debug for WebKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WebKey({:?})", self.fingerprint())
    }
}

impl WebKey {
    /// A new key for a host with these names and addresses, which the authority signs.
    ///
    /// # Errors
    /// No randomness, or what no host is called.
    pub fn issue(authority: &Authority, names: &[String]) -> Result<WebKey, TrustError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(TrustError::Key)?;
        let mut params = CertificateParams::new(names).map_err(TrustError::Certificate)?;
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "Mortar console");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let certificate = authority.sign(params, &key)?;
        let key = PrivatePkcs8KeyDer::from(key.serialize_der()).into();
        Ok(WebKey { chain: vec![certificate, authority.certificate().clone()], key })
    }

    /// Whether `authority` has signed it for all these names.
    pub fn is_of(&self, authority: &Authority, names: &[String]) -> bool {
        let check = || {
            let parsed = webpki::EndEntityCert::try_from(self.chain.first()?).ok()?;
            let mut roots = RootCertStore::empty();
            roots.add(authority.certificate().clone()).ok()?;
            let (algorithms, usage) = (webpki::ALL_VERIFICATION_ALGS, webpki::KeyUsage::server_auth());
            let early = UnixTime::since_unix_epoch(Duration::ZERO);
            parsed.verify_for_usage(algorithms, &roots.roots, &[], early, usage, None, None).ok()?;
            let names = names.iter().map(|name| ServerName::try_from(name.as_str()).ok());
            names.map(|name| parsed.verify_is_valid_for_subject_name(&name?).ok()).collect::<Option<()>>()
        };
        check().is_some()
    }

    /// What browsers show of it: the SHA-256 of its certificate.
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        self.chain.first().map(Fingerprint::of)
    }

    /// What TLS is to do for browsers.
    ///
    /// # Errors
    /// TLS does not take the key, or it is not the certificate's.
    pub fn config(&self) -> Result<Arc<ServerConfig>, TrustError> {
        web_config(self.chain.clone(), self.key.clone_key())
    }

    /// The bytes of its file: PEM, without a first line of ours, as other programs write it.
    pub fn encode(&self) -> String {
        let chain: String = self.chain.iter().map(|c| section("CERTIFICATE", c)).collect();
        let kind = match self.key {
            PrivateKeyDer::Pkcs1(_) => "RSA PRIVATE KEY",
            PrivateKeyDer::Sec1(_) => "EC PRIVATE KEY",
            _ => "PRIVATE KEY",
        };
        format!("{chain}{}", section(kind, self.key.secret_der()))
    }

    /// Reads PEM: the host's certificate, those of authorities between it and one that browsers know, and the key.
    ///
    /// # Errors
    /// It is damaged, too long, or something is missing.
    pub fn decode(bytes: &[u8]) -> Result<WebKey, KeyFileError> {
        if bytes.len() > LONGEST {
            return Err(KeyFileError::NotAFileOfKeys);
        }
        let (mut chain, mut keys) = (Vec::new(), Vec::new());
        for section in <(SectionKind, Vec<u8>)>::pem_slice_iter(bytes) {
            match section.map_err(|_| KeyFileError::Damaged)? {
                (SectionKind::Certificate, der) => chain.push(CertificateDer::from(der)),
                (kind, der) => keys.extend(PrivateKeyDer::from_pem(kind, der)),
            }
        }
        let wanted = "the host's certificate, those of its authorities, and one private key";
        match keys.pop() {
            Some(key) if keys.is_empty() && (1..=MOST).contains(&chain.len()) => Ok(WebKey { chain, key }),
            _ => Err(KeyFileError::Parts { wanted }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Identity, KeyFile, PrivateKey};

    fn authority(pool: u8) -> Authority {
        Authority::new([pool; 16], PrivateKey::generate().unwrap()).unwrap()
    }

    fn names(all: &[&str]) -> Vec<String> {
        all.iter().map(|n| (*n).to_owned()).collect()
    }

    #[test]
    fn a_key_for_browsers_is_read_as_it_was_written() {
        let authority = authority(1);
        let own = names(&["192.0.2.1", "::1", "server1.example.org"]);
        let key = WebKey::issue(&authority, &own).unwrap();
        let read = WebKey::decode(key.encode().as_bytes()).unwrap();
        assert_eq!(read.fingerprint(), key.fingerprint());
        assert_eq!(read.encode(), key.encode());
        read.config().unwrap();
        assert!(read.is_of(&authority, &own) && read.is_of(&authority, &own[1..2]));
        assert!(!read.is_of(&authority, &names(&["192.0.2.2"])));
        assert!(!read.is_of(&authority, &names(&["server2.example.org"])));
        assert!(!read.is_of(&super::tests::authority(1), &own), "another authority of the same pool");
        assert!(WebKey::issue(&authority, &names(&["\u{e4}"])).is_err());
    }

    #[test]
    fn what_is_no_such_key_is_refused() {
        let authority = authority(1);
        let key = WebKey::issue(&authority, &names(&["h"])).unwrap().encode();
        let at = key.find("-----BEGIN PRIVATE KEY").unwrap();
        let (chain, private) = key.split_at(at);
        for bad in
            ["", chain, private, &format!("{key}{private}"), &key[..key.len() - 40], &"x".repeat(LONGEST + 1)]
        {
            assert!(WebKey::decode(bad.as_bytes()).is_err(), "{bad}");
        }
        let other = WebKey::issue(&authority, &names(&["h"])).unwrap().encode();
        let mixed = WebKey::decode(
            format!("{chain}{}", &other[other.find("-----BEGIN PRIVATE KEY").unwrap()..]).as_bytes(),
        );
        assert!(mixed.unwrap().config().is_err(), "the key of another certificate");
    }

    #[test]
    fn it_is_nobodys_key_in_the_pool() {
        let key = WebKey::issue(&authority(1), &names(&["h"])).unwrap();
        assert!(Identity::in_certificate(&key.chain[0]).is_err());
        assert!(KeyFile::decode(format!("mortar key 1\n{}", key.encode()).as_bytes()).is_err());
    }
}

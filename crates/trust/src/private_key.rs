//! Keys of Ed25519: one that signs, and the public half by which it is known.

use crate::error::TrustError;
use rcgen::{KeyPair, PKCS_ED25519, PublicKeyData, SignatureAlgorithm};
use rustls::pki_types::PrivatePkcs8KeyDer;
use std::fmt;

/// The public half of a key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PublicKey(pub [u8; 32]);

impl PublicKeyData for PublicKey {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ED25519
    }
}

/// A key that signs. It is nowhere printed.
pub struct PrivateKey(KeyPair);

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrivateKey(of {:?})", self.public())
    }
}

impl PrivateKey {
    /// A new key, from the system's randomness.
    ///
    /// # Errors
    /// The system gives none.
    pub fn generate() -> Result<PrivateKey, TrustError> {
        KeyPair::generate_for(&PKCS_ED25519).map(PrivateKey).map_err(TrustError::Key)
    }

    /// Reads PKCS #8; `None` for anything but a key of Ed25519.
    pub fn from_pkcs8(der: &[u8]) -> Option<PrivateKey> {
        KeyPair::from_pkcs8_der_and_sign_algo(&PrivatePkcs8KeyDer::from(der), &PKCS_ED25519)
            .ok()
            .map(PrivateKey)
    }

    /// As PKCS #8: the secret itself.
    pub(crate) fn pkcs8(&self) -> &[u8] {
        self.0.serialized_der()
    }

    pub(crate) fn pair(&self) -> &KeyPair {
        &self.0
    }

    /// Its public half.
    pub fn public(&self) -> PublicKey {
        let raw = self.0.public_key_raw().try_into();
        PublicKey(raw.unwrap_or_else(|_| unreachable!("a public key of Ed25519 has 32 bytes")))
    }
}

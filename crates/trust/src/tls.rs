//! How rustls is set: TLS 1.3 only, certificates of the pool's authorities only, and roles checked on both sides.

use crate::authority::Fingerprint;
use crate::error::{IdentityError, TrustError};
use crate::identity::{Identity, Role, authority_pool};
use crate::key_file::KeyFile;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, verify_server_cert_signed_by_trust_anchor};
use rustls::crypto::ring::{cipher_suite, default_provider};
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, RootCertStore,
    ServerConfig, SignatureScheme,
};
use std::sync::{Arc, OnceLock};

/// What both sides say that they speak, so that something else may be served on the same port.
pub const ALPN: &[u8] = b"mortar/2";

/// AES with 128 bits first: the fastest on all machines that matter.
fn provider() -> Arc<CryptoProvider> {
    let cipher_suites = vec![
        cipher_suite::TLS13_AES_128_GCM_SHA256,
        cipher_suite::TLS13_AES_256_GCM_SHA384,
        cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    ];
    Arc::new(CryptoProvider { cipher_suites, ..default_provider() })
}

/// The settings of a server. Who connects without a key is let through the handshake, for he may have a join token: see
/// [`identity_of`].
///
/// # Errors
/// TLS does not take the key.
pub fn server_config(keys: &KeyFile) -> Result<Arc<ServerConfig>, TrustError> {
    let provider = provider();
    let signed = WebPkiClientVerifier::builder_with_provider(keys.roots(), provider.clone())
        .allow_unauthenticated()
        .clear_root_hint_subjects()
        .build()
        .map_err(|e| Error::General(e.to_string()))?;
    let verifier = Arc::new(FromPool { signed, pool: keys.identity().pool });
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(verifier)
        .with_single_cert(keys.chain(), keys.private())?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    // A connection that nobody uses must have no bytes on it, and each one shows its key anew.
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(Arc::new(config))
}

/// The settings of a server for browsers: they show no keys, and speak HTTP.
pub(crate) fn web_config(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<Arc<ServerConfig>, TrustError> {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(Arc::new(config))
}

/// The settings of whoever connects with a key: to servers of its pool only.
///
/// # Errors
/// TLS does not take the key.
pub fn client_config(keys: &KeyFile) -> Result<Arc<ClientConfig>, TrustError> {
    let provider = provider();
    let known = Known::Authorities(keys.roots());
    let verifier = Arc::new(IsServer { known, provider: provider.clone() });
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_client_auth_cert(keys.chain(), keys.private())?;
    Ok(finished(config))
}

/// The settings of somebody without a key who knows the fingerprint of a pool's authority.
///
/// # Errors
/// None that is known.
pub fn joining_config(authority: Fingerprint) -> Result<Arc<ClientConfig>, TrustError> {
    keyless_config(Known::Fingerprint(authority))
}

/// The settings of somebody who knows nothing of the pool, and wants to see the fingerprint of its authority: it is there after
/// the handshake. Whoever answers is believed, so nothing secret may be said.
///
/// # Errors
/// None that is known.
pub fn looking_config() -> Result<(Arc<ClientConfig>, Arc<OnceLock<Fingerprint>>), TrustError> {
    let seen = Arc::<OnceLock<Fingerprint>>::default();
    Ok((keyless_config(Known::Nothing(seen.clone()))?, seen))
}

/// The settings of somebody without a key.
fn keyless_config(known: Known) -> Result<Arc<ClientConfig>, TrustError> {
    let provider = provider();
    let verifier = Arc::new(IsServer { known, provider: provider.clone() });
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    Ok(finished(config))
}

fn finished(mut config: ClientConfig) -> Arc<ClientConfig> {
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    Arc::new(config)
}

/// The name that rustls wants of whoever connects. Servers are not known by names, but by what their certificates say.
pub fn server_name() -> ServerName<'static> {
    ServerName::IpAddress(std::net::Ipv4Addr::UNSPECIFIED.into())
}

/// Who is on the other side of a connection whose handshake is over; `None`: somebody without a key.
///
/// # Errors
/// The certificate says nothing; then the handshake should not have ended.
pub fn identity_of(shown: Option<&[CertificateDer<'_>]>) -> Result<Option<Identity>, IdentityError> {
    shown.and_then(<[_]>::first).map(Identity::in_certificate).transpose()
}

fn refused(why: CertificateError) -> Error {
    Error::InvalidCertificate(why)
}

/// What the certificate says, for a verifier.
fn told(certificate: &CertificateDer<'_>) -> Result<Identity, Error> {
    Identity::in_certificate(certificate).map_err(|_| refused(CertificateError::BadEncoding))
}

/// Whoever connects has a certificate of the pool, or none.
#[derive(Debug)]
struct FromPool {
    signed: Arc<dyn ClientCertVerifier>,
    pool: crate::Pool,
}

impl ClientCertVerifier for FromPool {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.signed.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.signed.verify_client_cert(end_entity, intermediates, now)?;
        if told(end_entity)?.pool != self.pool {
            return Err(refused(CertificateError::ApplicationVerificationFailure));
        }
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signed.supported_verify_schemes()
    }
}

/// How whoever connects knows the pool.
#[derive(Debug)]
enum Known {
    Authorities(Arc<RootCertStore>),
    Fingerprint(Fingerprint),
    /// What is shown is written down.
    Nothing(Arc<OnceLock<Fingerprint>>),
}

/// Whoever answers is a server of the pool.
#[derive(Debug)]
struct IsServer {
    known: Known,
    provider: Arc<CryptoProvider>,
}

impl IsServer {
    /// The authorities to believe: those known, or the one shown that has the fingerprint.
    fn roots(&self, shown: &[CertificateDer<'_>]) -> Result<Arc<RootCertStore>, Error> {
        let authority = match &self.known {
            Known::Authorities(roots) => return Ok(roots.clone()),
            Known::Fingerprint(wanted) => shown.iter().find(|c| Fingerprint::of(c) == *wanted),
            Known::Nothing(seen) => {
                let first = shown.first();
                if let Some(first) = first {
                    let _before = seen.set(Fingerprint::of(first));
                }
                first
            }
        };
        let authority = authority.ok_or_else(|| refused(CertificateError::UnknownIssuer))?;
        authority_pool(authority).map_err(|_| refused(CertificateError::BadEncoding))?;
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone().into_owned())?;
        Ok(Arc::new(roots))
    }
}

impl ServerCertVerifier for IsServer {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let roots = self.roots(intermediates)?;
        let parsed = ParsedCertificate::try_from(end_entity)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&parsed, &roots, intermediates, now, algorithms)?;
        match told(end_entity)?.role() {
            Role::Server => Ok(ServerCertVerified::assertion()),
            Role::Client | Role::Admin => Err(refused(CertificateError::InvalidPurpose)),
        }
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("TLS 1.2 is not spoken".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

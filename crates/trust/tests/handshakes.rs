//! Who gets through a handshake, and who does not: both sides in memory.
#![allow(
    clippy::unwrap_used,
    clippy::result_large_err,
    reason = "a test that fails says where, and why in full"
)]

use ids::{KeyId, ServerId};
use rustls::{ClientConfig, ClientConnection, Error, ServerConfig, ServerConnection};
use std::sync::Arc;
use trust::{
    Authority, Fingerprint, Holder, Identity, KeyFile, KeyName, Pool, PrivateKey, client_config, identity_of,
    joining_config, server_config, server_name,
};

const POOL: Pool = [1; 16];

pub(crate) fn authority(pool: Pool) -> Authority {
    Authority::new(pool, PrivateKey::generate().unwrap()).unwrap()
}

fn identity(pool: Pool, holder: Holder) -> Identity {
    Identity { pool, key: KeyId(4), holder }
}

pub(crate) fn issue(authority: &Authority, holder: Holder) -> KeyFile {
    KeyFile::issue(authority, &identity(authority.pool(), holder), None).unwrap()
}

pub(crate) fn client() -> Holder {
    Holder::Client(KeyName::new("web").unwrap())
}

pub(crate) fn server() -> Holder {
    Holder::Server(ServerId(3))
}

/// Carries bytes from one side to the other, and answers how the handshake ended on both.
fn shake_hands(
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
) -> Result<(ClientConnection, ServerConnection), (Option<Error>, Option<Error>)> {
    let mut client = ClientConnection::new(client, server_name()).unwrap();
    let mut server = ServerConnection::new(server).unwrap();
    for _ in 0..10 {
        let mut bytes = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut bytes).unwrap();
        }
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            server.read_tls(&mut rest).unwrap();
        }
        let at_server = server.process_new_packets().err();
        let mut bytes = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut bytes).unwrap();
        }
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            client.read_tls(&mut rest).unwrap();
        }
        let at_client = client.process_new_packets().err();
        if at_server.is_some() || at_client.is_some() {
            return Err((at_client, at_server));
        }
        if !client.is_handshaking() && !server.is_handshaking() && !client.wants_write() {
            assert!(bytes.is_empty(), "an idle connection has no bytes on it");
            return Ok((client, server));
        }
    }
    panic!("the handshake does not end");
}

#[test]
fn both_sides_know_each_other() {
    let pool = authority(POOL);
    let web = issue(&pool, client());
    let three = issue(&pool, server());
    let shaken = shake_hands(client_config(&web).unwrap(), server_config(&three).unwrap());
    let (at_client, at_server) = shaken.unwrap();
    assert_eq!(identity_of(at_client.peer_certificates()), Ok(Some(three.identity().clone())));
    assert_eq!(identity_of(at_server.peer_certificates()), Ok(Some(web.identity().clone())));
    assert_eq!(at_server.protocol_version(), Some(rustls::ProtocolVersion::TLSv1_3));
    assert_eq!(at_server.alpn_protocol(), Some(trust::ALPN));
    let admin = issue(&pool, Holder::Admin(KeyName::new("anna").unwrap()));
    for key in [&admin, &three] {
        let (_, at_server) =
            shake_hands(client_config(key).unwrap(), server_config(&three).unwrap()).unwrap();
        assert_eq!(identity_of(at_server.peer_certificates()), Ok(Some(key.identity().clone())));
    }
}

#[test]
fn nobody_but_a_server_answers_for_one() {
    let pool = authority(POOL);
    let web = client_config(&issue(&pool, client())).unwrap();
    for holder in [client(), Holder::Admin(KeyName::new("anna").unwrap())] {
        let false_server = server_config(&issue(&pool, holder)).unwrap();
        let (at_client, _) = shake_hands(web.clone(), false_server).unwrap_err();
        assert!(matches!(at_client, Some(Error::InvalidCertificate(_))), "{at_client:?}");
    }
}

/// A certificate whose usage would do, but which says another role.
#[test]
fn the_role_counts_and_not_the_usage_alone() {
    use rcgen::{
        BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SanType,
    };
    let uri = |text: String| vec![SanType::URI(text.as_str().try_into().unwrap())];
    let pool = "01".repeat(16);
    let (authority_key, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let mut params = CertificateParams::default();
    params.subject_alt_names = uri(format!("mortar://{pool}/authority"));
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&authority_key).unwrap();
    let issuer = Issuer::new(params, authority_key);
    for (holder, is_server) in [(server(), true), (client(), false)] {
        let mut params = CertificateParams::default();
        params.subject_alt_names = uri(identity(POOL, holder).uri());
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let own = params.signed_by(&key, &issuer).unwrap();
        let chain = vec![own.der().clone(), authority.der().clone()];
        let secret = rustls::pki_types::PrivatePkcs8KeyDer::from(key.serialize_der()).into();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, secret)
            .unwrap();
        config.alpn_protocols = vec![trust::ALPN.to_vec()];
        config.send_tls13_tickets = 0;
        let joining = joining_config(Fingerprint::of(authority.der())).unwrap();
        match shake_hands(joining, Arc::new(config)) {
            Ok(_) => assert!(is_server),
            Err((at_client, _)) => {
                let why = Error::InvalidCertificate(rustls::CertificateError::InvalidPurpose);
                assert!(!is_server && at_client.as_ref() == Some(&why), "{at_client:?}");
            }
        }
    }
}

#[test]
fn other_authorities_are_not_believed() {
    let (pool, same_name) = (authority(POOL), authority(POOL));
    let foreign = authority([2; 16]);
    let server_keys = issue(&pool, server());
    for other in [&same_name, &foreign] {
        let theirs = client_config(&issue(other, client())).unwrap();
        let (at_client, _) = shake_hands(theirs, server_config(&server_keys).unwrap()).unwrap_err();
        assert!(matches!(at_client, Some(Error::InvalidCertificate(_))), "{at_client:?}");
    }
    // A client that believes our server, with a key that our authority did not sign.
    for other in [&same_name, &foreign] {
        let both = |authority: &Authority| vec![authority.certificate().clone(), pool.certificate().clone()];
        let theirs = issue(other, client());
        if other.pool() == pool.pool() {
            let theirs = client_config(&theirs.with_authorities(both(other)).unwrap()).unwrap();
            let (_, at_server) = shake_hands(theirs, server_config(&server_keys).unwrap()).unwrap_err();
            assert!(matches!(at_server, Some(Error::InvalidCertificate(_))), "{at_server:?}");
        } else {
            assert!(theirs.with_authorities(both(other)).is_err(), "two pools in one file");
        }
    }
}

#[test]
fn an_expired_key_is_refused_and_a_server_outlives_its_clock() {
    let pool = authority(POOL);
    let three = server_config(&issue(&pool, server())).unwrap();
    let old = KeyFile::issue(&pool, &identity(POOL, client()), Some(1_000_000_000)).unwrap();
    let (_, at_server) = shake_hands(client_config(&old).unwrap(), three.clone()).unwrap_err();
    assert!(
        matches!(at_server, Some(Error::InvalidCertificate(rustls::CertificateError::ExpiredContext { .. }))),
        "{at_server:?}"
    );
    // A file from which the key came is still readable: the reason is told by whoever is asked.
    KeyFile::decode(old.encode().as_bytes()).unwrap();
    let soon = KeyFile::issue(&pool, &identity(POOL, client()), Some(250_000_000_000)).unwrap();
    shake_hands(client_config(&soon).unwrap(), three).unwrap();
    assert!(KeyFile::issue(&pool, &identity(POOL, client()), Some(u64::MAX)).is_err());
}

#[test]
fn who_has_a_fingerprint_only_is_nobody_and_knows_the_pool() {
    let pool = authority(POOL);
    let three = issue(&pool, server());
    let joining = joining_config(pool.fingerprint()).unwrap();
    let (at_client, at_server) = shake_hands(joining.clone(), server_config(&three).unwrap()).unwrap();
    assert_eq!(identity_of(at_client.peer_certificates()), Ok(Some(three.identity().clone())));
    assert_eq!(identity_of(at_server.peer_certificates()), Ok(None));
    let other = authority(POOL);
    for keys in [issue(&other, server()), issue(&pool, client())] {
        let (at_client, _) = shake_hands(joining.clone(), server_config(&keys).unwrap()).unwrap_err();
        assert!(matches!(at_client, Some(Error::InvalidCertificate(_))), "{at_client:?}");
    }
    // The leaf is no authority, whatever its fingerprint.
    let leaf = joining_config(Fingerprint::of(&leaf_of(&three))).unwrap();
    shake_hands(leaf, server_config(&three).unwrap()).unwrap_err();
}

fn leaf_of(keys: &KeyFile) -> rustls::pki_types::CertificateDer<'static> {
    use rustls::pki_types::pem::PemObject;
    rustls::pki_types::CertificateDer::from_pem_slice(keys.encode().as_bytes()).unwrap()
}

/// While a pool changes its authority, keys of the old and of the new one are believed.
#[test]
fn two_authorities_for_a_while() {
    let (old, new) = (authority(POOL), authority(POOL));
    let both = vec![new.certificate().clone(), old.certificate().clone()];
    let server_of_new = issue(&new, server()).with_authorities(both.clone()).unwrap();
    let client_of_old = issue(&old, client()).with_authorities(both).unwrap();
    shake_hands(client_config(&client_of_old).unwrap(), server_config(&server_of_new).unwrap()).unwrap();
    assert!(issue(&old, client()).with_authorities(vec![new.certificate().clone()]).is_err());
}

#[test]
fn a_handshake_that_is_cut_or_changed_is_an_error_and_no_panic() {
    let pool = authority(POOL);
    let (web, three) = (issue(&pool, client()), issue(&pool, server()));
    let (client, server) = (client_config(&web).unwrap(), server_config(&three).unwrap());
    let mut first = Vec::new();
    ClientConnection::new(client, server_name()).unwrap().write_tls(&mut first).unwrap();
    for at in 0..first.len() {
        let mut changed = first.clone();
        changed[at] ^= 0x55;
        for bytes in [&changed[..], &first[..at]] {
            let mut connection = ServerConnection::new(server.clone()).unwrap();
            let mut rest = bytes;
            while !rest.is_empty() && connection.read_tls(&mut rest).is_ok() {
                if connection.process_new_packets().is_err() {
                    break;
                }
            }
            assert!(connection.is_handshaking());
        }
    }
}

/// Each side puts chance of its own into a handshake: what a client said in one fits no other.
#[test]
fn a_handshake_that_is_said_again_is_refused() {
    let pool = authority(POOL);
    let (web, three) = (issue(&pool, client()), issue(&pool, server()));
    let server = server_config(&three).unwrap();
    let mut client = ClientConnection::new(client_config(&web).unwrap(), server_name()).unwrap();
    let (mut first, mut again) =
        (ServerConnection::new(server.clone()).unwrap(), ServerConnection::new(server).unwrap());
    let mut refused = None;
    for _ in 0..10 {
        let mut said = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut said).unwrap();
        }
        for (connection, is_first) in [(&mut first, true), (&mut again, false)] {
            let mut rest = said.as_slice();
            while !rest.is_empty() && connection.read_tls(&mut rest).is_ok() {
                let outcome = connection.process_new_packets();
                assert!(outcome.is_ok() || !is_first, "{outcome:?}");
                if let Err(why) = outcome {
                    refused = Some(why);
                    break;
                }
            }
        }
        let mut answer = Vec::new();
        while first.wants_write() {
            first.write_tls(&mut answer).unwrap();
        }
        let mut rest = answer.as_slice();
        while !rest.is_empty() {
            client.read_tls(&mut rest).unwrap();
            client.process_new_packets().unwrap();
        }
        // What the other server answers reaches nobody.
        while again.wants_write() {
            again.write_tls(&mut std::io::sink()).unwrap();
        }
    }
    assert!(!first.is_handshaking() && again.is_handshaking());
    assert!(refused.is_some());
}

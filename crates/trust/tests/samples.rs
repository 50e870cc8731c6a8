//! Frozen samples of files of keys, and what damage does to them.
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

use ids::{KeyId, ServerId};
use proptest::prelude::*;
use std::path::{Path, PathBuf};
use std::sync::Once;
use trust::{Authority, Holder, Identity, KeyFile, KeyFileError, KeyName, PrivateKey};

fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/v1").join(name)
}

fn read(name: &str) -> Vec<u8> {
    std::fs::read(sample(name)).unwrap_or_else(|e| panic!("{name}: {e}: UPDATE=1 cargo test -p trust"))
}

fn identities() -> [(&'static str, Identity, Option<u64>); 3] {
    let name = |n| KeyName::new(n).unwrap();
    let of = |key, holder| Identity { pool: [0x5a; 16], key: KeyId(key), holder };
    [
        ("server.key", of(1, Holder::Server(ServerId(1))), None),
        ("client.key", of(2, Holder::Client(name("web-1"))), Some(2_000_000_000)),
        ("admin.key", of(3, Holder::Admin(name("anna"))), None),
    ]
}

/// Writes samples that are not there. The keys in them are nobody's.
fn make() {
    static ONCE: Once = Once::new();
    if std::env::var_os("UPDATE").is_some() && !sample("authority").exists() {
        ONCE.call_once(write);
    }
}

fn write() {
    std::fs::create_dir_all(sample("")).unwrap();
    let authority = Authority::new([0x5a; 16], PrivateKey::generate().unwrap()).unwrap();
    std::fs::write(sample("authority"), authority.encode()).unwrap();
    for (name, identity, until) in identities() {
        let keys = KeyFile::issue(&authority, &identity, until).unwrap();
        std::fs::write(sample(name), keys.encode()).unwrap();
    }
}

#[test]
fn samples_are_read_and_written_as_ever() {
    make();
    let authority = Authority::decode(&read("authority")).unwrap();
    assert_eq!(authority.pool(), [0x5a; 16]);
    assert_eq!(authority.encode().as_bytes(), read("authority"));
    for (name, identity, _) in identities() {
        let keys = KeyFile::decode(&read(name)).unwrap();
        assert_eq!(keys.identity(), &identity, "{name}");
        assert_eq!(keys.authorities(), std::slice::from_ref(authority.certificate()), "{name}");
        assert_eq!(keys.encode().as_bytes(), read(name), "{name}");
        assert!(!format!("{keys:?}{authority:?}").contains("PRIVATE"));
    }
}

/// Ed25519 draws no random numbers: what an authority signs again has the same bytes.
#[test]
fn certificates_are_made_as_ever() {
    make();
    let authority = Authority::decode(&read("authority")).unwrap();
    let again = Authority::new([0x5a; 16], key_of("authority")).unwrap();
    assert_eq!(again.encode(), authority.encode());
    for (name, identity, until) in identities() {
        let key = key_of(name);
        let certificate = authority.issue(&identity, &key.public(), until).unwrap();
        let keys = KeyFile::new(certificate, vec![authority.certificate().clone()], key).unwrap();
        assert_eq!(keys.encode().as_bytes(), read(name), "{name}");
    }
}

fn key_of(name: &str) -> PrivateKey {
    use rustls::pki_types::{PrivatePkcs8KeyDer, pem::PemObject};
    let der = PrivatePkcs8KeyDer::from_pem_slice(&read(name)).unwrap();
    PrivateKey::from_pkcs8(der.secret_pkcs8_der()).unwrap()
}

#[test]
fn parts_that_do_not_belong_together_are_refused() {
    make();
    let text = |name| String::from_utf8(read(name)).unwrap();
    let (server, client) = (text("server.key"), text("client.key"));
    let split = |t: &str| {
        let at = t.find("-----BEGIN PRIVATE").unwrap();
        (t[..at].to_owned(), t[at..].to_owned())
    };
    let ((server, server_key), (client, client_key)) = (split(&server), split(&client));
    let decode = |text: String| KeyFile::decode(text.as_bytes()).unwrap_err();
    assert!(matches!(decode(format!("{server}{client_key}")), KeyFileError::OtherKey));
    assert!(matches!(decode(server.clone()), KeyFileError::Parts { .. }));
    assert!(matches!(decode(format!("{server}{server_key}{client_key}")), KeyFileError::Parts { .. }));
    let without_authority = server[..server.rfind("-----BEGIN").unwrap()].to_owned();
    assert!(matches!(decode(format!("{without_authority}{server_key}")), KeyFileError::Parts { .. }));
    let newer = client.replacen("mortar key 1", "mortar key 2", 1);
    assert!(matches!(decode(newer), KeyFileError::Newer { found: 2, newest: 1 }));
    assert!(matches!(decode(text("authority")), KeyFileError::WrongHead { .. }));
    assert!(Authority::decode(server.as_bytes()).is_err());
    let other = Authority::new([0x5a; 16], PrivateKey::generate().unwrap()).unwrap();
    let keys = KeyFile::decode(text("server.key").as_bytes()).unwrap();
    let foreign = keys.with_authorities(vec![other.certificate().clone()]);
    assert!(matches!(foreign, Err(KeyFileError::Foreign)));
}

#[test]
fn files_that_are_cut_short_are_refused() {
    make();
    for name in ["authority", "server.key"] {
        let whole = read(name);
        // The last line break may be missing.
        for end in 0..whole.len() - 1 {
            let cut = &whole[..end];
            assert!(KeyFile::decode(cut).is_err() && Authority::decode(cut).is_err(), "{name}: {end}");
        }
    }
}

proptest! {
    #[test]
    fn bytes_that_were_changed_never_panic_and_never_change_what_is_said(
        name in prop::sample::select(vec!["authority", "server.key", "client.key"]),
        at in any::<prop::sample::Index>(),
        other in any::<u8>(),
    ) {
        make();
        let mut bytes = read(name);
        let at = at.index(bytes.len());
        bytes[at] = other;
        if let Ok(keys) = KeyFile::decode(&bytes) {
            let said = identities().into_iter().find(|(n, ..)| *n == name).unwrap().1;
            prop_assert_eq!(keys.identity(), &said);
        }
        if let Ok(authority) = Authority::decode(&bytes) {
            prop_assert_eq!(authority.pool(), [0x5a; 16]);
        }
    }

    #[test]
    fn any_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400), head in any::<bool>()) {
        let mut all = if head { b"mortar key 1\n-----BEGIN CERTIFICATE-----\n".to_vec() } else { Vec::new() };
        all.extend(bytes);
        prop_assert!(KeyFile::decode(&all).is_err());
        let _read = Authority::decode(&all);
        let _identity = Identity::in_certificate(&all.as_slice().into());
    }
}

//! What tests of pages over HTTPS need.

use super::{Pool, run};
use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// An address of `host` that nobody listens on.
pub(crate) fn free_address(host: &str) -> String {
    TcpListener::bind((host, 0)).unwrap().local_addr().unwrap().to_string()
}

/// Writes the certificate of the pool's authority, which each key file carries.
pub(crate) fn write_authority(pool: &Pool, path: &Path) {
    let key = fs::read_to_string(pool.servers[0].state().join("keys/server")).unwrap();
    let authority = key.rfind("-----BEGIN CERTIFICATE").unwrap();
    fs::write(path, &key[authority..key.find("-----BEGIN PRIVATE").unwrap()]).unwrap();
}

/// A host's key of somebody else's making: the file, which others may read, and its certificate.
pub(crate) fn make_web_key(dir: &Path, host: &str) -> (PathBuf, PathBuf) {
    let [file, key, certificate] = ["own.pem", "own.key", "own.crt"].map(|name| dir.join(name));
    let mut make = Command::new("openssl");
    make.args("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 9 -subj /CN=h".split(' '));
    make.args(["-addext", &format!("subjectAltName=IP:{host}")]);
    make.arg("-keyout").arg(&key).arg("-out").arg(&certificate);
    run(make).ok();
    let parts = [&certificate, &key].map(|part| fs::read_to_string(part).unwrap());
    fs::write(&file, parts.concat()).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
    (file, certificate)
}

/// Nobody else may read the file any more.
pub(crate) fn close(file: &Path) {
    fs::set_permissions(file, Permissions::from_mode(0o600)).unwrap();
}

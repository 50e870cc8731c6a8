//! Files of certificates and a key: a line that says what it is and in which format, then PEM (RFC 7468).

use crate::error::{IdentityError, KeyFileError};
use crate::private_key::PrivateKey;
use rcgen::PublicKeyData;
use rustls::pki_types::pem::{PemObject, SectionKind};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};

/// More bytes than any file of keys has.
pub(crate) const LONGEST: usize = 64 << 10;
/// Certificates in a file.
pub(crate) const MOST: usize = 16;

/// What is in a file.
pub(crate) struct Parts {
    pub(crate) certificates: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKey,
}

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Base64 in lines of 64 characters.
fn base64_lines(bytes: &[u8]) -> String {
    let mut text = String::new();
    for line in bytes.chunks(48) {
        for three in line.chunks(3) {
            let bits =
                three.iter().fold(0u32, |bits, b| bits << 8 | u32::from(*b)) << (8 * (3 - three.len()));
            for at in 0..4 {
                let digit = BASE64.get((bits >> (18 - 6 * at)) as usize & 63).copied();
                text.push(if at <= three.len() { char::from(digit.unwrap_or(b'=')) } else { '=' });
            }
        }
        text.push('\n');
    }
    text
}

/// One section of PEM.
pub(crate) fn section(kind: &str, bytes: &[u8]) -> String {
    format!("-----BEGIN {kind}-----\n{}-----END {kind}-----\n", base64_lines(bytes))
}

/// The text of a file.
pub(crate) fn encode(head: &str, certificates: &[CertificateDer<'_>], key: &PrivateKey) -> String {
    let certificates: String = certificates.iter().map(|c| section("CERTIFICATE", c)).collect();
    format!("{head}\n{certificates}{}", section("PRIVATE KEY", key.pkcs8()))
}

/// Reads a file: certificates and one key. What is no PEM is not looked at, so it may be a comment.
pub(crate) fn decode(head: &'static str, bytes: &[u8]) -> Result<Parts, KeyFileError> {
    if bytes.len() > LONGEST {
        return Err(KeyFileError::NotAFileOfKeys);
    }
    let end = bytes.iter().position(|b| *b == b'\n').unwrap_or(bytes.len());
    let (first, rest) = bytes.split_at(end);
    check_head(head, first)?;
    let (mut certificates, mut keys) = (Vec::new(), Vec::new());
    for section in <(SectionKind, Vec<u8>)>::pem_slice_iter(rest) {
        match section.map_err(|_| KeyFileError::Damaged)? {
            (SectionKind::Certificate, der) => certificates.push(CertificateDer::from(der)),
            (SectionKind::PrivateKey, der) => keys.push(PrivatePkcs8KeyDer::from(der)),
            _ => return Err(KeyFileError::Damaged),
        }
    }
    let [key] = keys.as_slice() else { return Err(KeyFileError::Parts { wanted: "one private key" }) };
    if certificates.len() > MOST {
        return Err(KeyFileError::Parts { wanted: "16 certificates at most" });
    }
    let key = PrivateKey::from_pkcs8(key.secret_pkcs8_der()).ok_or(KeyFileError::Damaged)?;
    Ok(Parts { certificates, key })
}

/// The first line is `head`, or that of a newer format, or something else.
fn check_head(head: &'static str, line: &[u8]) -> Result<(), KeyFileError> {
    if line == head.as_bytes() {
        return Ok(());
    }
    let number = |text: &str| text.rsplit_once(' ').and_then(|(what, n)| Some((what.len(), n.parse().ok()?)));
    let (found, known) = (std::str::from_utf8(line).ok().and_then(number), number(head));
    match (found, known) {
        (Some((at, found)), Some((_, newest)))
            if head.as_bytes().get(..at) == line.get(..at) && found > newest =>
        {
            Err(KeyFileError::Newer { found, newest })
        }
        _ => Err(KeyFileError::WrongHead { wanted: head }),
    }
}

/// Whether the key is the certificate's.
pub(crate) fn check_key(certificate: &CertificateDer<'_>, key: &PrivateKey) -> Result<(), KeyFileError> {
    let parsed = webpki::EndEntityCert::try_from(certificate).map_err(|_| IdentityError::NotACertificate)?;
    let of_certificate = parsed.subject_public_key_info();
    if of_certificate.as_ref() == key.pair().subject_public_key_info() {
        Ok(())
    } else {
        Err(KeyFileError::OtherKey)
    }
}

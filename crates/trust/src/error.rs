//! What can be wrong with keys, certificates and tokens.

use std::io;

/// Why a certificate says nothing that we believe.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum IdentityError {
    /// Not a certificate.
    #[error("it is not a certificate")]
    NotACertificate,
    /// It names nobody, or several.
    #[error("it does not say whose it is")]
    NoIdentity,
    /// What it says is not written as we write it.
    #[error("what it says of its holder makes no sense")]
    BadIdentity,
}

/// Why one side of a handshake does not believe the other, in words for whoever holds the key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum Distrust {
    /// The other side says so of our key.
    #[error("this key is expired, or the clocks differ: ask for another one")]
    Expired,
    /// One side says so of the other's authority.
    #[error(
        "this key is another pool's, or signed by an authority that was replaced: ask this pool for another one"
    )]
    Foreign,
    /// By our clock.
    #[error("the other side's key is expired or not good yet: look at the clocks")]
    OtherExpired,
}

impl Distrust {
    /// If it is one.
    pub(crate) fn of(why: &rustls::Error) -> Option<Distrust> {
        use rustls::{AlertDescription as Alert, CertificateError as Certificate, Error};
        match why {
            Error::AlertReceived(Alert::CertificateExpired) => Some(Distrust::Expired),
            Error::AlertReceived(Alert::UnknownCA) => Some(Distrust::Foreign),
            Error::InvalidCertificate(Certificate::UnknownIssuer) => Some(Distrust::Foreign),
            Error::InvalidCertificate(
                Certificate::Expired
                | Certificate::ExpiredContext { .. }
                | Certificate::NotValidYet
                | Certificate::NotValidYetContext { .. },
            ) => Some(Distrust::OtherExpired),
            _ => None,
        }
    }
}

/// Why a file of keys is not used.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// It could not be read or written.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// Other users may read it.
    #[error("others may read it (mode {mode:04o}): chmod 600, and make another key if somebody has")]
    OpenToOthers {
        /// Its permissions.
        mode: u32,
    },
    /// Too long for a file of keys, or not a plain file.
    #[error("it is not a file of keys")]
    NotAFileOfKeys,
    /// The first line is another one.
    #[error("its first line is not {wanted:?}")]
    WrongHead {
        /// What it should be.
        wanted: &'static str,
    },
    /// Written by a newer Mortar.
    #[error("it has format {found}, this program knows {newest}: update Mortar here")]
    Newer {
        /// The format of the file.
        found: u32,
        /// The newest known here.
        newest: u32,
    },
    /// Cut short, or changed by hand.
    #[error("a certificate or key in it is damaged")]
    Damaged,
    /// Too few or too many certificates or keys.
    #[error("it should have {wanted}")]
    Parts {
        /// What it should have.
        wanted: &'static str,
    },
    /// The certificate in it.
    #[error("its certificate: {0}")]
    Identity(#[from] IdentityError),
    /// The key is not the certificate's.
    #[error("its private key belongs to another certificate")]
    OtherKey,
    /// No authority in the file has signed the certificate.
    #[error("none of its authorities has signed its certificate")]
    Foreign,
}

/// Why a token lets nobody in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TokenError {
    /// Something else.
    #[error("this is not a join token: mortar pool token makes one")]
    NotAToken,
    /// Cut off or mistyped.
    #[error("the join token is not complete, or mistyped: copy it whole")]
    Damaged,
    /// Its time is over.
    #[error("the join token has expired: make another with mortar pool token")]
    Expired,
    /// The pool knows another secret.
    #[error("the pool does not know this join token: make another with mortar pool token")]
    Unknown,
}

/// Why a key, a certificate or the settings of TLS could not be made.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// No randomness, or a key that cannot be used.
    #[error("make a key: {0}")]
    Key(rcgen::Error),
    /// The certificate could not be made.
    #[error("make a certificate: {0}")]
    Certificate(rcgen::Error),
    /// A time that no certificate can hold.
    #[error("a certificate cannot be valid until {0} s after 1970")]
    Time(u64),
    /// TLS does not take the keys.
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
}

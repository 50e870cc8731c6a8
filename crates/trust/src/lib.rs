//! Who may do what: the pool's authority, keys and the certificates that say whose they are, tokens to join, key files.
//!
//! Owns what is said and how it is proven; connections are `transport`'s, and what a role may do its receivers'. Sockets
//! and clocks are not touched: time is given. Invariants: a certificate that is believed was signed by an authority of the
//! pool and says one role; nothing secret is shown by `Debug`; bytes from outside give errors.

mod authority;
mod channel;
mod error;
mod identity;
mod key_file;
mod outgoing;
mod pem;
mod private_file;
mod private_key;
mod room;
mod tls;
mod token;
mod web_key;

pub use authority::{Authority, Fingerprint};
pub use channel::Channel;
pub use error::{IdentityError, KeyFileError, TokenError, TrustError};
pub use identity::{Holder, Identity, KeyName, Pool, Role, hex, unhex};
pub use key_file::KeyFile;
pub use private_file::{read_private, write_private};
pub use private_key::{PrivateKey, PublicKey};
pub use rustls::pki_types::CertificateDer;
pub use rustls::{ClientConfig, ServerConfig};
pub use tls::{ALPN, client_config, identity_of, joining_config, looking_config, server_config, server_name};
pub use token::{JoinToken, StoredToken};
pub use web_key::WebKey;

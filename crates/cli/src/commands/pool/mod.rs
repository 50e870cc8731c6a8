//! `mortar pool`: the pool as a whole, but what needs the server inside.

mod key;
mod list;
mod rotate_authority;
mod rotate_key;
mod secure;
mod token;

pub use key::PoolKey;
pub use list::PoolList;
pub use rotate_authority::PoolRotateAuthority;
pub use rotate_key::PoolRotateKey;
pub use secure::PoolSecure;
pub use token::PoolToken;

//! The pool's state as plain data, and every decision about it: what a command changes and why it is refused.
//!
//! Owns [`State`] (servers, volumes, sets, views, options), the [`Command`]s that change it, the option table, the
//! configuration document, who may come into the pool and leave it, and the rules of liveness.
//! Always true: the same commands in the same order give the same state on every server, byte for byte.
//! Deliberately absent: I/O, clocks, threads, randomness. Whoever proposes a command puts them in.

mod access;
mod apply;
pub mod arbitration;
mod authority;
mod command;
pub mod config;
mod copies;
mod create;
mod grow;
pub mod hex;
mod hosts;
mod keys;
mod level;
pub mod limits;
pub mod liveness;
mod members;
pub mod membership;
mod names;
mod notes;
pub mod options;
mod places;
mod refusal;
mod replace;
mod retired;
mod set_numbers;
mod state;
mod views;
mod webhook;

#[cfg(test)]
mod testing;

pub use access::Access;
pub use authority::AuthorityChange;
pub use command::{
    BrickSpec, Command, ConfigVolume, FewerCopies, MoreCopies, NewBrick, NewBricks, NewServer, NewVolume,
    OptionChange, Outcome, Proposal, ViewChange,
};
pub use hosts::Hosts;
pub use ids::KeyUser;
pub use keys::{
    ClientKey, Joining, Key, KeyHolder, KeySubdir, Keys, LOCAL_NAME, Spent, Squash, Token, is_local_name,
};
pub use level::{
    FILES_ARE_STRIPED, GROUPS_ARE_LOOKED_UP_AGAIN, HOSTS_BY_NAME, LEVEL, NEW_VOLUMES_HAVE_OPTIONS,
};
pub use names::{check_address, check_volume_name, normal_path};
pub use refusal::{KeyRefusal, Refusal};
pub use retired::Retired;
pub use set_numbers::NamedSet;
pub use state::{Brick, Recent, Role, Server, Set, State, Status, View, Volume};
pub use webhook::{WebhookSince, webhook_fault};

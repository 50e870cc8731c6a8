//! The commands, one file each.

pub(crate) mod bench;
pub(crate) mod brick;
pub(crate) mod client;
pub(crate) mod config;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod events;
pub(crate) mod mount;
pub(crate) mod peer;
pub(crate) mod pool;
pub(crate) mod support;
pub(crate) mod volume;

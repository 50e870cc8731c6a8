//! `mortar mount`: a thin adapter that makes a [`client::Client`] a file system of the kernel's.
//!
//! Owns what users write (source and options), the table of nodes the kernel knows, and the translation of requests.
//! Always true: a node's number is its file's inode number; nothing is cached here that another client could change
//! (but for a second: room of the volume, and the absence of file capabilities). Deliberately absent: permission
//! checks (the kernel's, by `default_permissions` and ACLs), locks (the kernel's own, on this machine only), write-back.

mod caller;
mod convert;
mod fuse_adapter;
mod inodes;
mod kept;
mod listing;
mod lock_table;
mod locks;
mod mounted;
pub mod options;
mod pages;
mod places;
pub mod source;

pub use client::{ConnectError, GivenKey, Key};
pub use mounted::{Failure, MountOptions, Mounted, Stop, mount, mounted_at, remount};
pub use options::{BadOption, Options};
pub use source::{BadSource, Source};

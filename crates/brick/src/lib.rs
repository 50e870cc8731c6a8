//! A brick: a directory of ordinary files that holds one replica of a set.
//!
//! Owns: everything under `BRICK/`. The users' tree is ordinary files; each object carries its identity and version in an
//! extended attribute ([`disk_format::tag`]); `.mortar/` holds identity, state, journal, index, orphans and lost+found
//! (directory copies that lost their place). Byte tables: `docs/formats/brick.md`.
//!
//! What must always be true: the tree is the truth, the index a cache; a change is journaled before it is applied, and
//! changes are applied one after the other in the order of their lsns; two bricks that applied the same changes have the
//! same tree, times included. Times that the brick's kernel gives never show.
//!
//! One thread owns a [`Brick`]; what may wait for a disk ([`SyncJob`], [`ReadJob`]) is handed out to run on others.
//!
//! | part | modules | what others may do |
//! |---|---|---|
//! | journal | `journal`, `bound` | append, read, cut, take the last record back |
//! | state and syncs | `state_file`, `sync`, `fresh`, `lost`, `write_again` | begin a job; say what is and is not on disk |
//! | the tree | `tree`, `place`, `far_entry`, `far_names`, `folders`, `object`, `scan` | find, open and move objects |
//! | caches | `index`, `known_names`, `nodes`, `open_objects`, `listing` | look up, note, forget |
//! | changes | `apply`: `making`, `names`, `moves`, `content`, `attrs`, `partial`, `freed` | carry out a change, all or in part |
//! | reads | `read`, `page`, `room`, `validate` | ask |
//! | healing | `stale`, `marks`, `heal`, `heal_entries`, `heal_place`, `orphans`, `doubles`, `compare`, `describe` | widen and remove the mark; take and tell objects |
//! | beginning and end | `open`, `recover`, `identity`, `adopt`, `service`, `check` | |
//! | what has no tag | `foreign` | find it, take it out of the tree |
//!
//! What is not here: permission checks, the meaning of requests (`namespace`), replication, healing.
#![cfg_attr(not(test), deny(clippy::cast_possible_truncation))]

mod adopt;
mod apply;
mod arrivals;
mod at_path;
mod attrs;
mod bound;
mod check;
mod compare;
mod content;
mod describe;
mod dir_moves;
mod doubles;
mod effects;
mod error;
mod far_entry;
mod far_names;
mod folders;
mod foreign;
mod freed;
mod fresh;
mod hand_over;
mod heal;
mod heal_entries;
mod heal_place;
mod heal_target;
mod heal_trash;
mod identity;
mod index;
mod index_file;
mod journal;
mod key_hash;
mod known_names;
mod listing;
mod locks;
mod lost;
mod lost_ends;
mod lru;
mod making;
mod marks;
mod moves;
mod names;
mod nodes;
mod nonces;
mod object;
mod open;
mod open_objects;
mod orphans;
mod page;
mod partial;
mod place;
mod placed;
mod read;
mod recover;
mod room;
mod scan;
mod second_copies;
mod service;
mod set;
mod stale;
mod state_file;
mod stubs;
mod swaps;
mod sync;
mod top;
mod tree;
mod untagged;
mod unused;
mod validate;
mod write_again;

pub use adopt::{adopt_on, begin_adoption, begin_adoption_on, check_adoptable, is_adopting};
pub use check::{Problem, Report, ToHeal, check, check_on};
pub use compare::{SumsJob, sum};
pub use error::{FormatError, JournalError, Obstacle, OpenError};
pub use file_system::init_process;
pub use folders::HiddenJob;
pub use foreign::{Became, ForeignAttribute, ForeignFiles, ForeignObject, ForeignPlace, FoundForeign};
pub use heal_trash::EndJob;
pub use identity::{format, format_again, format_on, read_identity, restore_identity, restore_identity_on};
pub use journal::Records;
pub use listing::{ListJob, name_order};
pub use open::{Brick, Found, Options};
pub use page::PageJob;
pub use placed::WalkJob;
pub use read::{ReadJob, ReadOutcome};
pub use replica::healing::{Arriving, HealSession, Made, Progress, Sum, Sums};
pub use service::{DirLocation, check_path, mount_point, release};
pub use set::Work;
pub use stale::StaleSet;
pub use stubs::STUB_MODE;
pub use sync::SyncJob;
pub use unused::clear_unused;

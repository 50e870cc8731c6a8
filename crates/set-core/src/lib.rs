//! What one server decides for one set, as a state machine without I/O.
//!
//! Owns: [`SetCore`], which takes one [`Input`] at a time and says what is to be done as [`Output`]s. It joins the order of
//! changes (crate `replica`), the rules of POSIX (crate `namespace`) and one brick (the trait [`LocalBrick`]), and holds
//! what a server knows of a set besides: who waits for an answer, who has which files open, who may keep what it was told,
//! the transactions with other sets, both sides of a healing, the syncs under way, and which bricks are silent.
//!
//! What must always be true: time and all that is outside come in as arguments; whatever may take long is an output
//! ([`Output::Start`], [`Output::Ask`]) whose result comes back as an input with its ticket; what an input leads to on the
//! brick is done ([`SetCore::go_on`]) before the next input is taken. The story of a request is in
//! `docs/design/0012-the-core-of-a-set.md`.
//!
//! What it does not do: agree on views (the pool's store), speak to sockets, open bricks.
#![no_std]
#![deny(clippy::indexing_slicing, clippy::cast_possible_truncation)]

extern crate alloc;

mod answer;
mod apply;
mod arrivals;
mod beneath;
mod brick;
mod catch_up;
mod change;
mod content;
mod core;
mod departed;
mod departures;
mod dir_moves;
mod elsewhere;
mod failure_detector;
mod file_move;
mod flush;
mod giving;
mod grants;
mod growing;
mod hand_over;
mod healing;
mod io;
mod joiners;
mod joint;
mod joint_ends;
mod joint_source;
mod known_places;
mod leaving;
mod load;
mod maintenance;
mod moves;
mod names;
mod opens;
mod orphans;
mod paths;
mod pauses;
mod peer;
mod pending;
mod piece_jobs;
mod pieces;
mod placing;
mod questions;
mod read;
mod rebalance;
mod rebalance_settings;
mod recovery;
mod refusals;
mod relay;
mod request;
mod resend;
mod resolve;
mod resolve_files;
mod rights;
mod shown;
mod steps;
mod stripes;
mod stub_marks;
mod sync;
mod taken;
mod target;
mod tickets;
mod timers;
mod trash;
mod turns;
mod waiters;
mod walks;
mod write_again;

pub use brick::{DirLocation, DirPage, Entries, JournalPlace, LocalBrick, Read};
pub use content::Content;
pub use core::{SetCore, Start};
pub use departed::Departed;
pub use file_move::FileMove;
pub use healing::HealReport;
pub use io::{Done, Input, Moment, Output, Outside, ReplyTo, Request, Settings};
pub use maintenance::{Queues, Report};
pub use opens::CLAIM_TIME;
pub use pending::Pending;
pub use rebalance_settings::{RebalanceSettings, RebalanceState, RebalanceThrottle};
pub use steps::{TransactionKind, TransactionStep, Waits};
pub use stripes::StripeSettings;

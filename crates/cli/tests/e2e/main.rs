//! End-to-end tests: real processes of the real binary, real bricks, real mounts. They need root and /dev/fuse.
//!
//! `make test` runs them with the binary that is built for tests, or with MORTAR_BIN; a plain `cargo test` leaves them out.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test that fails says where; figures are part of the output"
)]

mod adopt;
mod arbiter;
mod arbitration;
mod asked_first;
mod attacks;
mod attacks_with_keys;
mod authority;
mod bad_input;
mod basics;
mod brick_check;
mod changing_shape;
mod console;
mod contexts;
mod copies;
mod data_loss_reports;
mod demo;
mod documents;
mod drain;
mod faults;
mod files_elsewhere;
mod footprint;
mod forms;
mod frames;
mod fstab;
mod full_disks;
mod full_targets;
mod grow;
mod harness;
mod heal;
mod healing;
mod hung_disks;
mod import;
mod large_files;
mod listings;
mod local_socket;
mod locks;
mod metrics;
mod moved_directories;
mod moved_whole;
mod newcomers;
mod observe;
mod options;
mod packages;
mod pjdfstest;
mod placed;
mod posix;
mod power_cuts;
mod privilege;
mod quorum;
mod raw;
mod rebalance;
mod restart;
mod restricted;
mod secured;
mod sessions;
mod set_numbers;
mod sets;
mod squash;
mod stopped;
mod storage_faults;
mod striped;
mod striped_shapes;
mod subdir;
mod tour;
mod transactions;
mod trees;
mod two_mounts;
mod unmounting;
mod useless_keys;
mod users;
mod voters;

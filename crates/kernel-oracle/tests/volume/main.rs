//! The product beside the kernel: one client's operations on a volume of one brick, without network, and on tmpfs.
//!
//! Fresh seeds each run, printed with what fails. `ORACLE_SEED=N` repeats one, `ORACLE_OPS=N` runs so many operations.
//! Needs root, as what makes devices and gives files away does.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "tests, which show seeds")]

mod differences;
mod random;
mod rig;

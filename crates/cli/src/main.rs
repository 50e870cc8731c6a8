//! The `mortar` command: the server, the mount and the command line in one binary.
//!
//! Owns words, tables and exit codes (0 done, 1 refused or failed, 2 usage); what commands mean is decided by the server.
//! Invariant: a command that fails prints exactly one line on stderr, which names the object, the reason and what to do.
//! Each command is a file in `commands`: its documentation, its arguments and its output. What the server cannot do yet has
//! no command.

mod ask;
mod cli;
mod commands;
mod confirm;
mod error;
mod logging;
mod output;
mod table;
mod terminal;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<std::ffi::OsString> = std::env::args_os().collect();
    let done = match commands::mount::helper::arguments(&arguments) {
        Some(helper) => helper.and_then(commands::mount::helper::run),
        None => cli::run(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => error::report(&e),
    }
}

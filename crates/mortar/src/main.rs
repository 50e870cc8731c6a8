//! The program `mortar`: the server, the mount and the command line in one binary.
//!
//! Owns what has the server inside: `mortar server` and `mortar pool recover`, and what is made of the whole grammar. All other commands are in the library `cli`,
//! which knows a server only by the admin protocol.

mod generated;
mod grammar;
mod privileges;
mod recover;
mod server;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<std::ffi::OsString> = std::env::args_os().collect();
    if let Some(mounted) = cli::mount_helper(&arguments) {
        return mounted.map_or_else(|e| cli::report_to_mount(&e), |()| ExitCode::SUCCESS);
    }
    let (done, as_json) = match grammar::Mortar::of(&arguments) {
        Ok(command) => {
            let as_json = command.is_json();
            (command.run(), as_json)
        }
        Err(e) if e.use_stderr() && grammar::asks_for_json(&arguments) => {
            (cli::usage(grammar::complaint(&e)), true)
        }
        Err(e) => e.exit(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => cli::report(&e, as_json),
    }
}

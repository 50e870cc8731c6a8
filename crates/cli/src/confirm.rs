//! Asking before something is taken away.

use crate::cli::Global;
use anyhow::bail;
use std::io::{IsTerminal, Write};

/// Asks, if somebody is there to answer and did not say `--yes`.
///
/// # Errors
/// The answer was no.
pub fn confirm(global: &Global, question: &str) -> anyhow::Result<()> {
    let stdin = std::io::stdin();
    if global.yes || !stdin.is_terminal() {
        return Ok(());
    }
    let mut err = std::io::stderr().lock();
    write!(err, "{question} (y/N) ")?;
    err.flush()?;
    let mut answer = String::new();
    stdin.read_line(&mut answer)?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => bail!("nothing was done: answer y, or give --yes"),
    }
}

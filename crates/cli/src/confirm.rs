//! Asking before something is taken away.

use crate::cli::Global;
use anyhow::bail;
use ids::visible;
use std::io::{IsTerminal, Write};

/// Asks before something is destroyed or nobody is served any more. Without a terminal only `--yes` is an answer.
///
/// # Errors
/// The answer was no, or there is nobody to ask.
pub fn confirm(global: &Global, question: &str) -> anyhow::Result<()> {
    if !global.yes && !std::io::stdin().is_terminal() {
        bail!(
            "{question} There is no terminal to ask at: nothing was done: give --yes if this is what you want"
        );
    }
    confirm_at_terminal(global, question)
}

/// Asks where somebody may answer. For what keeps all data, and goes on without a question in scripts.
///
/// # Errors
/// The answer was no.
pub(crate) fn confirm_at_terminal(global: &Global, question: &str) -> anyhow::Result<()> {
    let stdin = std::io::stdin();
    if global.yes || !stdin.is_terminal() {
        return Ok(());
    }
    let mut err = std::io::stderr().lock();
    write!(err, "{} (y/N) ", visible(question))?;
    err.flush()?;
    let mut answer = String::new();
    stdin.read_line(&mut answer)?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => bail!("nothing was done: answer y, or give --yes"),
    }
}

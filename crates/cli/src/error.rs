//! Failures as one line and an exit code.

use std::process::ExitCode;

/// A command that was written wrongly: exit code 2.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// A usage error with these words.
///
/// # Errors
/// Always: exit code 2.
pub fn usage<T>(words: impl Into<String>) -> anyhow::Result<T> {
    Err(Usage(words.into()).into())
}

/// Prints the one line and tells the exit code.
pub fn report(e: &anyhow::Error) -> ExitCode {
    // Whoever read our output has enough: `mortar volume list | head -1`.
    let broken = |e: &(dyn std::error::Error + 'static)| {
        e.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
    };
    if e.chain().any(broken) {
        return ExitCode::SUCCESS;
    }
    crate::output::complain(&format!("{e:#}"));
    if e.is::<Usage>() { ExitCode::from(2) } else { ExitCode::from(1) }
}

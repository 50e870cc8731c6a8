//! Failures as one line and an exit code.

use serde::Serialize;
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

/// A failure as programs read it.
#[derive(Serialize)]
struct Failure<'a> {
    code: String,
    message: &'a str,
    /// What to do, as the message ends.
    remedy: Option<&'a str>,
}

/// The code of a failure: the server's, or whether the words were wrong.
fn code(e: &anyhow::Error) -> String {
    let of_server = e.downcast_ref::<admin::AdminError>().and_then(|e| serde_json::to_value(e.code).ok());
    match of_server {
        Some(serde_json::Value::String(code)) => code,
        _ if e.is::<Usage>() => "usage".to_owned(),
        _ => "failed".to_owned(),
    }
}

/// `{"error": {"code", "message", "remedy"}}`, in one line.
fn document(e: &anyhow::Error) -> String {
    let message = format!("{e:#}");
    let remedy = message.rsplit_once(": ").map(|(_, remedy)| remedy);
    serde_json::json!({ "error": Failure { code: code(e), message: &message, remedy } }).to_string()
}

/// The same for mount(8), which has codes of its own: 1 for words that are wrong, 32 for a mount that failed.
pub fn report_to_mount(e: &anyhow::Error) -> ExitCode {
    let said = report(e, false);
    match said == ExitCode::SUCCESS {
        true => said,
        false => ExitCode::from(if e.is::<Usage>() { 1 } else { 32 }),
    }
}

/// Prints the one line, with `as_json` one object, and tells the exit code.
pub fn report(e: &anyhow::Error, as_json: bool) -> ExitCode {
    // Whoever read our output has enough: `mortar volume list | head -1`.
    let broken = |e: &(dyn std::error::Error + 'static)| {
        e.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
    };
    if e.chain().any(broken) {
        return ExitCode::SUCCESS;
    }
    if as_json {
        crate::output::complain_as_json(&document(e));
    } else {
        crate::output::complain(&format!("{e:#}"));
    }
    if e.is::<Usage>() { ExitCode::from(2) } else { ExitCode::from(1) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use admin::{AdminError, ErrorCode};
    use anyhow::{Context, anyhow};

    #[test]
    fn programs_read_codes_and_remedies() {
        let read = |e: anyhow::Error| serde_json::from_str::<serde_json::Value>(&document(&e)).unwrap();
        let refused = AdminError::new(ErrorCode::Conflict, "volume 'v' is started: stop it first");
        let of_server = read(Err::<(), _>(refused).context("pool.toml").unwrap_err());
        assert_eq!(of_server["error"]["code"], "conflict");
        assert_eq!(of_server["error"]["message"], "pool.toml: volume 'v' is started: stop it first");
        assert_eq!(of_server["error"]["remedy"], "stop it first");
        assert_eq!(read(usage::<()>("write HOST").unwrap_err())["error"]["code"], "usage");
        let other = read(anyhow!("no colon"));
        assert_eq!((&other["error"]["code"], &other["error"]["remedy"]), (&"failed".into(), &().into()));
    }
}

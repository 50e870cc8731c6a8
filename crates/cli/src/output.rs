//! What goes to stdout and stderr.

use serde::Serialize;
use std::io::Write;

/// A line on stdout.
pub(crate) fn line(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.write_all(b"\n")?;
    Ok(out.flush()?)
}

/// One JSON document on stdout.
pub(crate) fn json<T: Serialize>(document: &T) -> anyhow::Result<()> {
    line(&serde_json::to_string_pretty(document)?)
}

/// Done: one line, or `{"done": "..."}`.
pub(crate) fn done(as_json: bool, what: &str) -> anyhow::Result<()> {
    if as_json { json(&serde_json::json!({ "done": what })) } else { line(what) }
}

/// Our one line on stderr.
pub(crate) fn complain(why: &str) {
    let one: Vec<&str> = why.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    // Without a stderr nobody is there to be told.
    let _closed = writeln!(std::io::stderr().lock(), "mortar: {}", one.join("; "));
}

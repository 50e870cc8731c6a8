//! What goes to stdout and stderr.

use crate::yaml;
use anyhow::Context;
use ids::visible;
use serde::Serialize;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

/// A line on stdout.
///
/// # Errors
/// Stdout is closed.
pub fn line(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    let written =
        out.write_all(text.as_bytes()).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush());
    written.context("standard output")
}

/// Some text on stdout that does not end a line.
pub(crate) fn part(text: &str) -> anyhow::Result<()> {
    Ok(std::io::stdout().lock().write_all(text.as_bytes())?)
}

/// Whether documents are in YAML.
static YAML: AtomicBool = AtomicBool::new(false);

/// From now on documents are in YAML, not in JSON: so somebody has asked this process.
pub fn give_yaml() {
    YAML.store(true, Ordering::Relaxed);
}

/// One document on stdout, in JSON or YAML.
///
/// # Errors
/// Stdout is closed.
pub fn json<T: Serialize>(document: &T) -> anyhow::Result<()> {
    if YAML.load(Ordering::Relaxed) {
        return line(&yaml::text(document)?);
    }
    line(&serde_json::to_string_pretty(document)?)
}

/// Done: one line, or the answer's fields and the line as `done`.
pub(crate) fn done<T: Serialize>(as_json: bool, answer: &T, what: &str) -> anyhow::Result<()> {
    #[derive(Serialize)]
    struct Done<'a, T> {
        done: &'a str,
        #[serde(flatten)]
        answer: &'a T,
    }
    if as_json { json(&Done { done: what, answer }) } else { line(what) }
}

/// The text, and a line for each note.
pub(crate) fn with_notes(mut text: String, notes: &[String]) -> String {
    for note in notes {
        text.push_str(&format!("\n{}", crate::table::paragraph(&format!("note: {note}"))));
    }
    text
}

/// Our one line on stderr.
pub(crate) fn complain(why: &str) {
    // Without a stderr nobody is there to be told.
    let _closed = writeln!(std::io::stderr().lock(), "mortar: {}", one_line(why));
}

/// Lines as one, which commands no terminal: names in it may be anybody's.
fn one_line(text: &str) -> String {
    let one: Vec<&str> = text.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    visible(&one.join("; "))
}

/// A failure on stderr, as a document in one line.
pub(crate) fn complain_as_json(document: &str) {
    let _closed = writeln!(std::io::stderr().lock(), "{document}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_one_line_that_commands_no_terminal() {
        assert_eq!(one_line("at line 1\n  | x\n\n"), "at line 1; | x");
        assert_eq!(
            one_line("no volume '\u{1b}]0;owned\u{7}\r\u{9b}2J'"),
            "no volume '\\u{1b}]0;owned\\u{7}\\r\\u{9b}2J'"
        );
    }
}

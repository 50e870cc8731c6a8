//! Lists of exceptions: one entry a line, a number or hash behind it. Lines that begin with # are for people.

use crate::root;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

/// Whether lists are to be written: UPDATE=1.
pub fn updates() -> bool {
    std::env::var_os("UPDATE").is_some()
}

/// A list in `crates/tidy/lists`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct List {
    path: PathBuf,
    head: String,
    /// Entry and what stands behind it.
    pub entries: BTreeMap<String, String>,
    /// There was no such file.
    pub is_new: bool,
}

impl List {
    /// Reads a list; `head` explains it if it has to be written anew.
    pub fn read(name: &str, head: &str) -> List {
        let path = root().join("crates/tidy/lists").join(name);
        let text = fs::read_to_string(&path);
        let is_new = text.is_err();
        let text = text.unwrap_or_default();
        let lines = text.lines().filter(|l| !l.starts_with('#') && !l.trim().is_empty());
        let entry = |l: &str| match l.rsplit_once(' ') {
            Some((entry, value)) => (entry.to_owned(), value.to_owned()),
            None => (l.to_owned(), String::new()),
        };
        let head = head.lines().map(|l| format!("# {l}\n")).collect();
        List { path, head, entries: lines.map(entry).collect(), is_new }
    }

    /// Writes it.
    ///
    /// # Errors
    /// As writing a file.
    pub fn save(&self) -> std::io::Result<()> {
        let lines: String = self.entries.iter().map(|(e, v)| format!("{e} {v}\n")).collect();
        fs::write(&self.path, format!("{}{lines}", self.head))
    }
}

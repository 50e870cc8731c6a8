//! What crates depend on.

use crate::root;
use std::collections::BTreeSet;
use std::fs;

/// Crates of ours among a crate's dependencies; those of tests are left out.
///
/// # Errors
/// The manifest cannot be read.
pub fn dependencies(name: &str, ours: &BTreeSet<String>) -> std::io::Result<BTreeSet<String>> {
    let text = fs::read_to_string(root().join("crates").join(name).join("Cargo.toml"))?;
    let mut section = "";
    let mut found = BTreeSet::new();
    for line in text.lines() {
        if line.starts_with('[') {
            section = line;
        }
        let word = line.split(['.', ' ', '=']).next().unwrap_or_default();
        if section == "[dependencies]" && ours.contains(word) {
            found.insert(word.to_owned());
        }
    }
    Ok(found)
}

//! The documents and the tree agree.
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Rows of the table of crates: name and third column.
fn described() -> BTreeMap<String, String> {
    let text = fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    let section = text.split("\n## Crates\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let rows = section.lines().filter_map(|l| l.strip_prefix("| `")?.split_once('`'));
    rows.map(|(name, rest)| (name.to_owned(), rest.rsplit('|').nth(1).unwrap().trim().to_owned())).collect()
}

fn existing() -> BTreeSet<String> {
    let all = fs::read_dir(root().join("crates")).unwrap().map(|e| e.unwrap());
    all.filter(|e| e.path().join("Cargo.toml").exists())
        .map(|e| e.file_name().into_string().unwrap())
        .collect()
}

/// Crates of ours among a crate's dependencies, those of tests left out.
fn dependencies(name: &str, all: &BTreeSet<String>) -> BTreeSet<String> {
    let text = fs::read_to_string(root().join("crates").join(name).join("Cargo.toml")).unwrap();
    let section = text.split("\n[dependencies]\n").nth(1).unwrap_or_default().split("\n[").next().unwrap();
    let names = section.lines().map(|l| l.split(['.', ' ', '=']).next().unwrap_or_default().to_owned());
    names.filter(|n| all.contains(n)).collect()
}

#[test]
fn architecture_names_the_crates_that_exist() {
    assert_eq!(described().into_keys().collect::<BTreeSet<_>>(), existing());
}

#[test]
fn crates_depend_on_what_architecture_allows() {
    let all = existing();
    for (name, allowed) in described() {
        let allowed: BTreeSet<String> = match allowed.strip_prefix("all but ") {
            Some(but) => {
                let but: BTreeSet<&str> = but.split(", ").collect();
                all.iter()
                    .filter(|c| !but.contains(c.as_str()) && *c != "cli" && *c != "sim")
                    .cloned()
                    .collect()
            }
            None => allowed.split(", ").filter(|a| !a.is_empty()).map(str::to_owned).collect(),
        };
        let used = dependencies(&name, &all);
        assert!(used.is_subset(&allowed), "{name} uses {used:?}, docs/architecture.md allows {allowed:?}");
    }
}

#[test]
fn every_crate_takes_the_workspace_lints() {
    for name in existing() {
        let text = fs::read_to_string(root().join("crates").join(&name).join("Cargo.toml")).unwrap();
        assert!(text.contains("[lints]\nworkspace = true"), "{name}");
    }
}

#[test]
fn requirements_has_every_row() {
    let text = fs::read_to_string(root().join("docs/requirements.md")).unwrap();
    for row in (1..=21).flat_map(|n| [format!("| F{n} |"), format!("| C{n} |")]) {
        assert!(text.contains(&row), "{row}");
    }
}

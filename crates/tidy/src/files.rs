//! The files of the tree.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The top of the tree.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A source file of Rust.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Source {
    /// From the top of the tree, with `/`.
    pub path: String,
    /// What is in it.
    pub text: String,
}

impl Source {
    /// Whether it belongs to what is shipped or simulated, rather than to tests.
    pub fn is_product(&self) -> bool {
        let tests = self.path.ends_with("tests.rs") || self.path.contains("/tests/");
        self.path.contains("/src/") && !tests
    }
}

fn walk(folder: &Path, each: &mut impl FnMut(&Path)) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let mut paths: Vec<PathBuf> = entries.filter_map(|e| Some(e.ok()?.path())).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            walk(&path, each);
        } else {
            each(&path);
        }
    }
}

fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

/// All Rust files below `crates`, sorted. This crate is left out: it holds the patterns that it looks for.
pub fn sources() -> Vec<Source> {
    let mut all = Vec::new();
    walk(&root().join("crates"), &mut |path| {
        let path_shown = shown(path);
        if path_shown.ends_with(".rs")
            && !path_shown.starts_with("crates/tidy/")
            && let Ok(text) = fs::read_to_string(path)
        {
            all.push(Source { path: path_shown, text });
        }
    });
    all
}

/// All frozen samples: the files below `crates/*/testdata`.
pub fn samples() -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    walk(&root().join("crates"), &mut |path| {
        let path = shown(path);
        if path.contains("/testdata/") {
            all.insert(path);
        }
    });
    all
}

/// What a page names between backquotes that begins with `crates/` and lies in a folder `testdata`.
pub fn named_paths(page: &str) -> Vec<String> {
    let quoted = page.split('`').skip(1).step_by(2);
    quoted.filter(|q| q.starts_with("crates/") && q.contains("/testdata")).map(str::to_owned).collect()
}

//! The rules of the house. Each failure says what to do about it.
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use tidy::{List, root, section, sources};

/// Lines of a product file, and of a function in it, without being on the list.
const FILE_LINES: usize = 500;
const FUNCTION_LINES: usize = 70;

fn page(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

fn pages(folder: &str) -> BTreeMap<String, String> {
    let entries = fs::read_dir(root().join(folder)).unwrap().map(|e| e.unwrap().file_name());
    let names = entries.map(|n| n.into_string().unwrap()).filter(|n| n.ends_with(".md"));
    names.map(|n| (n.clone(), page(&format!("{folder}/{n}")))).collect()
}

fn crates() -> BTreeSet<String> {
    let all = fs::read_dir(root().join("crates")).unwrap().map(|e| e.unwrap());
    all.filter(|e| e.path().join("Cargo.toml").exists())
        .map(|e| e.file_name().into_string().unwrap())
        .collect()
}

fn none(problems: Vec<String>) {
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

/// What is long today is on a list with its length. It may become shorter, and the list with it; nothing else may be long.
#[test]
fn files_and_functions_do_not_grow_long() {
    let mut long: BTreeMap<String, usize> = BTreeMap::new();
    for source in sources().iter().filter(|s| s.is_product()) {
        let lines = tidy::product_lines(&source.text);
        if lines > FILE_LINES {
            long.insert(format!("file {}", source.path), lines);
        }
        for f in tidy::functions(&source.text).into_iter().filter(|f| f.lines > FUNCTION_LINES) {
            let most = long.entry(format!("function {} {}", source.path, f.name)).or_default();
            *most = f.lines.max(*most);
        }
    }
    let head = "Product files of more than 500 lines and functions of more than 70, with their lines.\n\
                This list only shrinks: UPDATE=1 cargo test -p tidy takes out and lowers what has become shorter.";
    let mut list = List::read("long.txt", head);
    if tidy::updates() {
        let listed = |entry: &String| list.entries.get(entry).and_then(|n| n.parse::<usize>().ok());
        let kept = long.iter().filter_map(|(entry, now)| match listed(entry) {
            Some(was) => Some((entry.clone(), was.min(*now).to_string())),
            None => list.is_new.then(|| (entry.clone(), now.to_string())),
        });
        list.entries = kept.collect();
        list.save().unwrap();
    }
    let mut problems = Vec::new();
    for (entry, now) in &long {
        match list.entries.get(entry).map(|n| n.parse::<usize>().unwrap()) {
            None => problems.push(format!("{entry} has {now} lines: split it")),
            Some(was) if *now > was => {
                problems.push(format!("{entry} grew from {was} to {now} lines: split it"))
            }
            Some(was) if *now < was => {
                problems.push(format!("{entry} has {now} lines only: UPDATE=1 cargo test -p tidy"))
            }
            Some(_) => {}
        }
    }
    let gone = list.entries.keys().filter(|e| !long.contains_key(*e));
    problems.extend(gone.map(|e| format!("{e} is not long any more: UPDATE=1 cargo test -p tidy")));
    none(problems);
}

/// The table of docs/architecture.md is the source: crates exist, in tiers, and depend on exactly what it says.
#[test]
fn crates_are_as_architecture_says() {
    let architecture = page("docs/architecture.md");
    let table = tidy::crates_table(section(&architecture, "Crates").unwrap());
    let named: BTreeSet<String> = table.iter().map(|(name, _)| name.clone()).collect();
    assert_eq!(named, crates(), "the crates that docs/architecture.md names, and those that exist");
    let mut above = BTreeSet::new();
    for (name, allowed) in table {
        let used = tidy::dependencies(&name, &named).unwrap();
        assert_eq!(used, allowed, "what crate {name} depends on, and what docs/architecture.md says");
        let beside: Vec<&String> = used.difference(&above).collect();
        assert!(beside.is_empty(), "crate {name} depends on {beside:?}, which is not above it in the table");
        above.insert(name);
    }
}

#[test]
fn every_crate_takes_the_workspace_lints() {
    let lacks =
        |name: &String| !page(&format!("crates/{name}/Cargo.toml")).contains("[lints]\nworkspace = true");
    none(
        crates()
            .into_iter()
            .filter(lacks)
            .map(|c| format!("crate {c} has no [lints] workspace = true"))
            .collect(),
    );
}

/// Each file says first what it is.
#[test]
fn every_product_file_has_a_head() {
    let all = sources();
    let bare = all.iter().filter(|s| s.is_product() && !s.text.starts_with("//!"));
    none(bare.map(|s| format!("{} does not begin with //!", s.path)).collect());
}

/// A word of the glossary that the code does not use is not the word for it.
#[test]
fn the_words_of_the_glossary_are_those_of_the_code() {
    let architecture = page("docs/architecture.md");
    let glossary = tidy::bold_words(section(&architecture, "Words").unwrap());
    assert!(glossary.len() > 5, "the glossary is written in another way now: {glossary:?}");
    let code: String =
        sources().into_iter().filter(|s| s.is_product()).map(|s| s.text.to_lowercase()).collect();
    let used = tidy::words(&code);
    none(
        glossary.into_iter().filter(|w| !used.contains(w)).map(|w| format!("{w}: not in the code")).collect(),
    );
}

/// Home-grown words that went out of use do not come back. One a line in the list (see [`tidy::replaced`]).
#[test]
fn words_that_were_replaced_do_not_come_back() {
    let list = List::read("forbidden.txt", "");
    let folders = ["docs", "docs/design", "docs/formats"];
    let documents = folders
        .into_iter()
        .flat_map(|f| pages(f).into_iter().map(move |(n, text)| (format!("{f}/{n}"), text)));
    let top = ["README.md", "CONTRIBUTING.md"].map(|p| (p.to_owned(), page(p)));
    let texts = sources().into_iter().map(|s| (s.path, s.text)).chain(documents).chain(top);
    let mut problems = Vec::new();
    for (path, text) in texts {
        let found = tidy::replaced(&path, &text, &list.entries);
        problems.extend(found.into_iter().map(|(word, instead)| format!("{path}: {word}: say {instead}")));
    }
    none(problems);
}

/// Each page of formats names samples that exist, and each sample is named by a page.
#[test]
fn formats_name_their_samples() {
    let samples = tidy::samples();
    let (mut problems, mut named) = (Vec::new(), Vec::new());
    for (name, text) in pages("docs/formats") {
        let paths = tidy::named_paths(&text);
        if paths.is_empty() {
            problems.push(format!("docs/formats/{name} names no sample (`crates/.../testdata/...`)"));
        }
        for path in paths {
            if !root().join(&path).exists() {
                problems.push(format!("docs/formats/{name} names {path}, which does not exist"));
            }
            named.push(path);
        }
    }
    let covers =
        |path: &String, sample: &String| path == sample || (path.ends_with('/') && sample.starts_with(path));
    let unnamed = samples.iter().filter(|s| !named.iter().any(|n| covers(n, s)));
    problems.extend(unnamed.map(|s| format!("{s} is named by no page of docs/formats")));
    none(problems);
}

/// FNV-1a, 64 bits: enough to see that a file was edited.
fn hash(bytes: &[u8]) -> String {
    let hash = bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0000_0100_0000_01b3));
    format!("{hash:016x}")
}

/// What is frozen of a sample: all of it, but the names of fields that stand beside bytes.
fn frozen(path: &str) -> Vec<u8> {
    let bytes = fs::read(root().join(path)).unwrap();
    match String::from_utf8(bytes.clone()) {
        Ok(text) if text.starts_with("bytes:\n") => {
            text.split("\nvalue:\n").next().unwrap_or_default().as_bytes().to_vec()
        }
        _ => bytes,
    }
}

/// Samples are added, never edited or removed.
#[test]
fn samples_are_frozen() {
    let head = "Frozen samples and the FNV-1a of what is frozen of them.\n\
                UPDATE=1 cargo test -p tidy adds new ones. A line of this list is never changed.";
    let mut list = List::read("frozen.txt", head);
    let now: BTreeMap<String, String> =
        tidy::samples().into_iter().map(|s| (s.clone(), hash(&frozen(&s)))).collect();
    if tidy::updates() {
        for (path, hash) in &now {
            list.entries.entry(path.clone()).or_insert_with(|| hash.clone());
        }
        list.save().unwrap();
    }
    let mut problems = Vec::new();
    for (path, was) in &list.entries {
        match now.get(path) {
            Some(is) if is == was => {}
            Some(_) => {
                problems.push(format!("{path} was edited: what is on disks and wires does not change"))
            }
            None => problems.push(format!("{path} is gone: what is on disks and wires stays readable")),
        }
    }
    let new = now.keys().filter(|p| !list.entries.contains_key(*p));
    problems.extend(new.map(|p| format!("{p} is not on the list: UPDATE=1 cargo test -p tidy")));
    none(problems);
}

/// Each design note is in the index, with its status.
#[test]
fn design_notes_are_in_the_index() {
    let index = page("docs/design/README.md");
    let rows: Vec<&str> = index.lines().filter(|l| l.starts_with("| [")).collect();
    let notes: Vec<String> = pages("docs/design").into_keys().filter(|n| n != "README.md").collect();
    let mut problems = Vec::new();
    for note in &notes {
        let row = rows.iter().find(|r| r.contains(&format!("]({note})")));
        let status = row.and_then(|r| r.trim_end_matches('|').rsplit('|').next()).unwrap_or_default().trim();
        if !["draft", "accepted"].contains(&status) && !status.starts_with("replaced by ") {
            problems.push(format!("docs/design/{note}: no row with its status in docs/design/README.md"));
        }
    }
    assert_eq!(rows.len(), notes.len(), "rows of docs/design/README.md, and design notes");
    none(problems);
}

#[test]
fn requirements_has_every_row() {
    let text = page("docs/requirements.md");
    let rows = (1..=21).flat_map(|n| [format!("| F{n} |"), format!("| C{n} |")]);
    none(rows.filter(|row| !text.contains(row)).collect());
}

/// No check that checks nothing, no test that is switched off, nothing left to do.
#[test]
fn checks_check_something() {
    let mut problems = Vec::new();
    for source in sources() {
        for (line, what) in tidy::empty_checks(&source.text) {
            problems.push(format!("{}:{line}: {what}", source.path));
        }
    }
    none(problems);
}

/// `scripts/classic-mutants` builds its mistakes from mutants that are there, and can be built in together.
#[test]
fn classic_mistakes_are_made_of_mutants() {
    let classics = tidy::classics().unwrap();
    assert_eq!(classics.len(), 5);
    for classic in classics {
        assert!(!classic.mutants.is_empty(), "{}: no mutants", classic.name);
        for mutant in classic.mutants {
            tidy::plant(&root(), &mutant).unwrap();
        }
    }
}

/// Where a page's links to files of this tree lead, without anchors.
fn links(page: &str) -> Vec<String> {
    let mut fenced = false;
    let lines = page.lines().filter(|l| {
        fenced ^= l.trim_start().starts_with("```");
        !fenced
    });
    let targets = lines.flat_map(|l| l.split("](").skip(1)).filter_map(|l| l.split(')').next());
    let here = targets.filter(|t| !t.contains("://") && !t.starts_with('#') && !t.starts_with("mailto:"));
    here.map(|t| t.split('#').next().unwrap().to_owned()).collect()
}

/// Links between pages lead somewhere; the reference is made by `make docs`.
#[test]
fn links_lead_somewhere() {
    let mut all: Vec<String> = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(String::from).into();
    for folder in ["docs", "docs/guide", "docs/design", "docs/formats"] {
        all.extend(pages(folder).keys().map(|name| format!("{folder}/{name}")));
    }
    let mut problems = Vec::new();
    let mut seen = 0;
    for path in &all {
        let folder = root().join(path).parent().unwrap().to_path_buf();
        for link in links(&page(path)) {
            seen += 1;
            if !link.starts_with("reference/") && !folder.join(&link).exists() {
                problems.push(format!("{path} links to {link}, which does not exist"));
            }
        }
    }
    assert!(seen > 50, "links are not found any more");
    none(problems);
}

/// Each page of the documentation is in the site's table of contents.
#[test]
fn every_page_is_in_the_summary() {
    let summary: BTreeSet<String> = links(&page("docs/SUMMARY.md")).into_iter().collect();
    let mut problems = Vec::new();
    for folder in ["", "guide/", "design/", "formats/"] {
        let names = pages(&format!("docs/{folder}")).into_keys().map(|name| format!("{folder}{name}"));
        let missing = names.filter(|name| name != "SUMMARY.md" && !summary.contains(name));
        problems.extend(missing.map(|name| format!("docs/SUMMARY.md does not name {name}")));
    }
    none(problems);
}

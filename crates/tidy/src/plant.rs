//! Building mutants into a checkout, and taking them out again.

use crate::files::root;
use crate::mutant::{self, Mutant, find};
use std::fs;
use std::path::{Path, PathBuf};

/// A file of a checkout, without and with a mistake.
#[derive(Debug)]
pub struct Planted {
    path: PathBuf,
    before: String,
    after: String,
}

impl Planted {
    /// Puts the mistake in.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn write(&self) -> Result<(), String> {
        fs::write(&self.path, &self.after).map_err(|e| format!("{}: {e}", self.path.display()))
    }

    /// Takes it out again, and with it all that was put into the same file since.
    ///
    /// # Errors
    /// The file can't be written.
    pub fn undo(&self) -> Result<(), String> {
        fs::write(&self.path, &self.before).map_err(|e| format!("{}: {e}", self.path.display()))
    }
}

/// All mutants of `crates/tidy/mutants`.
///
/// # Errors
/// A file that can't be read, or two mutants of one name.
pub fn all_mutants() -> Result<Vec<Mutant>, String> {
    let folder = root().join("crates/tidy/mutants");
    let entries = fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut files: Vec<PathBuf> = entries.filter_map(|e| Some(e.ok()?.path())).collect();
    files.sort();
    let mut all = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
        all.extend(mutant::parse(&text).map_err(|e| format!("{}: {e}", file.display()))?);
    }
    let mut names: Vec<&String> = all.iter().map(|m| &m.name).collect();
    names.sort();
    match names.windows(2).find(|two| matches!(two, [a, b] if a == b)) {
        Some(two) => Err(format!("{two:?}: two mutants of one name")),
        None => Ok(all),
    }
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path());
    for path in entries {
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

/// The file that holds the mutant's text, once, and what it says with the mistake. If the file it was in does not hold it any
/// more, another one of the crate may.
///
/// # Errors
/// The text is not there, or more than once.
pub fn plant(tree: &Path, m: &Mutant) -> Result<Planted, String> {
    let own = tree.join(&m.file);
    let mut others = Vec::new();
    sources(&tree.join("crates").join(m.package()).join("src"), &mut others);
    others.retain(|f| *f != own);
    for files in [vec![own], others] {
        let mut found = Vec::new();
        for path in files {
            let before = fs::read_to_string(&path).unwrap_or_default();
            for at in find(&before, &m.from) {
                let to = m.to.trim().trim_end_matches(',');
                let after = format!("{}{to}{}", &before[..at.start], &before[at.end..]);
                found.push(Planted { path: path.clone(), before: before.clone(), after });
            }
        }
        match found.len() {
            0 => {}
            1 => return found.pop().ok_or_else(String::new),
            n => return Err(format!("{}: its text is there {n} times", m.name)),
        }
    }
    Err(format!("{}: its text is not in crate {}", m.name, m.package()))
}

/// A mistake that several mutants make together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Classic {
    /// What it is called.
    pub name: String,
    /// How the simulator is run on it.
    pub how: Vec<String>,
    /// All of them are planted.
    pub mutants: Vec<Mutant>,
}

/// The mistakes of `crates/tidy/classic.txt`.
///
/// # Errors
/// The file can't be read, or names a mutant that there is not.
pub fn classics() -> Result<Vec<Classic>, String> {
    let file = root().join("crates/tidy/classic.txt");
    let text = fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
    let known = all_mutants()?;
    let mut all: Vec<Classic> = Vec::new();
    for line in text.lines().filter(|l| !l.starts_with('#') && !l.trim().is_empty()) {
        if let Some((name, how)) = line.split_once(':') {
            let how = how.split_whitespace().map(str::to_owned).collect();
            all.push(Classic { name: name.to_owned(), how, mutants: Vec::new() });
            continue;
        }
        let Some(classic) = all.last_mut() else { return Err(format!("not a mistake: {line}")) };
        for name in line.split_whitespace() {
            let mutant = known.iter().find(|m| m.name == name).cloned();
            classic.mutants.push(mutant.ok_or_else(|| format!("{name}: no such mutant"))?);
        }
    }
    Ok(all)
}

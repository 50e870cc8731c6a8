//! Trees of files: making them, reading them, comparing them.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Looks at a brick that is being changed.
const LOOKS: usize = 1000;

/// What a file is, to be compared.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) kind: char,
    pub(crate) mode: u32,
    pub(crate) owner: (u32, u32),
    pub(crate) mtime: (i64, i64),
    pub(crate) links: u64,
    pub(crate) content: Vec<u8>,
}

impl std::fmt::Debug for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Seen { kind, mode, owner, mtime, links, content } = self;
        let head = content.get(..content.len().min(40)).unwrap();
        let sum = content.iter().fold(0u64, |sum, b| sum.wrapping_mul(31).wrapping_add(u64::from(*b)));
        write!(
            f,
            "{kind} {mode:o} {owner:?} mtime {mtime:?} links {links} {} bytes (sum {sum:x}) {:?}",
            content.len(),
            String::from_utf8_lossy(head)
        )
    }
}

impl Seen {
    pub(crate) fn of(path: &Path) -> std::io::Result<Seen> {
        let meta = fs::symlink_metadata(path)?;
        let (kind, content) = if meta.is_dir() {
            ('d', vec![])
        } else if meta.is_symlink() {
            ('l', fs::read_link(path)?.into_os_string().into_encoded_bytes())
        } else if meta.is_file() {
            ('f', fs::read(path)?)
        } else {
            ('s', meta.rdev().to_le_bytes().to_vec())
        };
        Ok(Seen {
            kind,
            mode: meta.mode() & 0o7777,
            owner: (meta.uid(), meta.gid()),
            mtime: (meta.mtime(), meta.mtime_nsec()),
            links: if meta.is_dir() { 0 } else { meta.nlink() },
            content,
        })
    }

    pub(crate) fn is_dir(&self) -> bool {
        self.kind == 'd'
    }
}

/// Everything beneath a directory, but `.mortar` at its top.
pub(crate) type Tree = BTreeMap<PathBuf, Seen>;

/// The tree that a mount shows, or that of a brick at rest.
pub(crate) fn tree(top: &Path) -> Tree {
    look(top).unwrap_or_else(|(path, e)| panic!("{}: {e}", path.display()))
}

/// The tree of a brick that its server may be changing: looked at anew if something goes meanwhile.
pub(crate) fn brick_tree(top: &Path) -> Tree {
    let seen = |_| match look(top) {
        Err((path, e)) if e.kind() == std::io::ErrorKind::NotFound && path != top => None,
        seen => Some(seen.unwrap_or_else(|(path, e)| panic!("{}: {e}", path.display()))),
    };
    (0..LOOKS).find_map(seen).unwrap_or_else(|| panic!("{} is never at rest", top.display()))
}

/// What was met, and why it cannot be looked at.
type Failed = (PathBuf, std::io::Error);

fn look(top: &Path) -> Result<Tree, Failed> {
    let mut all = BTreeMap::new();
    let mut waiting = vec![top.to_path_buf()];
    while let Some(dir) = waiting.pop() {
        for entry in fs::read_dir(&dir).map_err(|e| (dir.clone(), e))? {
            let path = entry.map_err(|e| (dir.clone(), e))?.path();
            if path == top.join(".mortar") {
                continue;
            }
            let seen = Seen::of(&path).map_err(|e| (path.clone(), e))?;
            if seen.is_dir() {
                waiting.push(path.clone());
            }
            all.insert(path.strip_prefix(top).unwrap().to_path_buf(), seen);
        }
    }
    Ok(all)
}

/// Names in a directory, sorted.
pub(crate) fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Bytes that look like noise and are the same every time.
pub(crate) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .collect()
}

/// A source tree of at least `count` files: crates of cargo's registry if there are enough, else one made up.
pub(crate) fn source_tree(into: &Path, count: usize) -> usize {
    fs::create_dir(into).unwrap();
    let home = std::env::var("CARGO_HOME").map(PathBuf::from);
    let home = home.unwrap_or_else(|_| PathBuf::from(std::env::var("HOME").unwrap()).join(".cargo"));
    let mut copied = 0;
    let registries =
        fs::read_dir(home.join("registry/src")).map(|d| d.flatten().collect()).unwrap_or_else(|_| vec![]);
    let mut crates: Vec<PathBuf> = registries
        .iter()
        .flat_map(|r| fs::read_dir(r.path()).unwrap())
        .map(|e| e.unwrap().path())
        .filter(|p| !p.file_name().unwrap().to_string_lossy().starts_with("windows"))
        .collect();
    crates.sort();
    for one in crates {
        if copied >= count {
            break;
        }
        super::tool(&format!("cp -a {} {}", one.display(), into.display()));
        copied += tree(&into.join(one.file_name().unwrap())).values().filter(|s| s.kind == 'f').count();
    }
    for i in 0..count.saturating_sub(copied) {
        let dir = into.join(format!("made/d{}/e{}", i % 17, i % 5));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join(format!("f{i}.c")), noise(i as u64, i * 13 % 9000)).unwrap();
        copied += 1;
    }
    decorate(into);
    copied
}

/// Owners, modes and kinds that plain sources lack.
fn decorate(top: &Path) {
    let own = top.join("decorated");
    fs::create_dir(&own).unwrap();
    for (i, mode) in [0o644, 0o600, 0o755, 0o4755, 0o2711, 0o400, 0o000].into_iter().enumerate() {
        let path = own.join(format!("mode{mode:o}"));
        fs::write(&path, noise(i as u64, 100 + i)).unwrap();
        let id = 1000 + u32::try_from(i).unwrap();
        std::os::unix::fs::chown(&path, Some(id), Some(id + 1)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
    std::os::unix::fs::symlink("mode644", own.join("link")).unwrap();
    std::os::unix::fs::symlink("/nowhere/at all", own.join("dangling")).unwrap();
    fs::hard_link(own.join("mode644"), own.join("again")).unwrap();
    fs::write(own.join("empty"), "").unwrap();
    fs::write(own.join("spaces and ünïcode"), "x").unwrap();
    let sticky = own.join("sticky");
    fs::create_dir(&sticky).unwrap();
    fs::set_permissions(&sticky, fs::Permissions::from_mode(0o1777)).unwrap();
}

/// Processes whose command line contains these words.
pub(crate) fn processes_with(words: &str) -> Vec<String> {
    let own = std::process::id().to_string();
    let commands = fs::read_dir("/proc").unwrap().flatten().filter_map(|e| {
        let pid = e.file_name().into_string().ok()?;
        let line = fs::read(e.path().join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        (pid != own && pid.parse::<u32>().is_ok() && line.contains(words)).then(|| format!("{pid}: {line}"))
    });
    commands.collect()
}

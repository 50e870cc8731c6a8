//! Key files: the one that a command shows, and those that commands make.

use crate::contexts;
use anyhow::anyhow;
use rustix::fs::Access;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use trust::{ClientConfig, Holder, KeyFile, client_config, read_private, write_private};

/// The variable of the environment that names a key file.
const KEY_VARIABLE: &str = "MORTAR_KEY";

/// What to make a connection with: the key in the file that is named, or in the usual one if it is there.
///
/// # Errors
/// The file is of no use.
pub(crate) fn settings(named: Option<&Path>) -> anyhow::Result<Option<Arc<ClientConfig>>> {
    let path = match named {
        Some(path) => path.to_owned(),
        None => match contexts::of_user("key").filter(|path| path.exists()) {
            Some(path) => path,
            None => return Ok(None),
        },
    };
    let say = |e: &dyn std::fmt::Display| anyhow!("key file {}: {e}", path.display());
    let bytes = read_private(&path).map_err(|e| say(&e))?;
    let file = KeyFile::decode(&bytes).map_err(|e| say(&e))?;
    if let Holder::Client(name) = &file.identity().holder {
        return Err(say(&format!(
            "it is the client {name}'s, for mounts: commands need an administrator's (mortar pool key)"
        )));
    }
    Ok(Some(client_config(&file).map_err(|e| say(&e))?))
}

/// The file that somebody named: as a word of the command, or in MORTAR_KEY.
pub(crate) fn named(given: Option<&Path>) -> Option<PathBuf> {
    let variable = || std::env::var_os(KEY_VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from);
    given.map(Path::to_owned).or_else(variable)
}

/// Where a key that is made is to be written; refused if something is there, unless it is to be replaced.
///
/// # Errors
/// Something is there.
pub(crate) fn place(out: Option<PathBuf>, name: &str, replace: bool) -> anyhow::Result<PathBuf> {
    let path = out.unwrap_or_else(|| PathBuf::from(format!("{name}.key")));
    if !replace && std::fs::symlink_metadata(&path).is_ok() {
        return Err(anyhow!("{}: it is there already: name another file with --out", path.display()));
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if let Err(e) = rustix::fs::access(folder, Access::WRITE_OK | Access::EXEC_OK) {
        let why = std::io::Error::from(e);
        return Err(anyhow!(
            "{}: no file can be made there ({why}): name another one with --out",
            path.display()
        ));
    }
    Ok(path)
}

/// Writes a key that was made.
///
/// # Errors
/// The file system's: the key has to be revoked then.
pub(crate) fn write(path: &Path, name: &str, file: &str) -> anyhow::Result<()> {
    write_private(path, file).map_err(|e| {
        anyhow!("{}: {e}: the key was made but not written: mortar client revoke {name}", path.display())
    })
}

/// A key that was made, without its secret.
#[derive(Debug, serde::Serialize)]
pub(crate) struct Written {
    /// What it is called.
    pub(crate) name: String,
    key: ids::KeyId,
    until: Option<u64>,
    file: PathBuf,
}

impl Written {
    pub(crate) fn new(made: &admin::KeyMade, path: &Path) -> Written {
        Written { name: made.name.clone(), key: made.key, until: made.until, file: path.to_owned() }
    }
}

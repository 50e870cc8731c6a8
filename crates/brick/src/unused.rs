//! A brick that was made and never opened: what a command leaves that was interrupted before the pool took the brick.

use crate::identity::{FOLDERS, IDENTITY, is_no_obstacle, own, read_small};
use crate::scan::names;
use disk_format::Identity;
use file_system::{FileSystem, Host, S_IFDIR};
use std::path::Path;
use wire::Errno;

/// Takes the brick at `path` apart if it was made and never opened, and `is_leftover` says that nobody has it. False if
/// there is none such, or it cannot be told.
pub fn clear_unused(path: &Path, is_leftover: impl Fn(&Identity) -> bool) -> bool {
    matches!(unused(path), Ok(Some(identity)) if is_leftover(&identity))
        && std::fs::remove_dir_all(own(path)).is_ok()
}

fn unused(path: &Path) -> Result<Option<Identity>, Errno> {
    let root = Host.open_dir(path)?;
    if names(&root)?.iter().any(|name| !is_no_obstacle(name)) {
        return Ok(None);
    }
    let meta = root.open_at(wire::name::RESERVED, S_IFDIR)?;
    for name in names(&meta)? {
        let folder = FOLDERS.iter().any(|f| f.as_bytes() == name);
        let is_new =
            if folder { names(&meta.open_at(&name, S_IFDIR)?)?.is_empty() } else { name == IDENTITY };
        if !is_new {
            return Ok(None);
        }
    }
    let bytes = read_small(&meta, IDENTITY)?;
    Ok(bytes.and_then(|b| Identity::decode(&b).ok()))
}

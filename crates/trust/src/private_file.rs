//! Files with something secret: their owner's alone, and replaced as a whole.

use crate::error::KeyFileError;
use crate::pem::LONGEST;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Reads a file of keys.
///
/// # Errors
/// It is not there, no file, too long, or others may read it.
pub fn read_private(path: &Path) -> Result<Vec<u8>, KeyFileError> {
    let file = File::open(path)?;
    let about = file.metadata()?;
    if !about.is_file() {
        return Err(KeyFileError::NotAFileOfKeys);
    }
    let mode = about.permissions().mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(KeyFileError::OpenToOthers { mode });
    }
    let mut bytes = Vec::new();
    file.take(LONGEST as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > LONGEST { Err(KeyFileError::NotAFileOfKeys) } else { Ok(bytes) }
}

/// Writes a file of keys with mode 0600, whatever the umask; after a crash there is the old one or the new one.
///
/// # Errors
/// The file system's.
pub fn write_private(path: &Path, text: &str) -> Result<(), KeyFileError> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    match fs::remove_file(&temporary) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e.into()),
        Err(_) | Ok(()) => {}
    }
    // Nobody may have laid a link there.
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    file.set_permissions(fs::Permissions::from_mode(0o600))?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Ok(File::open(folder)?.sync_all()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_may_read_is_not_read() {
        let dir = std::env::temp_dir().join(format!("mortar-keys-{}", std::process::id()));
        let _old = fs::remove_dir_all(&dir);
        fs::create_dir(&dir).unwrap();
        let path = dir.join("key");
        fs::write(dir.join("key.new"), "left by a crash").unwrap();
        for text in ["one", "two"] {
            write_private(&path, text).unwrap();
            assert_eq!(read_private(&path).unwrap(), text.as_bytes());
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
        }
        for mode in [0o640, 0o604, 0o620, 0o601] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert!(matches!(read_private(&path), Err(KeyFileError::OpenToOthers { mode: m }) if m == mode));
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
        read_private(&path).unwrap();
        assert!(matches!(read_private(&dir), Err(KeyFileError::NotAFileOfKeys)));
        write_private(&path, &"x".repeat(LONGEST + 1)).unwrap();
        assert!(matches!(read_private(&path), Err(KeyFileError::NotAFileOfKeys)));
        assert!(matches!(read_private(&dir.join("absent")), Err(KeyFileError::Io(_))));
        fs::remove_dir_all(&dir).unwrap();
    }
}

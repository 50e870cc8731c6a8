//! The local sockets of servers on this machine, by which root needs neither an address nor a key.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// The kernel's list of local sockets.
const LIST: &str = "/proc/net/unix";

/// Sockets of servers that we may use, by their paths.
///
/// # Errors
/// The kernel's list cannot be read.
pub(crate) fn sockets() -> std::io::Result<Vec<String>> {
    let list = match fs::read_to_string(LIST) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        list => list?,
    };
    let mut found: Vec<String> = named(&list).filter(|path| is_servers(Path::new(path))).collect();
    found.sort();
    found.dedup();
    Ok(found)
}

/// The paths in the list that a server's socket may have. Only those who listen have the flag.
fn named(list: &str) -> impl Iterator<Item = String> + '_ {
    list.lines().skip(1).filter_map(|line| {
        // Num: RefCount Protocol Flags Type St Inode Path
        let mut rest = line;
        let mut flags = "";
        for column in 0..7 {
            let (word, after) = rest.trim_start().split_once(' ')?;
            if column == 3 {
                flags = word;
            }
            rest = after;
        }
        let listens = u32::from_str_radix(flags, 16).is_ok_and(|flags| flags & 0x1_0000 != 0);
        let path = rest.trim_start();
        (listens && path.starts_with('/') && path.ends_with("/socket")).then(|| path.to_owned())
    })
}

/// Whether it is a server's in its state folder, and ours: nobody else may have put it there to hear what root asks.
fn is_servers(socket: &Path) -> bool {
    let me = rustix::process::geteuid().as_raw();
    let trusted = |uid: u32| uid == 0 || uid == me;
    let Some(folder) = socket.parent() else { return false };
    let own = fs::symlink_metadata(socket)
        .is_ok_and(|m| m.file_type().is_socket() && trusted(m.uid()) && m.mode() & 0o077 == 0);
    let state = ["identity", "lock"]
        .iter()
        .all(|name| fs::symlink_metadata(folder.join(name)).is_ok_and(|m| m.is_file() && trusted(m.uid())));
    own && state && fs::metadata(folder).is_ok_and(|m| trusted(m.uid()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listening_sockets_of_that_name_are_taken() {
        let list = "\
Num               RefCount Protocol Flags    Type St Inode Path
0000000000000000: 00000002 00000000 00010000 0001 01 12345 /var/lib/mortar/socket
0000000000000000: 00000003 00000000 00000000 0001 03 12346 /var/lib/mortar/socket
0000000000000000: 00000002 00000000 00010000 0001 01   77 /srv/a folder/socket
0000000000000000: 00000002 00000000 00010000 0001 01 12347 /run/other.sock
0000000000000000: 00000002 00000000 00010000 0001 01 12348 @/abstract/socket
0000000000000000: 00000003 00000000 00000000 0001 03 12349
";
        let found: Vec<String> = named(list).collect();
        assert_eq!(found, ["/var/lib/mortar/socket", "/srv/a folder/socket"]);
    }

    #[test]
    fn what_is_no_state_folder_of_ours_is_not_asked() {
        let dir = std::env::temp_dir().join(format!("mortar-local-{}", std::process::id()));
        let _old = fs::remove_dir_all(&dir);
        fs::create_dir(&dir).unwrap();
        let path = dir.join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let mode =
            |mode| fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        mode(0o600);
        assert!(!is_servers(&path), "no identity beside it");
        for name in ["identity", "lock"] {
            fs::write(dir.join(name), "").unwrap();
        }
        assert!(is_servers(&path));
        let own = path.canonicalize().unwrap().display().to_string();
        assert!(sockets().unwrap().contains(&own));
        mode(0o666);
        assert!(!is_servers(&path), "others may use it");
        fs::remove_dir_all(&dir).unwrap();
    }
}

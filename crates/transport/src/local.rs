//! Where the servers of a machine leave local sockets: in one folder that only root can use.
//!
//! A socket's name begins with the address that its server listens on, so that whoever means that address finds it. The
//! folder is one of the file system: network namespaces of the machine share it, and two servers in different ones may have
//! the same address. Invariant: a folder that somebody else could write to is not used.

use crate::handshake_reply;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use std::fs::{self, DirBuilder, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The folder.
const FOLDER: &str = "/run/mortar";
/// Held while a socket is made, or dead ones are removed.
const LOCK: &str = "lock";
/// Between a socket's address and what tells servers of the same address apart.
const MARK: char = '~';
/// Digits of a server's identity in a socket's name.
const DIGITS: usize = 12;
/// Bytes of a socket's path: the kernel's limit.
const PATH_MAX: usize = 107;

/// The socket of a server on this machine.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LocalSocket {
    /// Where its server listens for others, as `host:port`.
    pub address: String,
    /// Where the socket is.
    pub path: PathBuf,
}

/// Makes the local socket of the server that listens on `address` and has that identity, and where it is.
///
/// # Errors
/// The folder is somebody else's or cannot be made, or the address is too long for a name.
pub fn listen_locally(address: &str, identity: &str) -> io::Result<(UnixListener, PathBuf)> {
    listen_in(Path::new(FOLDER), address, identity)
}

/// The sockets of all servers on this machine that this user may use, those of servers that ended perhaps among them.
pub fn local_sockets() -> Vec<LocalSocket> {
    sockets_in(Path::new(FOLDER))
}

/// The local socket of the server at `address`, if that runs on this machine. An address that is written in another way, or
/// that several network namespaces have, is asked which server it leads to: at most `timeout` for each that is asked.
pub async fn local_socket_of(address: &str, timeout: Duration) -> Option<PathBuf> {
    let all = local_sockets();
    let named: Vec<LocalSocket> = all.iter().filter(|s| s.address == address).cloned().collect();
    if let [only] = named.as_slice() {
        return Some(only.path.clone());
    }
    let candidates = if named.is_empty() { all } else { named };
    if candidates.is_empty() {
        return None;
    }
    let there = handshake_reply(address, timeout).await.ok()?;
    for socket in candidates {
        let here = handshake_reply(&socket.path.display().to_string(), timeout).await;
        if here.is_ok_and(|here| (here.pool, here.server) == (there.pool, there.server)) {
            return Some(socket.path);
        }
    }
    None
}

fn listen_in(folder: &Path, address: &str, identity: &str) -> io::Result<(UnixListener, PathBuf)> {
    let path = folder.join(format!("{address}{MARK}{}", identity.get(..DIGITS).unwrap_or(identity)));
    if address.contains('/') || path.as_os_str().len() > PATH_MAX {
        return Err(io::Error::new(ErrorKind::InvalidInput, "the address is too long for a socket's name"));
    }
    make(folder)?;
    let lock =
        OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(folder.join(LOCK))?;
    flock(&lock, FlockOperation::LockExclusive)?;
    for socket in sockets_in(folder).iter().filter(|s| s.path == path || is_dead(&s.path)) {
        fs::remove_file(&socket.path)?;
    }
    let listener = UnixListener::bind(&path)?;
    fs::set_permissions(&path, Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    Ok((listener, path))
}

fn make(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(e),
        Err(_) | Ok(()) => {}
    }
    let about = fs::symlink_metadata(folder)?;
    if !about.is_dir() || !is_ours(&about) {
        return Err(io::Error::new(ErrorKind::PermissionDenied, "the folder is another user's"));
    }
    if about.mode() & 0o777 != 0o700 {
        fs::set_permissions(folder, Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// Whether it is root's, or the user's that this process runs as.
fn is_ours(about: &Metadata) -> bool {
    about.uid() == 0 || about.uid() == rustix::process::geteuid().as_raw()
}

fn sockets_in(folder: &Path) -> Vec<LocalSocket> {
    let safe = |m: &Metadata| m.is_dir() && is_ours(m) && m.mode() & 0o077 == 0;
    if !fs::symlink_metadata(folder).is_ok_and(|m| safe(&m)) {
        return Vec::new();
    }
    let found = fs::read_dir(folder).into_iter().flatten().flatten().filter_map(|entry| {
        let about = entry.metadata().ok().filter(|m| m.file_type().is_socket() && is_ours(m))?;
        let name = entry.file_name().into_string().ok().filter(|_| about.mode() & 0o077 == 0)?;
        let (address, _) = name.rsplit_once(MARK)?;
        Some(LocalSocket { address: address.to_owned(), path: entry.path() })
    });
    let mut found: Vec<LocalSocket> = found.collect();
    found.sort();
    found
}

/// Whether nobody listens there any more. Who is slow to listen is alive.
fn is_dead(path: &Path) -> bool {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let refused = SocketAddrUnix::new(path).and_then(|address| {
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        connect(&socket, &address)
    });
    refused == Err(Errno::CONNREFUSED)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("mortar-run-{name}-{}", std::process::id()));
        let _old = fs::remove_dir_all(&dir);
        dir
    }

    fn addresses(folder: &Path) -> Vec<String> {
        sockets_in(folder).into_iter().map(|s| s.address).collect()
    }

    #[test]
    fn sockets_are_found_by_address_and_dead_ones_go() {
        let dir = scratch("found");
        let (first, path) = listen_in(&dir, "127.0.0.11:24240", &"ab".repeat(16)).unwrap();
        assert_eq!(path.file_name().unwrap(), "127.0.0.11:24240~abababababab");
        let modes = [&dir, &path].map(|p| fs::metadata(p).unwrap().mode() & 0o777);
        assert_eq!(modes, [0o700, 0o600]);
        // In another network namespace.
        let (second, _) = listen_in(&dir, "127.0.0.11:24240", &"cd".repeat(16)).unwrap();
        let (_third, _) = listen_in(&dir, "[fd00::1]:9", &"ef".repeat(16)).unwrap();
        assert_eq!(addresses(&dir), ["127.0.0.11:24240", "127.0.0.11:24240", "[fd00::1]:9"]);
        // It ended without a word, and is started anew; another one does not come back.
        drop((first, second));
        assert_eq!(addresses(&dir).len(), 3);
        let (_again, _) = listen_in(&dir, "127.0.0.11:24240", &"ab".repeat(16)).unwrap();
        assert_eq!(addresses(&dir), ["127.0.0.11:24240", "[fd00::1]:9"]);
        let long = listen_in(&dir, &format!("{}:24240", "h".repeat(100)), "ab").unwrap_err();
        assert!(long.to_string().contains("too long"), "{long}");
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn what_others_could_have_made_is_not_used() {
        let dir = scratch("others");
        let (_listener, path) = listen_in(&dir, "h:1", "ab").unwrap();
        let mode = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        for (of, open, closed) in [(&dir, 0o755, 0o700), (&path, 0o666, 0o600)] {
            mode(of, open);
            assert_eq!(addresses(&dir), [""; 0]);
            mode(of, closed);
            assert_eq!(addresses(&dir), ["h:1"]);
        }
        mode(&dir, 0o777);
        let _second = listen_in(&dir, "h:2", "ab").unwrap();
        assert_eq!(fs::metadata(&dir).unwrap().mode() & 0o777, 0o700, "it is closed");
        fs::remove_dir_all(&dir).unwrap();
        fs::write(&dir, "").unwrap();
        assert!(listen_in(&dir, "h:1", "ab").is_err());
        fs::remove_file(&dir).unwrap();
    }
}

//! Telling the manager of services that we serve, where it waits for that (sd_notify).

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The variable by which a manager says where it listens.
const SOCKET: &str = "NOTIFY_SOCKET";

/// Says that the service is ready. Without a manager that waits nothing happens.
pub fn notify_ready() {
    let Some(socket) = std::env::var_os(SOCKET).and_then(|s| s.into_string().ok()) else { return };
    if let Err(e) = send(&socket, "READY=1") {
        tracing::warn!("tell {socket} that the service is ready: {e}");
    }
}

fn send(socket: &str, state: &str) -> io::Result<()> {
    let address = match socket.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manager_hears_it_by_both_kinds_of_names() {
        let path = std::env::temp_dir().join(format!("mortar-notify-{}", std::process::id()));
        let name = path.to_str().unwrap();
        let abstracted = SocketAddr::from_abstract_name(name).unwrap();
        let hidden = UnixDatagram::bind_addr(&abstracted).unwrap();
        let plain = UnixDatagram::bind(&path).unwrap();
        for (socket, listener) in [(name.to_owned(), &plain), (format!("@{name}"), &hidden)] {
            send(&socket, "READY=1").unwrap();
            let mut heard = [0; 32];
            let length = listener.recv(&mut heard).unwrap();
            assert_eq!(&heard[..length], b"READY=1");
        }
        std::fs::remove_file(&path).unwrap();
        assert!(send("/no/such/socket", "READY=1").is_err());
    }
}

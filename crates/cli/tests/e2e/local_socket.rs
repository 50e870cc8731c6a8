//! The local socket: commands of root on a server need neither its address nor a key.

use crate::harness::Pool;
use rustix::process::Uid;
use std::fs::{self, Permissions};
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;

#[test]
fn commands_on_a_server_need_no_address() {
    let mut pool = Pool::in_network(2);
    for i in [0, 1] {
        let status: serde_json::Value =
            serde_json::from_str(&pool.cli_on(i, "peer status --json").ok()).unwrap();
        assert_eq!(status["me"], i + 1);
    }
    let socket = pool.servers[0].state().join("socket");
    let about = fs::symlink_metadata(&socket).unwrap();
    assert!(about.file_type().is_socket());
    assert_eq!(about.permissions().mode() & 0o777, 0o600);
    pool.cli_at(socket.to_str().unwrap(), "pool list").ok();
    // It is made anew, also over what a kill left.
    pool.kill(0);
    assert!(socket.exists());
    let refused = pool.cli_at(socket.to_str().unwrap(), "pool list").refused();
    assert!(refused.contains("connection refused"), "{refused}");
    pool.start(0);
    pool.cli_on(0, "pool list").ok();
    let other = pool.cli_on(0, "--server 10.60.99.11 volume list").refused();
    assert!(other.contains("10.60.99.11:24240"), "a server that is named is asked: {other}");
}

/// What comes of a connection that another user makes: how much the server sends before it ends it.
fn as_nobody(socket: &Path) -> usize {
    let socket = socket.to_owned();
    let thread = std::thread::spawn(move || {
        let nobody = Uid::from_raw(65534);
        rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
        let mut stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(std::time::Duration::from_secs(5))).unwrap();
        stream.read(&mut [0; 100]).unwrap()
    });
    thread.join().unwrap()
}

#[test]
fn nobody_but_root_uses_the_local_socket() {
    let pool = Pool::new(1);
    let state = pool.servers[0].state();
    let socket = state.join("socket");
    // As if somebody had opened all that is in the way.
    for (path, mode) in [(&pool.dir, 0o755), (&state, 0o755), (&socket, 0o666)] {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }
    assert_eq!(as_nobody(&socket), 0, "it is ended without a word");
    pool.cli_at(socket.to_str().unwrap(), "pool list").ok();
}

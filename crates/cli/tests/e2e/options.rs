//! Options that change what a mount may do, while it is mounted.

use crate::harness::{Pool, eventually};
use rustix::io::Errno;
use std::fs;
use std::io;

fn errno<T>(result: io::Result<T>) -> Option<i32> {
    result.err().and_then(|e| e.raw_os_error())
}

#[test]
fn a_volume_is_made_read_only_and_full_while_it_is_mounted() {
    let pool = Pool::new(1);
    pool.volume("v", 1, &[(0, "b")]);
    let mount = pool.mount("v");
    fs::write(mount.path("f"), "before").unwrap();

    pool.ok("volume set v features.read-only on");
    eventually("changes are refused", || {
        (errno(fs::write(mount.path("g"), "x")) == Some(Errno::ROFS.raw_os_error())).then_some(())
    });
    assert_eq!(fs::read(mount.path("f")).unwrap(), b"before");
    pool.ok("volume reset v features.read-only");
    eventually("changes go on", || fs::write(mount.path("g"), "x").ok());

    pool.ok("volume set v cluster.min-free-disk 100%");
    eventually("new data is refused", || {
        (errno(fs::write(mount.path("f"), "more")) == Some(Errno::NOSPC.raw_os_error())).then_some(())
    });
    assert_eq!(errno(fs::create_dir(mount.path("d"))), Some(Errno::NOSPC.raw_os_error()));
    fs::remove_file(mount.path("g")).expect("what frees room is done");
    pool.ok("volume reset v cluster.min-free-disk");
    eventually("there is room", || fs::create_dir(mount.path("d")).ok());
    mount.end();
}

/// Who connects to a loopback address comes from 127.0.0.1.
#[test]
fn who_may_mount() {
    let pool = Pool::new(2);
    pool.volume("v", 2, &[(0, "b"), (1, "b")]);
    let mount = pool.mount("v");
    fs::write(mount.path("f"), "before").unwrap();
    let logged = |words: &str| pool.servers.iter().any(|s| s.log().contains(words));
    eventually("a mount is logged", || logged("has volume v mounted").then_some(()));

    pool.ok("volume set v auth.reject 127.0.0.1,10.0.0.0/8");
    eventually("a mount that is there is shut out", || {
        (errno(fs::metadata(mount.path("f"))) == Some(Errno::ACCESS.raw_os_error())).then_some(())
    });
    let dir = pool.dir.join("other");
    fs::create_dir(&dir).unwrap();
    // The server that is asked first may hear of it later than the one that has the root.
    eventually("another mount is refused by name", || {
        let mut second = crate::harness::mortar();
        second.args(["mount", &pool.source("v")]).arg(&dir);
        let why = crate::harness::run(second).refused();
        assert!(!why.contains("can be reached"), "{why}");
        (why.contains("auth.allow") && why.contains("127.0.0.1")).then_some(())
    });
    assert!(logged("refused: volume v may not be used from 127.0.0.1"));
    for none in ["127.0.0", "127.0.0.1/33"] {
        let why = pool.cli(&format!("volume set v auth.reject {none}")).refused();
        assert!(why.contains("addresses, networks and names of hosts between commas"), "{why}");
    }

    // As GlusterFS writes them.
    pool.ok("volume set v auth.reject 127.*");
    eventually("a mount is refused by a part of its address", || {
        let mut second = crate::harness::mortar();
        second.args(["mount", &pool.source("v")]).arg(&dir);
        crate::harness::run(second).refused().contains("auth.reject").then_some(())
    });

    // By the name of its host.
    pool.ok("volume set v auth.reject 10.0.0.0/8");
    eventually("it may", || fs::read(mount.path("f")).ok().filter(|b| b == b"before"));
    let why = pool.cli("volume set v auth.reject no-such-host.invalid").refused();
    assert!(why.contains("no-such-host.invalid") && why.contains("/etc/hosts"), "{why}");
    assert!(pool.ok("volume get v auth.reject").contains("10.0.0.0/8"));
    pool.ok("volume set v auth.reject LocalHost");
    eventually("a mount is shut out by name", || {
        (errno(fs::metadata(mount.path("f"))) == Some(Errno::ACCESS.raw_os_error())).then_some(())
    });
    let document = pool.dir.join("hosts.yaml");
    let exported = pool.ok("config export");
    fs::write(&document, exported.replace("LocalHost", "no-such-host.invalid")).unwrap();
    for how in ["--dry-run", "--yes"] {
        let why = pool.cli(&format!("config apply {how} {}", document.display())).refused();
        assert!(why.contains("no-such-host.invalid"), "{how}: {why}");
    }
    fs::write(&document, exported.replace("LocalHost", "10.0.0.9")).unwrap();
    pool.ok(&format!("config apply --yes {}", document.display()));
    eventually("it may again, by the document", || fs::read(mount.path("f")).ok());
    fs::write(&document, exported).unwrap();
    pool.ok(&format!("config apply --yes {}", document.display()));
    eventually("and not, by the document", || fs::read(mount.path("f")).is_err().then_some(()));

    pool.ok("volume set v auth.allow 192.168.0.0/16");
    pool.ok("volume reset v auth.reject");
    pool.ok("volume set v auth.allow 192.168.0.0/16,127.0.0.0/8");
    eventually("it may again", || fs::read(mount.path("f")).ok().filter(|b| b == b"before"));
    mount.end();
}

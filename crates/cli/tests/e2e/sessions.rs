//! Sessions: an operation is done once at most, and never after its client had an answer and went on.

use crate::frames::Frames;
use crate::harness::{Pool, eventually, eventually_within, files};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;
use wire::{Body, Errno, Op};

/// A pool, and a key with which single frames are sent.
fn pool() -> (Pool, PathBuf) {
    let pool = Pool::new(3);
    pool.volume("v", 2, &[(0, "b"), (1, "b")]);
    let key = pool.client_key("frames", "v", "");
    (pool, key)
}

/// A copy of a refused unlink comes late, on the connection that its client has given up: another's file stays.
#[test]
fn a_late_copy_of_a_refused_unlink_is_not_done() {
    let (pool, key) = pool();
    let mut client = Frames::with_key(&pool, "v", 71, &key);
    let unlink = client.call(1, client.unlink("f"));
    let mut first = client.connect();
    let mut second = client.connect_anew();
    assert_eq!(client.ask(&mut second, &unlink, &[]), Err(Errno::ENOENT));
    let other = Frames::with_key(&pool, "v", 72, &key);
    let mut theirs = Frames::with_key(&pool, "v", 72, &key).connect();
    other.ask(&mut theirs, &other.call(1, other.create("f")), &[]).unwrap();
    first.request(&unlink, &[]);
    let late = first.answer();
    let found = other.ask(&mut theirs, &other.call(0, other.lookup("f")), &[]);
    assert!(
        matches!(found, Ok(Body::Attr { .. })),
        "the late copy was answered {late:?}, the file is {found:?}"
    );
    assert_eq!(late, None, "the older connection has ended");
}

/// A copy waits within the server, for the end of another's grant, while its client goes on with a newer connection.
#[test]
fn a_copy_that_waits_in_the_server_is_not_done_after_its_connection() {
    let (pool, key) = pool();
    let mut other = Frames::with_key(&pool, "v", 72, &key);
    let mut theirs = other.connect();
    other.ask(&mut theirs, &other.call(1, other.create("f")), &[]).unwrap();
    let mut client = Frames::with_key(&pool, "v", 71, &key);
    let mut first = client.connect();
    // Alone, the other one is granted a quarter of a second: the unlink has to wait for its end.
    other.ask(&mut theirs, &other.call(0, other.lookup("f")), &[]).unwrap();
    first.request(&client.call(1, client.unlink("f")), &[]);
    let mut second = client.connect_anew();
    client.ask(&mut second, &client.call(0, client.lookup("f")), &[]).unwrap();
    let late = first.answer();
    let found = client.ask(&mut second, &client.call(0, client.lookup("f")), &[]);
    assert!(found.is_ok(), "the late copy was answered {late:?}, the file is {found:?}");
}

/// The connection on which a copy came closes before its client comes again: then no newer one names it.
#[test]
fn a_copy_that_waits_in_the_server_is_not_done_after_its_connection_closed() {
    let (pool, key) = pool();
    let mut other = Frames::with_key(&pool, "v", 72, &key);
    let mut theirs = other.connect();
    other.ask(&mut theirs, &other.call(1, other.create("f")), &[]).unwrap();
    let mut client = Frames::with_key(&pool, "v", 71, &key);
    let mut first = client.connect();
    other.ask(&mut theirs, &other.call(0, other.lookup("f")), &[]).unwrap();
    first.request(&client.call(1, client.unlink("f")), &[]);
    // The server sees its end long before the grant runs out: else the unlink is answered.
    first.end();
    let mut second = client.connect_anew();
    client.ask(&mut second, &client.call(0, client.lookup("f")), &[]).unwrap();
    thread::sleep(Duration::from_millis(500));
    let found = client.ask(&mut second, &client.call(0, client.lookup("f")), &[]);
    assert!(found.is_ok(), "the file is {found:?}");
}

/// A resent copy_file_range says what was copied, also at another primary.
#[test]
fn a_resent_copy_says_what_it_copied() {
    let (mut pool, key) = pool();
    let mut client = Frames::with_key(&pool, "v", 71, &key);
    let mut connection = client.connect();
    let mut make = |seq, name: &str| match client
        .ask(&mut connection, &client.call(seq, client.create(name)), &[])
        .unwrap()
    {
        Body::Attr { attr } => attr.fid,
        other => panic!("{other:?}"),
    };
    let from = make(1, "from");
    let to = make(2, "to");
    let write = Op::Write { fid: from, offset: 0, append: false, kill_suid: false };
    client.ask(&mut connection, &client.call(3, write), b"0123456789").unwrap();
    let copy = Op::CopyRange { from, from_offset: 4, to, to_offset: 0, len: 1 << 20 };
    let copied = Ok(Body::Offset { offset: 6 });
    assert_eq!(client.ask(&mut connection, &client.call(4, copy.clone()), &[]), copied);
    assert_eq!(client.ask(&mut connection, &client.call(4, copy.clone()), &[]), copied, "sent again");
    pool.kill(client.primary(&pool));
    client.await_another_primary(&pool, "v");
    let mut connection = client.connect();
    assert_eq!(client.ask(&mut connection, &client.call(4, copy), &[]), copied, "at another primary");
}

/// The primary dies; before one mount has told its successor what it holds open, the other removes and replaces that.
#[test]
fn a_file_that_is_open_outlives_its_name_over_a_failover() {
    let (mut pool, key) = pool();
    let (holder, remover) = (pool.mount("v"), pool.mount("v"));
    let names = ["unlinked", "replaced", "linked"];
    for name in names {
        fs::write(holder.path(name), name).unwrap();
    }
    fs::hard_link(holder.path("linked"), holder.path("link")).unwrap();
    let open = |name: &str| File::options().read(true).write(true).open(holder.path(name)).unwrap();
    let files = names.map(open);
    fs::write(remover.path("other"), "other").unwrap();
    holder.freeze();
    pool.kill(Frames::with_key(&pool, "v", 71, &key).primary(&pool));
    fs::remove_file(remover.path("unlinked")).unwrap();
    fs::rename(remover.path("other"), remover.path("replaced")).unwrap();
    fs::remove_file(remover.path("linked")).unwrap();
    fs::remove_file(remover.path("link")).unwrap();
    holder.thaw();
    for (file, name) in files.iter().zip(names) {
        file.write_all_at(b"+", name.len() as u64).unwrap_or_else(|e| panic!("write to {name}: {e}"));
        let mut all = vec![0; name.len() + 1];
        file.read_exact_at(&mut all, 0).unwrap();
        assert_eq!(all, format!("{name}+").into_bytes());
    }
    drop(files);
    holder.end();
    remover.end();
}

/// What lost its last name right after a failover takes no room for ever: nobody claims it, and it goes.
#[test]
fn what_nobody_claims_goes_some_time_after_a_failover() {
    const FILES: usize = 500;
    let (mut pool, key) = pool();
    let mount = pool.mount("v");
    for i in 0..FILES {
        fs::write(mount.path(&format!("f{i}")), "x").unwrap();
    }
    let (held, gone) = (mount.path("f0"), Frames::with_key(&pool, "v", 71, &key).primary(&pool));
    let open = File::open(&held).unwrap();
    pool.kill(gone);
    for i in 0..FILES {
        fs::remove_file(mount.path(&format!("f{i}"))).unwrap();
    }
    let orphans = pool.servers[1 - gone].path("b/.mortar/orphans");
    assert_eq!(files::names(&orphans).len(), FILES);
    // Made after the failover: the primary knows that nobody has it open.
    fs::write(mount.path("new"), "x").unwrap();
    fs::remove_file(mount.path("new")).unwrap();
    eventually("it goes at once", || (files::names(&orphans).len() == FILES).then_some(()));
    // They are kept for a minute.
    let go = || (files::names(&orphans).len() < FILES).then_some(());
    eventually_within(Duration::from_secs(90), "they go", go);
    eventually("the others follow", || (files::names(&orphans).len() == 1).then_some(()));
    let mut byte = [0];
    open.read_exact_at(&mut byte, 0).unwrap();
    drop(open);
    eventually("the last one goes when it is closed", || files::names(&orphans).is_empty().then_some(()));
    mount.end();
}

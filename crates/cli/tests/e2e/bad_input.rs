//! What is wrong is said in one line, and nothing is changed.

use crate::harness::{Pool, TEST_TIMEOUT, eventually, mortar, mortar_at_a_terminal, run, tool};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use wire::frame::{FrameHead, HEAD};

/// Something mounted for a test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(dir: PathBuf, mount: &str) -> Scratch {
        fs::create_dir(&dir).unwrap();
        tool(&format!("mount {mount} {}", dir.display()));
        Scratch(dir)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        tool(&format!("umount {}", self.0.display()));
    }
}

/// Runs a command that must be refused with these words and change nothing.
#[track_caller]
fn refused(pool: &Pool, line: &str, words: &[&str]) {
    let before = (pool.ok("config export"), pool.ok("pool list"));
    pool.cli(line).refused_with(words);
    let after = (pool.ok("config export"), pool.ok("pool list"));
    assert_eq!(before, after, "{line} changed the pool");
}

#[test]
fn bricks_that_cannot_be() {
    let pool = Pool::new(2);
    pool.volume("v", 1, &[(0, "b")]);
    let s = &pool.servers[0];
    let used = s.brick("b");
    refused(&pool, &format!("volume create w {used}"), &[&used, "in use by volume 'v'"]);
    refused(&pool, &format!("volume create w {used}/inside"), &["inside"]);
    let twice = s.brick("c");
    refused(&pool, &format!("volume create w {twice} {twice}"), &[&twice, "twice"]);
    let (one, two) = (s.brick("c"), s.brick("d"));
    refused(&pool, &format!("volume create w replica 2 {one} {two}"), &["one server", "--force"]);
    refused(&pool, &format!("volume create w replica 3 {one} {two}"), &["multiple of 3"]);
    refused(&pool, "volume create w nohost:/b", &["nohost", "peer probe"]);
    refused(&pool, "volume create w nothing", &["nothing", "HOST:/PATH"]);
    refused(&pool, &format!("volume create a/b {one}"), &["'a/b'", "letters"]);
    refused(&pool, &format!("volume create v {one}"), &["'v' exists"]);
    fs::create_dir(s.path("full")).unwrap();
    fs::write(s.path("full/file"), "x").unwrap();
    refused(&pool, &format!("volume create w {}", s.brick("full")), &["not empty", "--adopt"]);
    fs::write(s.path("file"), "x").unwrap();
    refused(&pool, &format!("volume create w {}", s.brick("file")), &["not a directory"]);
    refused(&pool, &format!("volume create w {}", s.brick("no/such/parent")), &["does not exist"]);
    refused(&pool, &format!("volume create w {}", s.brick("state/b")), &["the server's state folder"]);
    assert!(!s.path("c").exists() && !s.path("d").exists(), "a refused volume left a directory");
    // One that fails after others were made takes them back.
    refused(&pool, &format!("volume create w {one} {}", s.brick("file")), &["not a directory"]);
    assert!(!s.path("c/.mortar").exists());
    pool.ok(&format!("volume create w {one}"));
}

/// Each error names the brick on its server, whichever server is asked.
#[test]
fn bricks_of_another_server_that_cannot_be() {
    let pool = Pool::new(2);
    let (s, other) = (&pool.servers[0], &pool.servers[1]);
    fs::create_dir(other.path("full")).unwrap();
    fs::write(other.path("full/file"), "x").unwrap();
    fs::write(other.path("file"), "x").unwrap();
    let of = |bad: &str| {
        (format!("volume create w replica 2 {} {}", s.brick("b"), other.brick(bad)), other.brick(bad))
    };
    for (bad, words) in [
        ("full", ["is not empty", "give an empty or new directory"]),
        ("file", ["is not a directory", "give a directory"]),
        ("no/such/parent", ["does not exist", "create it first"]),
    ] {
        let (line, brick) = of(bad);
        refused(&pool, &line, &[&format!("brick {brick}: "), words[0], words[1]]);
    }
    refused(
        &pool,
        "volume create w [fd00::1]:/p",
        &["'[fd00::1]' is not in the pool", "mortar peer probe [fd00::1]"],
    );
    assert!(!s.path("b").exists(), "a refused volume left a directory");
    // A line that is two words for the harness is one here.
    let create = |path: &str| {
        let mut command = mortar();
        let brick = format!("{}:{path}", s.host);
        command.args(["--server", &s.address, "volume", "create", "w", &brick]);
        run(command)
    };
    let why = create("/tmp/a\nb").refused_with(&["not allowed", "control characters"]);
    assert_eq!(why.trim_end().lines().count(), 1, "{why:?}");
}

#[test]
fn file_systems_that_will_not_do() {
    let pool = Pool::new(1);
    let s = &pool.servers[0];
    let read_only = Scratch::new(s.path("ro"), "-t tmpfs -o ro none");
    refused(&pool, &format!("volume create v {}", s.brick("ro/b")), &["read-only"]);
    refused(&pool, &format!("volume create v {}", s.brick("ro")), &["read-only"]);
    drop(read_only);
    // These will do, but somebody should know.
    let memory = Scratch::new(s.path("memory"), "-t tmpfs none");
    let made = pool.ok(&format!("volume create m {}", s.brick("memory/b")));
    assert!(made.contains("note: brick") && made.contains("tmpfs"), "{made}");
    pool.ok("volume delete m --yes");
    drop(memory);
    let plain = Scratch::new(s.path("plain"), "-t ramfs none");
    refused(&pool, &format!("volume create v {}", s.brick("plain/b")), &["without", "ext4, XFS or btrfs"]);
    assert_eq!(fs::read_dir(&plain.0).unwrap().count(), 0, "something was left behind");
    drop(plain);
    match Path::new("/usr/sbin/mkfs.vfat").exists() {
        true => on_vfat(&pool),
        false => println!("SKIPPED: a brick on vfat (dosfstools is not installed); ramfs stands for it"),
    }
}

fn on_vfat(pool: &Pool) {
    let (s, image) = (&pool.servers[0], pool.dir.join("vfat.img"));
    tool(&format!("truncate -s 40M {}", image.display()));
    tool(&format!("/usr/sbin/mkfs.vfat {}", image.display()));
    let mounted =
        std::panic::catch_unwind(|| Scratch::new(s.path("vfat"), &format!("-o loop {}", image.display())));
    let Ok(_vfat) = mounted else {
        println!("SKIPPED: a brick on vfat (this kernel cannot mount it); ramfs stands for it");
        return;
    };
    refused(pool, &format!("volume create v {}", s.brick("vfat/b")), &["without", "ext4, XFS or btrfs"]);
}

#[test]
fn what_a_mount_does_not_do() {
    let pool = Pool::new(1);
    pool.volume("v", 1, &[(0, "b")]);
    let mount = pool.mount("v");
    let host = pool.servers[0].brick("").split(':').next().unwrap().to_owned();
    let inside = format!("{host}:{}", mount.path("brick").display());
    refused(&pool, &format!("volume create w {inside}"), &["not within a mounted volume"]);
    let unnamed = rustix::fs::open(mount.path(""), OFlags::TMPFILE | OFlags::RDWR, Mode::RUSR);
    assert_eq!(unnamed.unwrap_err(), Errno::OPNOTSUPP);

    let mut other = mortar();
    other.args(["mount", &pool.source("none")]).arg(&pool.dir);
    let why = run(other).refused();
    assert_eq!(why.matches("no such volume").count(), 1, "{why}");
    mount.end();
}

#[test]
fn a_benchmark_that_is_interrupted_leaves_nothing() {
    let pool = Pool::new(1);
    let dir = pool.dir.join("bench");
    fs::create_dir(&dir).unwrap();
    let left = || fs::read_dir(&dir).unwrap().count();
    let begin = |mut command: Command| {
        command.args(["bench", "--phase", "create", "--count", "1000000"]).arg(&dir);
        let bench = command.stderr(Stdio::piped()).spawn().unwrap();
        eventually("it works", || (left() == 1).then_some(()));
        bench
    };
    for signal in [Signal::INT, Signal::HUP] {
        let mut bench = begin(mortar_at_a_terminal());
        kill_process(Pid::from_child(&bench), signal).unwrap();
        assert_eq!(bench.wait().unwrap().code(), Some(1), "{signal:?}");
        assert_eq!(left(), 0);
        let mut said = String::new();
        bench.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(said.contains("is no Mortar mount") && said.contains("interrupted"), "{said}");
    }
    // Whoever wants it to go on without a terminal says so.
    let mut command = Command::new("nohup");
    command.arg(mortar().get_program());
    let mut bench = begin(command);
    kill_process(Pid::from_child(&bench), Signal::HUP).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!(bench.try_wait().unwrap().is_none(), "it ended");
    kill_process(Pid::from_child(&bench), Signal::TERM).unwrap();
    assert_eq!((bench.wait().unwrap().code(), left()), (Some(1), 0));
}

#[test]
fn peers_that_cannot_be() {
    let mut pool = Pool::apart(4);
    let of = |pool: &Pool, i: usize| format!("peer probe {}:{}", pool.servers[i].host, pool.port);
    // Servers 2 and 3 are a pool of their own, server 4 is not running.
    let (two, join) = (pool.servers[1].address.clone(), of(&pool, 2));
    pool.cli_at(&two, &join).ok();
    pool.stop(3);
    refused(&pool, &of(&pool, 1), &["another pool", &pool.servers[1].host]);
    refused(&pool, &of(&pool, 3), &["connection refused", &pool.servers[3].address]);
    let code = "\"code\":\"connection-refused\"";
    let probed = pool.cli(&format!("{} --json", of(&pool, 3)));
    assert!(probed.code == Some(1) && probed.stderr.contains(code), "{}", probed.stderr);
    refused(&pool, "peer probe no-such-host.invalid", &["no-such-host.invalid"]);
    refused(&pool, "peer detach nobody --yes", &["nobody", "not in the pool"]);
    let again = pool.cli(&of(&pool, 0)).ok();
    assert!(again.contains("already"), "{again}");
    let mut command = crate::harness::mortar();
    command.args(["--server", &pool.servers[3].address, "pool", "list"]);
    run(command).refused_with(&[&pool.servers[3].address, "mortar server", "--server"]);
    let mut command = crate::harness::mortar();
    command.args(["--server", &pool.servers[3].address, "pool", "list", "--json"]);
    let asked = run(command);
    assert!(asked.code == Some(1) && asked.stderr.contains(code), "{}", asked.stderr);
    // After it was let go there, it may come here.
    pool.cli_at(&two, &format!("peer detach {} --yes", pool.servers[2].host)).ok();
    pool.ok(&of(&pool, 2));
}

/// One try of a command, which the test passes on to the server frame by frame.
struct Try {
    command: UnixStream,
    server: UnixStream,
}

impl Try {
    /// The handshake of a connection that a command has made to a socket of the test.
    fn begin(command: UnixStream, socket: &str) -> Try {
        let server = UnixStream::connect(socket).unwrap();
        for end in [&command, &server] {
            end.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        }
        pass_frame(&command, &server);
        pass_frame(&server, &command);
        Try { command, server }
    }

    /// The request and its answer.
    fn finish(self) {
        pass_frame(&self.command, &self.server);
        pass_frame(&self.server, &self.command);
    }
}

fn pass_frame(mut from: &UnixStream, mut to: &UnixStream) {
    let mut head = [0; HEAD];
    from.read_exact(&mut head).unwrap();
    let FrameHead { body_len, payload_len, .. } = FrameHead::decode(&head).unwrap();
    let mut rest = vec![0; body_len + payload_len];
    from.read_exact(&mut rest).unwrap();
    to.write_all(&[&head[..], &rest].concat()).unwrap();
}

/// One that is just being started is waited for. The test stands between the command and the server that it asks: so it sees that
/// the first try has failed and that there is another one, which it holds up until the server that is probed runs.
#[test]
fn a_server_that_starts_while_it_is_probed() {
    let mut pool = Pool::apart(2);
    pool.stop(1);
    let (between, socket) = (pool.dir.join("between"), pool.servers[0].socket());
    let commands = UnixListener::bind(&between).unwrap();
    commands.set_nonblocking(true).unwrap();
    let address = pool.servers[1].address.clone();
    let mut probe = mortar();
    probe.arg("--server").arg(&between).args(["peer", "probe", &address]);
    let mut probe = probe.spawn().unwrap();
    let mut next = |what: &str| {
        let command = eventually(what, || {
            assert_eq!(probe.try_wait().unwrap(), None, "{what}");
            commands.accept().ok()
        });
        Try::begin(command.0, &socket)
    };
    next("it asks").finish();
    let again = next("it asks again");
    pool.start(1);
    again.finish();
    assert!(probe.wait().unwrap().success());
    assert_eq!(pool.json("pool list").as_array().unwrap().len(), 2);
}

#[test]
fn documents_that_say_nothing() {
    let pool = Pool::new(1);
    let file = pool.dir.join("empty.toml");
    for text in ["", "# nothing\n"] {
        fs::write(&file, text).unwrap();
        refused(
            &pool,
            &format!("config apply {}", file.display()),
            &["empty.toml", "is empty", "config export"],
        );
    }
}

#[test]
fn options_that_cannot_be() {
    let pool = Pool::new(1);
    pool.volume("v", 1, &[(0, "b")]);
    refused(&pool, "volume set v network.ping-timeuot 3s", &["network.ping-timeuot", "did you mean"]);
    refused(&pool, "volume set v network.ping-timeout soon", &["'soon'", "a duration from 1s to 60s"]);
    refused(&pool, "volume set v storage.fd-limit 512 network.ping-timeout soon", &["'soon'"]);
    refused(&pool, "volume get v no.such", &["no.such"]);
    // What is very long is not repeated whole.
    let long = "x".repeat(100_000);
    let lines = [format!("network.ping-timeout {long}"), format!("user.a {long}"), format!("{long} 1")];
    for words in lines {
        let said = pool.cli(&format!("volume set v {words}")).refused_with(&["xxx...'"]);
        assert!(said.len() < 400, "{} bytes", said.len());
    }
    let mut command = mortar();
    command.args(["mount", &pool.source("v")]).arg(&pool.dir).args(["-o", &format!("soft={long}")]);
    let said = run(command);
    assert!(said.code == Some(2) && said.stderr.len() < 400, "{} bytes", said.stderr.len());
    refused(&pool, "volume start nothing", &["nothing", "volume list"]);
    refused(&pool, "volume delete v --yes", &["stop it first"]);
    refused(&pool, "config apply /no/such/file", &["/no/such/file"]);
}

#[test]
fn servers_that_cannot_start() {
    let mut pool = Pool::new(1);
    let address = pool.servers[0].address.clone();
    let state = pool.dir.join("other");
    let start = |state: &Path, address: &str| {
        let mut command = crate::harness::mortar();
        command.args(["server", "--address", address, "--state"]).arg(state);
        run(command)
    };
    start(&state, &address).refused_with(&[&address, "port is in use"]);
    start(&state, "192.0.2.7").refused_with(&["192.0.2.7:24240", "does not have that address"]);
    start(&pool.servers[0].state(), &pool.spare_address()).refused_with(&["another server uses it"]);
    assert_eq!(start(&state, "host:0").code, Some(2));
    start(Path::new("/proc/no"), &pool.spare_address()).refused_with(&["/proc/no"]);
    pool.stop(0);
}

//! Keys that some users may use: each with his own rights, which the server checks, and nobody else.

use crate::harness::{Mounted, Output, Pool, eventually, mortar, own_mounts, run};
use client::{Client, Key, NewEntry, Object, Options, Payload, Span};
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use wire::op::Node;
use wire::{Attr, Errno, Name};

const ANN: u32 = 1000;
const BOB: u32 = 1001;
/// Of Ann's, beside her first group 100.
const TEAM: u32 = 27;
/// On no list.
const EVE: u32 = 1002;

/// Runs a shell on this machine as somebody else with these groups; what it said if it went well, else its complaint.
fn shell(uid: u32, groups: &str, line: &str) -> Result<String, String> {
    let mut command = Command::new("setpriv");
    let first = groups.split(',').next().unwrap();
    let words = [format!("--reuid={uid}"), format!("--regid={first}"), format!("--groups={groups}")];
    command.args(words).args(["sh", "-c", line]);
    let done = run(command);
    if done.code == Some(0) { Ok(done.stdout) } else { Err(done.stderr) }
}

fn denied(result: Result<String, String>) {
    let why = result.expect_err("it is refused");
    assert!(why.contains("ermission denied"), "{why}");
}

fn file(m: &Mounted, name: &str, mode: u32, owner: (u32, u32)) {
    let path = m.path(name);
    if name.ends_with('/') {
        fs::create_dir(&path).unwrap();
    } else {
        fs::write(&path, name).unwrap();
    }
    chown(&path, Some(owner.0), Some(owner.1)).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
}

fn volume(pool: &Pool) -> Mounted {
    let m = pool.mount("v");
    fs::set_permissions(m.path(""), Permissions::from_mode(0o755)).unwrap();
    for (name, mode, owner) in [
        ("open/", 0o777, (0, 0)),
        ("ann/", 0o700, (ANN, 100)),
        ("bob/", 0o700, (BOB, 101)),
        ("team/", 0o770, (0, TEAM)),
        ("open/all", 0o666, (0, 0)),
        ("open/roots", 0o600, (0, 0)),
        ("ann/mine", 0o600, (ANN, 100)),
        ("bob/mine", 0o600, (BOB, 101)),
        ("team/ours", 0o660, (0, TEAM)),
    ] {
        file(&m, name, mode, owner);
    }
    m
}

fn key(pool: &Pool) -> std::path::PathBuf {
    pool.client_key("web", "v", &format!("--users {ANN}:100+{TEAM},{BOB}:101"))
}

fn owner(path: &Path) -> (u32, u32) {
    let meta = fs::symlink_metadata(path).unwrap();
    (meta.uid(), meta.gid())
}

#[test]
fn users_of_a_list_have_their_own_rights_and_others_none() {
    let mut pool = Pool::new(3);
    pool.volume("v", 2, &[(0, "b"), (1, "b")]);
    let all = volume(&pool);
    let m = pool.mount_key("v", &key(&pool));
    let at = |name: &str| m.path(name).display().to_string();
    let ann = |line: &str| shell(ANN, "100,27", line);
    let bob = |line: &str| shell(BOB, "101", line);
    // Each in his own folder, and not in the other's.
    assert_eq!(ann(&format!("cat {}", at("ann/mine"))).unwrap(), "ann/mine");
    assert_eq!(bob(&format!("cat {}", at("bob/mine"))).unwrap(), "bob/mine");
    denied(ann(&format!("cat {}", at("bob/mine"))));
    denied(bob(&format!("ls {}", at("ann"))));
    denied(bob(&format!("rm -f {}", at("ann/mine"))));
    denied(ann(&format!("cat {}", at("open/roots"))));
    // What they make is theirs.
    ann(&format!("echo a > {} && mkdir {}", at("open/of-ann"), at("ann/dir"))).unwrap();
    bob(&format!("echo b > {} && echo more >> {}", at("open/of-bob"), at("open/of-bob"))).unwrap();
    assert_eq!(owner(&all.path("open/of-ann")), (ANN, 100));
    assert_eq!(owner(&all.path("open/of-bob")), (BOB, 101));
    assert_eq!(fs::read(all.path("open/of-bob")).unwrap(), b"b\nmore\n");
    denied(bob(&format!("echo x >> {}", at("open/of-ann"))));
    // A group that stands on the list counts, and as the first one too; one that is this machine's word only does not.
    ann(&format!("echo t >> {}", at("team/ours"))).unwrap();
    shell(ANN, "27", &format!("echo t > {}", at("team/new"))).unwrap();
    assert_eq!(owner(&all.path("team/new")), (ANN, TEAM));
    denied(bob(&format!("cat {}", at("team/ours"))));
    denied(shell(BOB, "101,27", &format!("cat {}", at("team/ours"))));
    shell(BOB, "102", &format!("echo x > {}", at("open/of-another-group"))).unwrap();
    assert_eq!(owner(&all.path("open/of-another-group")), (BOB, 101));
    // Who is not on the list, root of this machine too.
    for line in [
        format!("cat {}", at("open/all")),
        format!("echo x > {}", at("open/all")),
        format!("touch {}", at("open/new")),
    ] {
        denied(shell(EVE, "100,27", &line));
        denied(shell(0, "0", &line));
    }
    assert!(fs::read(m.path("ann/mine")).is_err());
    assert!(chown(m.path("open/all"), Some(ANN), None).is_err());
    // What goes through an open file is of whoever opened it, and what the kernel writes back from its pages too.
    let script = format!(
        "import os,sys; os.setgroups([]); os.setegid(100); os.seteuid({ANN}); f=os.open(sys.argv[1],os.O_RDWR)
os.seteuid(0); os.seteuid({EVE}); sys.stdout.write(os.read(f,99).decode()); os.write(f,b'x')"
    );
    let mut handed_on = Command::new("python3");
    handed_on.args(["-c", &script, &at("open/all")]);
    let done = run(handed_on);
    assert_eq!((done.code, done.stdout.as_str()), (Some(0), "open/all"), "{}", done.stderr);
    assert_eq!(fs::read(all.path("open/all")).unwrap(), b"open/allx");
    let map = "import mmap,sys; f=open(sys.argv[1],'r+b'); m=mmap.mmap(f.fileno(),0); m[0:4]=b'MMAP'; m.flush(); m.close()";
    ann(&format!("python3 -c \"{map}\" {}", at("ann/mine"))).unwrap();
    assert_eq!(fs::read(all.path("ann/mine")).unwrap(), b"MMAPmine");
    // A failover: the new primary is told what is open, for nobody.
    let mut held = Command::new("setpriv");
    held.args([&format!("--reuid={ANN}"), "--regid=100", "--groups=100,27", "sh", "-c"]);
    let mut held = held
        .arg(format!("exec 9>> {0}; rm {0}; read go; echo after >&9 && echo done", at("ann/mine")))
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    eventually("it is removed", || (!all.path("ann/mine").exists()).then_some(()));
    all.end();
    pool.kill(0);
    std::io::Write::write_all(held.stdin.as_mut().unwrap(), b"go\n").unwrap();
    let said = held.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&said.stdout), "done\n");
    // The size of the volume is nobody's.
    rustix::fs::statvfs(m.path("")).unwrap();
    m.end();
}

/// A folder beneath another one that only some of them may search is mounted all the same.
#[test]
fn a_folder_is_mounted_that_one_of_the_list_may_find() {
    let pool = Pool::new(1);
    pool.volume("v", 1, &[(0, "b")]);
    let all = volume(&pool);
    file(&all, "bob/deep/", 0o700, (BOB, 101));
    file(&all, "open/closed/", 0o700, (EVE, 100));
    file(&all, "open/closed/deep/", 0o777, (BOB, 101));
    let key = key(&pool);
    let m = pool.mount_key("v/bob/deep", &key);
    let line = format!("echo b > {0} && cat {0}", m.path("new").display());
    assert_eq!(shell(BOB, "101", &line).unwrap(), "b\n");
    denied(shell(ANN, "100", &line));
    m.end();
    let mut closed = mortar();
    let option = format!("key={}", key.display());
    closed.args(["mount", &pool.source("v/open/closed/deep")]).arg(&pool.dir).args(["-o", &option]);
    run(closed).refused_with(&["open/closed/deep", "ermission denied"]);
    all.end();
}

#[test]
fn a_list_is_shown_and_what_cannot_be_on_one_refused() {
    let pool = Pool::new(1);
    pool.volume("v", 1, &[(0, "b")]);
    key(&pool);
    let keys = pool.json("client list");
    let line = keys["keys"].as_array().unwrap().iter().find(|k| k["name"] == "web").unwrap().clone();
    assert_eq!(
        line["users"],
        serde_json::json!([{"uid": ANN, "gid": 100, "groups": [TEAM]}, {"uid": BOB, "gid": 101}])
    );
    assert!(pool.ok("client list").contains("1000,1001"));
    pool.client_key("named", "v", "--users nobody");
    let keys = pool.json("client list");
    let line = keys["keys"].as_array().unwrap().iter().find(|k| k["name"] == "named").unwrap().clone();
    assert_eq!(line["users"][0]["uid"], 65534);
    pool.cli("client add x --volume v --users root").refused_with(&["user 0", "whom permissions bind"]);
    pool.cli("client add x --volume v --users 5:5,5:6").refused_with(&["user 5"]);
    pool.cli("client add x --volume v --users nobody-of-that-name").refused_with(&["knows no user"]);
    assert_eq!(pool.cli("client add x --volume v --users 5").code, Some(2));
    assert_eq!(pool.cli("client add x --volume v --users 5:5 --squash 5:5").code, Some(2));
}

/// Runs a command on a machine that knows Ann by this number, and in these groups beside her first one.
fn where_ann_is(pool: &Pool, uid: u32, groups: &[u32], line: &str) -> Output {
    let known = pool.dir.join("known");
    fs::create_dir_all(&known).unwrap();
    let groups: String = groups.iter().map(|gid| format!("group{gid}:x:{gid}:mortar-ann\n")).collect();
    fs::write(known.join("passwd"), format!("root:x:0:0::/:\nmortar-ann:x:{uid}:100::/:\n")).unwrap();
    fs::write(known.join("group"), format!("root:x:0:\nusers:x:100:\n{groups}")).unwrap();
    let mut command = own_mounts();
    let knows = "mount --bind $0/passwd /etc/passwd && mount --bind $0/group /etc/group && exec \"$@\"";
    command.args(["sh", "-c", knows]).arg(&known).arg(mortar().get_program());
    command.args(["--server", &pool.servers[0].address]).args(line.split(' '));
    run(command)
}

/// The users of the newest key of a name, as the pool lists them.
fn listed(pool: &Pool, name: &str) -> serde_json::Value {
    let keys = pool.json("client list");
    keys["keys"].as_array().unwrap().iter().rfind(|k| k["name"] == name).unwrap()["users"].clone()
}

#[test]
fn a_key_that_is_made_anew_has_the_groups_of_now() {
    let pool = Pool::new(1);
    pool.volume("v", 1, &[(0, "b")]);
    volume(&pool).end();
    let file = pool.dir.join("web.key");
    let line = |line: &str| format!("client {line} --out {}", file.display());
    let add = format!("add web --volume v --users mortar-ann,{BOB}:101+{TEAM}");
    where_ann_is(&pool, ANN, &[TEAM], &line(&add)).ok();
    let m = pool.mount_key("v", &file);
    let read = format!("cat {}", m.path("team/ours").display());
    shell(ANN, "100,27", &read).unwrap();

    // She has left the team. Bob is known by his numbers.
    where_ann_is(&pool, ANN, &[], &line("rotate web --after 0s")).ok();
    eventually("she reads it no more", || shell(ANN, "100,27", &read).err());
    denied(shell(ANN, "100,27", &read));
    shell(BOB, "101,27", &read).unwrap();
    let now = serde_json::json!([
        {"uid": ANN, "gid": 100, "name": "mortar-ann"},
        {"uid": BOB, "gid": 101, "groups": [TEAM]}
    ]);
    assert_eq!(listed(&pool, "web"), now);

    let rotate = line("rotate web --after 0s");
    pool.cli(&rotate).refused_with(&["knows no user mortar-ann", "--keep-groups"]);
    where_ann_is(&pool, EVE, &[], &rotate).refused_with(&["1002", "1000", "client add", "--keep-groups"]);
    where_ann_is(&pool, ANN, &[TEAM], &line("rotate web --after 0s --keep-groups")).ok();
    assert_eq!(listed(&pool, "web"), now, "nobody is looked up");
    where_ann_is(&pool, ANN, &[TEAM], &rotate).ok();
    eventually("she is in the team again", || shell(ANN, "100,27", &read).ok());
    m.end();
}

fn name(name: &str) -> Name {
    Name::new(name.as_bytes()).unwrap()
}

/// A client that checks nothing and says whatever it likes of who asks.
#[test]
fn a_client_that_lies_gets_no_further_than_its_list() {
    let pool = Pool::new(1);
    pool.volume("v", 1, &[(0, "b")]);
    let all = volume(&pool);
    let connect = |key| {
        let options = Options { key: Some(Key::File(key)), ..Options::default() };
        let options = Options { soft: Some(Duration::from_secs(10)), ..options };
        Client::connect(std::slice::from_ref(&pool.servers[0].address), "v", options).unwrap()
    };
    let trusted = connect(pool.client_key("all", "v", ""));
    let client = connect(key(&pool));
    assert_eq!(client.users(), Some(&[ANN, BOB][..]));
    let find = |path: &str| -> Attr {
        let root = trusted.getattr(trusted.root()).unwrap();
        path.split('/').fold(root, |at, part| trusted.lookup(Object::from(&at), &name(part)).unwrap())
    };
    let object = |path: &str| Object::from(&find(path));
    let read = |object| client.read(object, 0, 100, &mut Payload::new()).map(drop);
    let at = Span { offset: 0, append: false, kill_suid: false };
    let new = |what: &str, uid, gid| NewEntry {
        name: name(what),
        node: Node::File,
        mode: 0o666,
        umask: 0,
        uid,
        gid,
    };
    for uid in [0, EVE, u32::MAX] {
        client::user::act_as(uid);
        assert_eq!(read(object("open/all")), Err(Errno::EACCES), "{uid}");
        assert_eq!(client.getattr(object("open/all")).err(), Some(Errno::EACCES), "{uid}");
        assert_eq!(client.write(object("open/all"), at, b"x").err(), Some(Errno::EACCES), "{uid}");
        assert_eq!(client.create(object("open"), new("x", uid, 0)).err(), Some(Errno::EACCES), "{uid}");
    }
    client::user::act_as(BOB);
    read(object("bob/mine")).unwrap();
    for path in ["ann/mine", "team/ours", "open/roots"] {
        assert_eq!(read(object(path)), Err(Errno::EACCES), "{path}");
    }
    // Owner and group of what is made are not the client's word.
    let made = client.create(object("open"), new("x", 0, 0)).unwrap();
    assert_eq!((made.uid, made.gid), (BOB, 101));
    let made = client.create(object("open"), new("y", ANN, TEAM)).unwrap();
    assert_eq!((made.uid, made.gid), (BOB, 101));
    client::user::act_as(ANN);
    read(object("team/ours")).unwrap();
    let made = client.create(object("open"), new("z", 0, TEAM)).unwrap();
    assert_eq!((made.uid, made.gid), (ANN, TEAM));
    drop((client, trusted));
    all.end();
}

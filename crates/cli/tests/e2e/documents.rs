//! One document makes a whole pool: its servers, volumes and keys of clients.

use crate::harness::Pool;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

fn write(file: &Path, pool: &Pool, fingerprint: &str, clients: &str) {
    let mut text = "format = 1\n".to_owned();
    for (n, server) in pool.servers.iter().enumerate() {
        let line = if n == 2 { fingerprint } else { "" };
        text += &format!("[server.\"{}\"]\naddress = \"{}\"\n{line}\n", server.host, server.address);
    }
    let bricks: Vec<String> = pool.servers.iter().map(|s| format!("\"{}\"", s.brick("b"))).collect();
    text += "[volume.v]\nreplica = 3\nstatus = \"started\"\n";
    text += &format!("bricks = [{}]\n{clients}", bricks.join(", "));
    fs::write(file, text).unwrap();
}

const CLIENTS: &str = "[client.web]\nvolume = \"v\"\nread_only = true\n\
                       [client.one]\nvolume = \"v\"\nsquash = \"1000:1000\"\n";

/// The plan is shown, and then this is said.
#[track_caller]
fn refused_after_plan(pool: &Pool, line: &str, words: &[&str]) {
    let output = pool.cli(line);
    assert!(output.code == Some(1) && output.stdout.starts_with("take server "), "{output:?}");
    let why = &output.stderr;
    assert!(words.iter().all(|word| why.contains(word)), "{why}");
    assert_eq!(why.trim_end().lines().count(), 1, "{why}");
}

/// Servers on this machine and on another one, a volume on all of them, keys with limits.
#[test]
fn a_document_makes_a_pool_with_its_keys() {
    let mut pool = Pool::new(1);
    let (near, far) = (pool.one_more(), pool.one_more());
    pool.servers[far].elsewhere = true;
    pool.start(near);
    pool.try_start_with(far, &["--invite"]).unwrap();
    let log = pool.servers[far].log();
    let fingerprint = log.split("fingerprint ").nth(1).unwrap().split_whitespace().next().unwrap();
    let (file, keys) = (pool.dir.join("pool.toml"), pool.dir.join("keys"));
    write(&file, &pool, "", CLIENTS);
    let dry = format!("config apply {} --dry-run", file.display());
    let apply = format!("config apply {} --keys {}", file.display(), keys.display());

    let plan = pool.ok(&dry);
    let (n, f) = (&pool.servers[near].host, &pool.servers[far].host);
    let lines = [
        format!("take server {n} into the pool"),
        format!("take server {f} into the pool"),
        "create volume v with 3 bricks".to_owned(),
        "start volume v".to_owned(),
        "make key one for volume v".to_owned(),
        "make key web for volume v".to_owned(),
        "6 changes would be made".to_owned(),
    ];
    assert_eq!(plan.lines().collect::<Vec<_>>(), lines);
    assert_eq!(pool.ok(&format!("config diff {}", file.display())).lines().collect::<Vec<_>>(), lines[..6]);
    // Where keys go is looked at before anything is changed.
    refused_after_plan(&pool, &apply, &["is no directory", "--keys"]);
    fs::create_dir(&keys).unwrap();
    fs::write(keys.join("web.key"), "").unwrap();
    refused_after_plan(&pool, &apply, &["web.key", "there already"]);
    assert_eq!(pool.json("pool list").as_array().unwrap().len(), 1);
    fs::remove_file(keys.join("web.key")).unwrap();
    // The server on another machine has to be confirmed, and what was done before that stays.
    refused_after_plan(&pool, &apply, &[f, "fingerprint =", fingerprint, "document"]);
    assert_eq!(pool.json("pool list").as_array().unwrap().len(), 2);
    write(&file, &pool, &format!("fingerprint = \"{}\"", "0".repeat(64)), CLIENTS);
    pool.cli(&dry).refused_with(&["does not have the fingerprint"]);
    write(&file, &pool, &format!("fingerprint = \"{fingerprint}\""), CLIENTS);
    let done = pool.ok(&apply);
    assert!(done.contains("key web is in") && done.ends_with("5 changes made\n"), "{done}");
    pool.wait_in_sync();

    assert_eq!(fs::metadata(keys.join("web.key")).unwrap().mode() & 0o777, 0o600);
    let (all, one) = (pool.mount("v"), pool.mount_key("v", &keys.join("one.key")));
    std::os::unix::fs::chown(all.path(""), Some(1000), Some(1000)).unwrap();
    fs::write(one.path("f"), "x").unwrap();
    assert_eq!(fs::metadata(all.path("f")).unwrap().uid(), 1000);
    let web = pool.mount_key("v", &keys.join("web.key"));
    assert_eq!(fs::read(web.path("f")).unwrap(), b"x");
    assert_eq!(fs::write(web.path("g"), "").unwrap_err().raw_os_error(), Some(30), "it is read-only");
    [web, one, all].into_iter().for_each(crate::harness::Mounted::end);

    assert!(pool.ok(&apply).contains("nothing to change"));
    let exported = pool.ok("config export");
    assert!(exported.contains("[client.\"one\"]") && !exported.contains("root.server"), "{exported}");
    fs::write(&file, exported).unwrap();
    assert!(pool.ok(&apply).contains("nothing to change"));
}

/// What would be refused is found by a dry run, and nothing is changed.
#[test]
fn documents_with_keys_that_cannot_be_are_refused() {
    let pool = Pool::new(1);
    pool.volume("v", 1, &[(0, "b")]);
    pool.client_key("web", "v", "");
    pool.ok(&format!("pool key ann --out {}", pool.dir.join("ann.key").display()));
    let file = pool.dir.join("pool.toml");
    let before = pool.json("client list");
    for (text, words) in [
        (
            "[client.web]\nvolume = \"v\"\nread_only = true\n",
            &["web", "another read_only", "client revoke web"],
        ),
        ("[client.new]\nvolume = \"none\"\n", &["key new: ", "none", "volume list"]),
        ("[client.ann]\nvolume = \"v\"\n", &["ann", "another", ""]),
        ("[client.\"root.server1\"]\nvolume = \"v\"\n", &["root.server1", "servers give such names", ""]),
        ("[client.new]\nvolume = \"v\"\nsquash = \"0:0\"\n", &["key new: ", "0:0", ""]),
        ("[server.\"127.1.1.1\"]\naddress = \"127.1.1.1:9\"\n", &["127.1.1.1:9", "connection refused", ""]),
    ] {
        fs::write(&file, text).unwrap();
        for dry in ["--dry-run", ""] {
            pool.cli(format!("config apply {} {dry}", file.display()).trim_end()).refused_with(words);
        }
    }
    let names = |list: &serde_json::Value| list["keys"].as_array().unwrap().len();
    assert_eq!(names(&pool.json("client list")), names(&before));
}

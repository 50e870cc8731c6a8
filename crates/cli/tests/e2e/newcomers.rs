//! What goes wrong on the first day with a pool, and what people are told then.

use crate::harness::{Output, Pool, eventually, mortar, run};
use serde_json::Value;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

/// What a command complains of, as an object.
fn failure(output: &Output) -> Value {
    assert_eq!(output.stderr.lines().count(), 1, "{}", output.stderr);
    parsed(&output.stderr)["error"].clone()
}

#[test]
fn whatever_is_done_is_told_as_a_document_too() {
    let pool = Pool::new(1);
    pool.volume("v", 1, &[(0, "b")]);
    let set = parsed(&pool.ok("volume set v network.ping-timeout 5s -o json"));
    assert!(set["done"].as_str().unwrap().contains("network.ping-timeout is 5s now"), "{set}");
    let reset = pool.ok("volume reset v network.ping-timeout -o yaml");
    assert!(reset.contains("done: ") && !reset.contains('{'), "{reset}");
    assert!(parsed(&pool.ok("pool token -o json"))["token"].is_string());
    assert!(pool.ok("config export -o yaml").starts_with("document: "));
    let status = format!("volume remove-brick v {} status -o json", pool.servers[0].brick("b"));
    assert_eq!(parsed(&pool.ok(&status))["name"], "v");

    for form in ["json", "yaml"] {
        let missing = pool.cli(&format!("volume status nosuch -o {form}"));
        assert_eq!((missing.code, &failure(&missing)["code"]), (Some(1), &"not-found".into()));
        let missing = pool.cli(&format!("volume start nosuch -o {form}"));
        assert_eq!((missing.code, &failure(&missing)["code"]), (Some(1), &"not-found".into()));
        let wrong = pool.cli(&format!("volume strat v -o {form}"));
        assert_eq!((wrong.code, &failure(&wrong)["code"]), (Some(2), &"usage".into()));
    }
    assert_eq!(pool.cli("volume start v -o wide").code, Some(2), "it has no columns");

    let mut full = mortar();
    full.args(["--server", &pool.servers[0].address, "volume", "list"]);
    full.stdout(File::options().write(true).open("/dev/full").unwrap()).stderr(Stdio::piped());
    let full = full.output().unwrap();
    let said = String::from_utf8(full.stderr).unwrap();
    assert!(full.status.code() == Some(1) && said.contains("mortar: standard output: No space"), "{said}");
}

/// Nobody's configuration has so many bytes, and no frame.
#[test]
fn documents_without_an_end_are_refused() {
    let pool = Pool::new(1);
    let apply = |from: &Path| {
        let mut command = mortar();
        command.args(["--server", &pool.servers[0].address, "config", "apply", "-"]);
        let output = command.stdin(File::open(from).unwrap()).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Output { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    };
    apply(Path::new("/dev/zero")).refused_with(&["stdin", "mortar config export"]);
    let file = pool.dir.join("long");
    // Each of these bytes is six in a request.
    fs::write(&file, vec![1; 4 << 20]).unwrap();
    apply(&file).refused_with(&["a server takes", "at most"]);
    pool.ok("volume list");
}

#[test]
fn addresses_are_those_at_which_others_find_a_server() {
    let pool = Pool::new(1);
    for address in ["0.0.0.0", "[::]", &format!("0.0.0.0:{}", pool.port), ""] {
        let mut server = mortar();
        server.args(["server", "--address", address, "--state"]).arg(pool.dir.join("nowhere"));
        let refused = run(server);
        assert_eq!(refused.code, Some(2), "{address}: {refused:?}");
        assert!(refused.stderr.contains("address"), "{address}: {}", refused.stderr);
    }
    assert!(!pool.dir.join("nowhere").exists());
    for (server, words) in [
        ("127.0.0.1:99999", "a port from 1 to 65535"),
        ("http://127.0.0.1", "write HOST or HOST:PORT"),
        ("no-such-host.invalid", "as DNS or /etc/hosts has it"),
    ] {
        let refused = pool.cli_at(server, "volume list");
        assert!(refused.stderr.contains(words) && !refused.stderr.contains("start one"), "{refused:?}");
    }
    // Its socket lies in its state folder.
    pool.cli_at(pool.servers[0].state().to_str().unwrap(), "volume list").ok();
    pool.cli("client add w --volume v --out /no/such/place/w.key")
        .refused_with(&["no file can be made there"]);
    pool.volume("v", 1, &[(0, "b")]);
    pool.cli("client add w --volume v --out /no/such/place/w.key")
        .refused_with(&["no file can be made there"]);
    assert!(!pool.ok("client list").contains(" w "), "a key without a file");
}

#[test]
fn a_probe_that_waits_is_told_once() {
    let pool = Pool::new(1);
    pool.cli(&format!("peer probe {}", pool.spare_address())).refused_with(&["connection refused"]);
    let events = pool.ok("events");
    assert_eq!(events.matches("peer-probe").count(), 1, "{events}");
}

/// Whoever follows the advice to put another server in the place of one that is alive loses that one.
#[test]
fn a_second_server_of_a_host_needs_a_name_of_its_own() {
    let pool = Pool::new(1);
    let at = format!("{}:{}", pool.servers[0].host, pool.port + 1);
    let mut second = mortar();
    second.args(["server", "--address", &at, "--state"]).arg(pool.dir.join("second"));
    second.stdout(Stdio::null()).stderr(Stdio::null());
    let mut second = crate::harness::spawn(second, |_| {});
    eventually("it serves", || std::net::TcpStream::connect(&at).ok());
    let refused =
        pool.cli(&format!("peer probe {at}")).refused_with(&["is server 1 of the pool", "of its own"]);
    assert!(!refused.contains("lost its state folder"), "{refused}");
    second.kill().unwrap();
    second.wait().unwrap();
}

#[test]
fn stripes_that_have_no_sets_are_noted() {
    let pool = Pool::new(1);
    let create = |name: &str, stripe: u32| {
        let bricks = [1, 2].map(|n| pool.servers[0].brick(&format!("{name}{n}"))).join(" ");
        pool.ok(&format!("volume create {name} stripe {stripe} {bricks}"))
    };
    let told = create("v", 4);
    assert!(told.contains("note: stripe 4 needs 4 sets, and the volume has 2"), "{told}");
    assert!(!create("w", 2).contains("note: stripe"));
}

#[test]
fn who_is_not_root_is_told_to_be() {
    let mut command = Command::new("unshare");
    let line =
        "ip link set lo up && exec setpriv --reuid 65534 --regid 65534 --clear-groups -- \"$0\" volume list";
    command.args(["-n", "sh", "-c", line]).arg(mortar().get_program());
    command.env_remove("MORTAR_SERVER").env("HOME", "/");
    run(command).refused_with(&["as root (sudo)", "--server HOST"]);
}

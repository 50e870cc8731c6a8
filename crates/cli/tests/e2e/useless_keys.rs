//! Key files that are of no use: whoever shows one hears what is wrong with it, at once.

use crate::harness::{Output, Pool, eventually, mortar, mortar_elsewhere, run};
use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// A mount with that key that must fail. It would wait for ever if the program took the refusal for an outage.
fn mount(mut command: Command, pool: &Pool, key: &[&str]) -> Output {
    let dir = pool.dir.join("no");
    fs::create_dir_all(&dir).unwrap();
    let program = command.get_program().to_owned();
    let words: Vec<_> = command.get_args().map(|a| a.to_owned()).collect();
    command = Command::new("timeout");
    command.args(["-s", "KILL", "20"]).arg(program).args(words);
    command.args(["mount", &pool.source("v")]).arg(&dir).args(key);
    run(command)
}

fn option(key: &Path) -> String {
    format!("key={}", key.display())
}

#[test]
fn keys_of_another_kind() {
    let pool = Pool::new(1);
    pool.volume("v", 1, &[(0, "b")]);
    let (client, admin) = (pool.client_key("web", "v", ""), pool.dir.join("ann.key"));
    pool.ok(&format!("pool key ann --out {}", admin.display()));
    mount(mortar(), &pool, &["-o", &option(&admin)]).refused_with(&[
        "key file",
        "it is the administrator ann's, for commands",
        "mortar client add",
    ]);
    let mut command = mortar();
    command.args(["--key", client.to_str().unwrap(), "--server", &pool.servers[0].address, "volume", "list"]);
    run(command).refused_with(&["key file", "it is the client web's, for mounts", "mortar pool key"]);
    // The option that every command has is the mount's, too.
    mount(mortar_elsewhere(), &pool, &["--key", admin.to_str().unwrap()])
        .refused_with(&["it is the administrator ann's"]);
    let dir = pool.dir.join("yes");
    fs::create_dir(&dir).unwrap();
    let mut command = mortar_elsewhere();
    command.args(["mount", &pool.source("v")]).arg(&dir).arg("--key").arg(&client);
    run(command).ok();
}

#[test]
fn keys_that_are_not_good_here() {
    let pool = Pool::new(1);
    let other = Pool::new(1);
    for p in [&pool, &other] {
        p.volume("v", 1, &[(0, "b")]);
    }
    let foreign = "another pool's, or signed by an authority that was replaced";
    let key = other.client_key("web", "v", "");
    mount(mortar(), &pool, &["-o", &option(&key)]).refused_with(&["refuses this client", foreign]);
    let admin = other.dir.join("ann.key");
    other.ok(&format!("pool key ann --out {}", admin.display()));
    let ask = |key: &Path| {
        let mut command = mortar();
        command.arg("--key").arg(key).args(["--server", &pool.servers[0].address, "volume", "list"]);
        run(command)
    };
    let said = ask(&admin);
    assert!(!said.stderr.contains("cannot be reached"), "{}", said.stderr);
    said.refused_with(&["refuses", foreign]);
    let short = pool.client_key("short", "v", "--expires 1s");
    std::thread::sleep(Duration::from_millis(2500));
    mount(mortar(), &pool, &["-o", &option(&short)])
        .refused_with(&["refuses this client", "this key is expired"]);
    mount(mortar(), &pool, &["-o", "key=/no/such"]).refused_with(&["key file /no/such: No such file"]);
}

/// Who tries leaves a line, whatever he tries; and his port scanner none.
#[test]
fn the_log_of_a_server_tells_who_was_refused() {
    let pool = Pool::new(1);
    let other = Pool::new(1);
    for p in [&pool, &other] {
        p.volume("v", 1, &[(0, "b")]);
    }
    pool.volume("w", 1, &[(0, "c")]);
    let log = || pool.servers[0].log();
    let told = |words: &[&str]| {
        eventually(&format!("the log has {words:?}: {}", log()), || {
            log()
                .lines()
                .any(|l| l.contains(" WARN ") && l.contains("127.") && words.iter().all(|w| l.contains(w)))
                .then_some(())
        });
    };
    let no = |key: &Path| mount(mortar_elsewhere(), &pool, &["-o", &option(key)]).refused();
    no(&other.client_key("web", "v", ""));
    told(&["is refused", "another pool's"]);
    no(&pool.client_key("wrong", "w", ""));
    told(&["client wrong at ", "is refused", "volume v may not be used with this key"]);
    let revoked = pool.client_key("gone", "v", "");
    pool.ok("client revoke gone --yes");
    no(&revoked);
    told(&["client gone at ", "is refused", "revoked or expired"]);
    mount(mortar_elsewhere(), &pool, &[]).refused();
    told(&["is refused", "encrypted connections only"]);
    let address = &pool.servers[0].address;
    std::io::Write::write_all(&mut TcpStream::connect(address).unwrap(), &[b'x'; 100]).unwrap();
    told(&["is refused", "bad message"]);
    let before = log().matches("is refused").count();
    drop(TcpStream::connect(address).unwrap());
    pool.ok("volume set v auth.allow 10.1.2.3");
    no(&pool.client_key("far", "v", ""));
    told(&["client far at ", "may not be used from", "auth.allow"]);
    assert_eq!(log().matches("is refused").count(), before + 1, "{}", log());
}

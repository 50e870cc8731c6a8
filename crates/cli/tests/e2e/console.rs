//! The web console, as a browser uses it: over HTTPS, with a real key.

use crate::harness::web::{self, free_address};
use crate::harness::{Output, Pool, alone, eventually, eventually_within, run};
use serde_json::{Value, json};
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// A browser at the console of a server.
struct Browser {
    at: String,
    dir: PathBuf,
    /// Lines of the head that each request has.
    headers: Vec<String>,
}

impl Browser {
    fn new(pool: &Pool, at: &str, name: &str) -> Browser {
        let dir = pool.dir.join(name);
        fs::create_dir(&dir).unwrap();
        // It believes the pool's authority.
        web::write_authority(pool, &dir.join("authority"));
        Browser { at: at.to_owned(), dir, headers: vec![] }
    }

    fn curl(&self, path: &str, words: &[&str]) -> Output {
        let mut command = Command::new("curl");
        command
            .args(["--silent", "--show-error", "--max-time", "30", "--cacert"])
            .arg(self.dir.join("authority"));
        command.arg("--dump-header").arg(self.dir.join("head")).args(["--write-out", "\n%{http_code}"]);
        for line in &self.headers {
            command.args(["--header", line]);
        }
        command.args(words).arg(format!("https://{}{path}", self.at));
        run(command)
    }

    /// The status and the body.
    #[track_caller]
    fn ask(&self, path: &str, words: &[&str]) -> (u16, String) {
        let said = self.curl(path, words).ok();
        let (body, status) = said.trim_end().rsplit_once('\n').unwrap();
        (status.parse().unwrap(), body.to_owned())
    }

    /// The status alone.
    #[track_caller]
    fn status(&self, path: &str, words: &[&str]) -> u16 {
        self.ask(path, words).0
    }

    /// What a page that is signed in sees.
    #[track_caller]
    fn see(&self, path: &str) -> Value {
        let (status, body) = self.ask(path, &[]);
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str(&body).unwrap()
    }

    /// Has the server do something.
    fn act(&self, request: &Value, words: &[&str]) -> (u16, Value) {
        let body = request.to_string();
        let (status, answer) = self.ask("/api/do", &[words, &["--data-raw", &body]].concat());
        (status, serde_json::from_str(&answer).unwrap())
    }

    /// Signs in with a key file.
    #[track_caller]
    fn sign_in(&mut self, key: &Path) {
        let file = format!("@{}", key.display());
        let own = format!("Origin: https://{}", self.at);
        let words = ["--header", "Mortar-Console: sign-in", "--header", &own, "--data-binary", &file];
        let (status, body) = self.ask("/api/sign-in", &words);
        assert_eq!(status, 200, "{body}");
        let head = fs::read_to_string(self.dir.join("head")).unwrap();
        let cookie = head.lines().find_map(|l| l.strip_prefix("Set-Cookie: ")).expect("a cookie");
        assert!(cookie.ends_with("; Path=/; Secure; HttpOnly; SameSite=Strict"), "{cookie}");
        let told: Value = serde_json::from_str(&body).unwrap();
        let token = told["token"].as_str().unwrap();
        self.headers = vec![
            format!("Cookie: {}", cookie.split(';').next().unwrap()),
            format!("Mortar-Console: {token}"),
        ];
    }
}

/// A secured pool whose first server has a console.
fn pool_with_console(count: usize) -> (Pool, String) {
    let mut pool = Pool::new(count);
    let at = free_address(&pool.servers[0].host);
    pool.stop(0);
    pool.servers[0].words = vec!["--console".to_owned(), at.clone()];
    pool.start(0);
    pool.wait_in_sync();
    (pool, at)
}

fn admin_key(pool: &Pool, name: &str) -> PathBuf {
    let file = pool.dir.join(format!("{name}.key"));
    pool.ok(&format!("pool key {name} --out {}", file.display()));
    file
}

#[test]
fn an_administrator_signs_in_looks_and_acts() {
    let (pool, at) = pool_with_console(2);
    pool.volume("v", 2, &[(0, "b"), (1, "b")]);
    let mut browser = Browser::new(&pool, &at, "ann");
    let (status, page) = browser.ask("/", &[]);
    assert!(status == 200 && page.starts_with("<!doctype html>"), "{page}");
    let head = fs::read_to_string(browser.dir.join("head")).unwrap();
    assert!(head.contains("\nContent-Security-Policy: default-src 'none'; script-src 'self';"), "{head}");
    browser.sign_in(&admin_key(&pool, "ann"));

    let seen = browser.see("/api/pool");
    assert_eq!(seen["peers"].as_array().unwrap().len(), 2, "{seen}");
    let volumes = browser.see("/api/volumes");
    let bricks = volumes[0]["bricks"].as_array().unwrap();
    assert!(
        volumes[0]["name"] == "v" && bricks.len() == 2 && bricks[0]["total_bytes"].as_u64() > Some(0),
        "{volumes}"
    );
    assert_eq!(browser.see("/api/info")[0]["replica"], 2);
    assert!(browser.see("/api/doctor")["checked"].as_array().is_some_and(|all| !all.is_empty()));
    assert_eq!(browser.see("/api/volumes/v/rebalance")["state"], "off");
    assert_eq!(browser.see("/api/volumes/v/heal")["bricks"], json!([]));
    let (status, why) = browser.ask("/api/volumes/none/clients", &[]);
    assert!(status == 404 && why.contains(r#""code":"not-found""#), "{status} {why}");

    // How long requests take.
    assert_eq!(browser.status("/api/volumes/v/profile", &[]), 409);
    let (status, begun) = browser.act(&json!({"volume-profile": {"name": "v", "action": "start"}}), &[]);
    assert_eq!((status, &begun["volume-profile"]["running"]), (200, &json!(true)));
    let mount = pool.mount("v");
    fs::write(mount.path("f"), "text").unwrap();
    let profile = browser.see("/api/volumes/v/profile?again");
    let operations = profile["total"]["sets"][0]["operations"].as_array().unwrap();
    assert!(operations.iter().any(|o| o["operation"] == "write"), "{profile}");
    assert_eq!(browser.see("/api/volumes/v/clients")["clients"].as_array().unwrap().len(), 1);
    mount.end();

    // What is done is done, and the log of events says who did it.
    let (status, stopped) = browser.act(&json!({"volume-stop": {"name": "v"}}), &[]);
    assert_eq!((status, &stopped["volume-stop"]["name"]), (200, &json!("v")));
    assert_eq!(pool.status("v")["status"], "stopped");
    assert_eq!(browser.act(&json!({"volume-start": {"name": "v"}}), &[]).0, 200);
    assert_eq!(pool.status("v")["status"], "started");
    let who = "ann at 127.0.0.1 (console)";
    let told = browser.see("/api/events");
    let by_ann: Vec<&str> = told["events"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|e| e["kind"] == "admin" && e["who"] == who)
        .map(|e| e["text"].as_str().unwrap())
        .collect();
    assert_eq!(by_ann.len(), 4, "{told}");
    assert_eq!(by_ann[0], "signed in to the console");
    assert!(by_ann[2].starts_with("volume-stop ") && by_ann[2].ends_with(": done"), "{by_ann:?}");
    let shown = pool.ok("events --since 1h");
    assert!(
        shown.lines().any(|l| l.contains("volume-stop") && l.contains(who)),
        "commands show it, too: {shown}"
    );

    // The console makes no keys, so nobody stays who found it open.
    assert_eq!(browser.act(&json!({"pool-key": {"name": "mallory"}}), &[]).0, 403);
    assert_eq!(browser.status("/api/sign-out", &["--data-raw", ""]), 200);
    assert_eq!(browser.status("/api/pool", &[]), 401);
}

#[test]
fn nobody_else_gets_in() {
    let (pool, at) = pool_with_console(1);
    pool.volume("v", 1, &[(0, "b")]);
    let mut ann = Browser::new(&pool, &at, "ann");
    let key = admin_key(&pool, "ann");
    ann.sign_in(&key);
    let [cookie, token] = [ann.headers[0].clone(), ann.headers[1].clone()];
    let (stop, stopped) =
        (json!({"volume-stop": {"name": "v"}}), |pool: &Pool| pool.status("v")["status"] == "stopped");

    // Without the cookie, without the token, and from the page of another server.
    let with = |headers: &[&String]| Browser {
        at: at.clone(),
        dir: ann.dir.clone(),
        headers: headers.iter().map(|h| (*h).clone()).collect(),
    };
    let other_page = ["--header", "Origin: https://elsewhere.example"];
    for (browser, words, status) in [
        (with(&[]), &[][..], 403),
        (with(&[&token]), &[], 401),
        (with(&[&cookie]), &[], 403),
        (with(&[&cookie, &"Mortar-Console: 00".to_owned()]), &[], 401),
        (with(&[&cookie, &token]), &other_page, 403),
        (with(&[&cookie, &token]), &["--header", "Sec-Fetch-Site: cross-site"], 403),
    ] {
        assert_eq!(browser.act(&stop, words).0, status, "{:?} {words:?}", browser.headers);
        assert_eq!(browser.status("/api/volumes", words), status, "{:?} {words:?}", browser.headers);
    }
    assert!(!stopped(&pool));
    // A form of another page sends no such line, whatever cookies the browser adds.
    let form = with(&[&cookie]);
    assert_eq!(form.status("/api/do", &["--form", "volume-stop=v"]), 403);

    // Keys that are not an administrator's of this pool.
    let other = Pool::new(1);
    let client = pool.client_key("web", "v", "");
    let server = pool.servers[0].state().join("keys/server");
    let nonsense = pool.dir.join("nonsense");
    fs::write(&nonsense, "mortar key 1\n").unwrap();
    let gone = admin_key(&pool, "bob");
    pool.ok("client revoke bob --yes");
    for (key, words) in [
        (&client, "not an administrator's key"),
        (&server, "not an administrator's key"),
        (&admin_key(&other, "eve"), "of another pool"),
        (&nonsense, "no key file"),
        (&gone, "revoked or expired"),
    ] {
        let file = format!("@{}", key.display());
        let words_of = ["--header", "Mortar-Console: sign-in", "--data-binary", &file];
        let (status, why) = with(&[]).ask("/api/sign-in", &words_of);
        assert!(status == 403 && why.contains(words), "{key:?}: {status} {why}");
    }

    // Too much, and what is no TLS.
    let much = pool.dir.join("much");
    fs::write(&much, vec![b'x'; 70_000]).unwrap();
    let file = format!("@{}", much.display());
    assert_eq!(
        with(&[]).status("/api/sign-in", &["--header", "Mortar-Console: x", "--data-binary", &file]),
        413
    );
    let mut plain = TcpStream::connect(&at).unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let mut said = String::new();
    plain.read_to_string(&mut said).unwrap();
    assert!(said.starts_with("HTTP/1.1 400 ") && said.ends_with("over https:// only\n"), "{said}");
}

#[test]
fn a_key_that_is_revoked_ends_its_sessions() {
    let _alone = alone();
    let (pool, at) = pool_with_console(1);
    pool.volume("v", 1, &[(0, "b")]);
    let mut ann = Browser::new(&pool, &at, "ann");
    ann.sign_in(&admin_key(&pool, "ann"));
    assert_eq!(ann.status("/api/pool", &[]), 200);
    pool.ok("client revoke ann --yes");
    let since = Instant::now();
    eventually("the session ends", || (ann.status("/api/pool", &[]) == 401).then_some(()));
    assert!(since.elapsed() < Duration::from_secs(2), "{:?}", since.elapsed());
    assert_eq!(ann.act(&json!({"volume-stop": {"name": "v"}}), &[]).0, 401);
    assert_ne!(pool.status("v")["status"], "stopped");
}

#[test]
fn a_console_needs_a_key_and_keeps_its_own() {
    let mut pool = Pool::plain(1);
    let at = free_address(&pool.servers[0].host);
    let key = pool.servers[0].state().join("keys/console");
    pool.stop(0);
    let why = pool.try_start_with(0, &["--console", &at]).unwrap_err();
    assert!(why.contains("--console") && why.contains("mortar pool secure"), "{why}");
    pool.start(0);
    pool.secure();
    pool.stop(0);
    let taken = TcpListener::bind(&at).unwrap();
    let why = pool.try_start_with(0, &["--console", &at]).unwrap_err();
    assert!(why.contains(&at) && why.contains("port is in use") && why.contains("--console"), "{why}");
    drop(taken);
    pool.servers[0].words = vec!["--console".to_owned(), at.clone()];
    pool.start(0);
    let first = fs::read(&key).unwrap();
    let browser = Browser::new(&pool, &at, "browser");
    assert_eq!(browser.status("/", &[]), 200, "the certificate names the host");
    pool.stop(0);
    pool.start(0);
    assert!(fs::read(&key).unwrap() == first, "a browser that was told to believe it still does");

    // A key of somebody else's making.
    let (own, certificate) = web::make_web_key(&pool.dir, &pool.servers[0].host);
    pool.stop(0);
    let words = ["--console-key", own.to_str().unwrap()];
    let why = pool.try_start_with(0, &words).unwrap_err();
    assert!(why.contains("others may read it"), "{why}");
    web::close(&own);
    pool.try_start_with(0, &words).unwrap();
    assert_ne!(browser.curl("/", &[]).code, Some(0), "it is not the authority's");
    fs::copy(certificate, browser.dir.join("authority")).unwrap();
    assert_eq!(browser.status("/", &[]), 200);
}

/// Whoever reaches the port and says nothing, or very slowly, keeps nobody else out.
#[test]
fn slow_ones_keep_nobody_out() {
    let (pool, at) = pool_with_console(1);
    let mut browser = Browser::new(&pool, &at, "ann");
    browser.sign_in(&admin_key(&pool, "ann"));
    let idle: Vec<TcpStream> = (0..200).filter_map(|_| TcpStream::connect(&at).ok()).collect();
    assert!(idle.len() > 100);
    // They come from the same address, so it is that address that waits, for as long as a request may take.
    eventually_within(Duration::from_secs(25), "the console answers", || {
        (browser.curl("/api/pool", &[]).code == Some(0)).then_some(())
    });
    pool.ok("volume list");
    drop(idle);
}

/// The authority that has signed the console's key goes: so does that key, while the server runs.
#[test]
fn it_gets_another_key_with_the_pools_authority() {
    let (pool, at) = pool_with_console(1);
    let old = Browser::new(&pool, &at, "old");
    assert_eq!(old.status("/", &[]), 200);
    let file = pool.servers[0].state().join("keys/console");
    let before = fs::read(&file).unwrap();
    pool.ok("pool rotate-authority");
    assert_eq!(old.status("/", &[]), 200, "it is the old one's until the end");
    pool.ok("pool rotate-authority --finish");
    let new = Browser::new(&pool, &at, "new");
    assert_eq!(new.status("/", &[]), 200);
    assert_ne!(fs::read(&file).unwrap(), before);
    assert_eq!(old.curl("/", &[]).code, Some(60), "a certificate of somebody else");
    let now = fs::read(&file).unwrap();
    assert_eq!(new.status("/", &[]), 200);
    assert_eq!(fs::read(&file).unwrap(), now, "and stays that one");
}

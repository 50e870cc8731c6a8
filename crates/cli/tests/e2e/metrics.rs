//! What a server tells those who watch it: metrics for Prometheus, clients and queues for people.

use crate::harness::web::{self, free_address};
use crate::harness::{Mounted, Output, Pool, eventually, eventually_within, run, tool};
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The body of a page.
fn get(address: &str, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.lines().next()?.contains(" 200 ").then(|| body.to_owned())
}

pub(crate) fn metrics(address: &str) -> String {
    get(address, "/metrics").expect("metrics")
}

/// The sum of the samples of that name whose labels contain all `words`.
#[track_caller]
pub(crate) fn value(text: &str, name: &str, words: &[&str]) -> f64 {
    let of = |l: &&str| l.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']));
    let lines: Vec<&str> = text.lines().filter(of).filter(|l| words.iter().all(|w| l.contains(w))).collect();
    assert!(!lines.is_empty(), "no {name} with {words:?} in\n{text}");
    lines.iter().map(|l| l.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()).sum()
}

fn promtool(words: &[&str], input: &str) {
    let mut child = Command::new("promtool")
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let out = child.wait_with_output().unwrap();
    let said = [out.stdout, out.stderr].concat();
    assert!(out.status.success(), "promtool {words:?}: {}", String::from_utf8_lossy(&said));
}

/// Prometheus, which ends with the test.
struct Prometheus(Child);

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _ended = self.0.wait();
    }
}

impl Prometheus {
    /// `job`: more lines of the job that watches the pool.
    fn start(dir: &Path, targets: &[String], own: &str, job: &str) -> Prometheus {
        fs::create_dir(dir).unwrap();
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let rules = root.join("deploy/prometheus/mortar.rules.yml");
        let config = dir.join("prometheus.yml");
        let text = format!(
            "global: {{ scrape_interval: 1s }}\nrule_files: [ \"{}\" ]\nscrape_configs:\n  - job_name: mortar\n    \
             static_configs: [ {{ targets: {targets:?} }} ]\n{job}",
            rules.display()
        );
        fs::write(&config, text).unwrap();
        promtool(&["check", "config", config.to_str().unwrap()], "");
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", dir.join("data").display()))
            .arg(format!("--web.listen-address={own}"))
            .stdout(Stdio::null())
            .stderr(fs::File::create(dir.join("log")).unwrap())
            .spawn()
            .unwrap();
        Prometheus(child)
    }
}

/// What a Prometheus knows.
fn query(prometheus: &str, words: &str) -> Option<f64> {
    let text = get(prometheus, &format!("/api/v1/query?query={words}"))?;
    let answer: serde_json::Value = serde_json::from_str(&text).ok()?;
    answer["data"]["result"][0]["value"][1].as_str()?.parse().ok()
}

#[test]
fn prometheus_watches_a_volume() {
    let mut pool = Pool::new(2);
    let at: Vec<String> = pool.servers.iter().map(|s| free_address(&s.host)).collect();
    for (i, address) in at.iter().enumerate() {
        assert!(get(address, "/metrics").is_none(), "nothing listens unless it is asked to");
        pool.stop(i);
        pool.servers[i].words = vec!["--metrics".to_owned(), address.clone()];
        pool.start(i);
    }
    pool.wait_in_sync();
    pool.volume("v", 2, &[(0, "b"), (1, "b")]);
    let mount = pool.mount("v");
    fs::write(mount.path("f"), vec![7; 100_000]).unwrap();
    assert!(fs::metadata(mount.path("no")).is_err());
    let open = fs::File::open(mount.path("f")).unwrap();

    let primary = pool.status("v")["bricks"].as_array().unwrap().iter().position(|b| b["role"] == "primary");
    let primary = primary.expect("a primary");
    let text = metrics(&at[primary]);
    promtool(&["check", "metrics"], &text);
    let of_v = ["volume=\"v\""];
    assert_eq!(value(&text, "mortar_written_bytes_total", &of_v), 100_000.0);
    let name = "mortar_request_duration_seconds_count";
    assert!(value(&text, name, &["operation=\"write\""]) >= 1.0);
    let bucket = "mortar_request_duration_seconds_bucket";
    let all = value(&text, bucket, &["operation=\"write\"", "le=\"+Inf\""]);
    assert_eq!(all, value(&text, name, &["operation=\"write\""]));
    assert!(value(&text, "mortar_request_failures_total", &["reason=\"errno\""]) >= 1.0, "{text}");
    assert_eq!(value(&text, "mortar_set_bricks_in_sync", &of_v), 2.0);
    assert_eq!(value(&text, "mortar_brick_primary", &of_v), 1.0);
    assert_eq!(value(&text, "mortar_set_open_files", &of_v), 1.0);
    assert!(value(&text, "mortar_sessions", &[]) >= 1.0);
    assert!(value(&text, "mortar_lease_remaining_seconds", &[]) > 0.0);
    assert!(value(&text, "process_resident_memory_bytes", &[]) > 1e6);
    assert_eq!(value(&metrics(&at[1 - primary]), "mortar_brick_primary", &of_v), 0.0);
    assert!(get(&at[0], "/other").is_none());

    let clients = pool.json("volume status v clients");
    let client = &clients["clients"][0];
    assert_eq!(clients["clients"].as_array().unwrap().len(), 1, "{clients}");
    assert_eq!(client["address"], "127.0.0.1");
    assert!(client["name"].as_str().unwrap().starts_with("root.server"), "the mount named no key: {client}");
    assert!(client["key"].is_u64(), "{client}");
    assert_eq!((&client["open_files"], &client["written_bytes"]), (&1.into(), &100_000.into()), "{client}");
    let table = pool.ok("volume status v clients");
    assert!(
        table.contains("  root.server") && table.contains("ADDRESS") && table.lines().all(|l| l.len() <= 80),
        "{table}"
    );
    assert_eq!(pool.json("volume status v queues")["bricks"].as_array().unwrap().len(), 2);
    assert!(pool.ok("volume status v queues").contains("JOURNAL"));

    let own = free_address("127.0.0.1");
    let prometheus = Prometheus::start(&pool.dir.join("prometheus"), &at, &own, "");
    let query = |q: &str| query(&own, q);
    eventually("Prometheus has read both servers", || (query("sum(up)")? == 2.0).then_some(()));
    eventually("it has the copies", || (query("max(mortar_set_bricks_in_sync)")? == 2.0).then_some(()));
    drop(open);
    pool.kill(1 - primary);
    eventually("it sees that one is gone", || {
        (query("max(mortar_set_bricks_in_sync)")? == 1.0).then_some(())
    });
    drop(prometheus);
    mount.end();
}

#[test]
fn an_address_for_metrics_that_cannot_be() {
    let mut pool = Pool::new(1);
    let taken = TcpListener::bind((pool.servers[0].host.as_str(), 0)).unwrap();
    let address = taken.local_addr().unwrap().to_string();
    pool.stop(0);
    pool.servers[0].words = vec!["--metrics".to_owned(), address.clone()];
    let why = pool.try_start(0).unwrap_err();
    assert!(why.contains(&address) && why.contains("port is in use") && why.contains("--metrics"), "{why}");
    pool.servers[0].words.clear();
    pool.start(0);
    tool("promtool --version");
}

#[test]
fn latencies_by_client() {
    let mut pool = Pool::new(1);
    let at = free_address(&pool.servers[0].host);
    pool.stop(0);
    pool.servers[0].words = vec!["--metrics".to_owned(), at.clone()];
    pool.start(0);
    pool.volume("v", 1, &[(0, "b")]);
    let name = "mortar_client_request_duration_seconds_count";
    assert!(!metrics(&at).contains(name), "nobody asks");
    let [web, db] = ["web", "db"].map(|name| pool.mount_key("v", &pool.client_key(name, "v", "")));
    fs::write(web.path("f"), "x").unwrap();
    fs::read_dir(db.path("")).unwrap().count();
    let text = metrics(&at);
    promtool(&["check", "metrics"], &text);
    let of = |text: &str, client: &str| value(text, name, &["volume=\"v\"", &format!("client=\"{client}\"")]);
    let first = [of(&text, "web"), of(&text, "db")];
    assert!(first.iter().all(|n| *n >= 1.0), "{first:?}");
    for n in 0..20 {
        fs::write(db.path(&format!("g{n}")), "x").unwrap();
    }
    let text = metrics(&at);
    let more = [of(&text, "web") - first[0], of(&text, "db") - first[1]];
    assert!(more[0] < 20.0 && more[1] >= 20.0, "{more:?}");
    let bucket = "mortar_client_request_duration_seconds_bucket";
    assert_eq!(value(&text, bucket, &["client=\"db\"", "le=\"+Inf\""]), of(&text, "db"));
    // All that clients asked is in both, but for what is asked in between.
    let all = value(&text, "mortar_request_duration_seconds_count", &["volume=\"v\""]);
    assert_eq!(all, of(&text, "web") + of(&text, "db"));
    [web, db].into_iter().for_each(Mounted::end);
    assert!(of(&metrics(&at), "web") >= of(&text, "web"), "it is told for some minutes more");
}

/// The page over HTTPS, read by somebody who believes that certificate.
fn get_securely(address: &str, authority: &Path) -> Output {
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--fail", "--max-time", "30", "--cacert"]).arg(authority);
    curl.arg(format!("https://{address}/metrics"));
    run(curl)
}

#[test]
fn metrics_over_https() {
    let mut pool = Pool::new(1);
    let (at, authority) = (free_address(&pool.servers[0].host), pool.dir.join("authority"));
    web::write_authority(&pool, &authority);
    pool.stop(0);
    pool.servers[0].words = ["--metrics", &at, "--metrics-tls"].map(str::to_owned).to_vec();
    pool.start(0);
    let text = get_securely(&at, &authority).ok();
    promtool(&["check", "metrics"], &text);
    assert_eq!(value(&text, "mortar_pool_servers", &[]), 1.0);
    // Whoever asks without TLS is told, and gets nothing.
    let mut plain = TcpStream::connect(&at).unwrap();
    plain.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let mut said = String::new();
    plain.read_to_string(&mut said).unwrap();
    assert!(said.starts_with("HTTP/1.1 400 ") && said.ends_with("over https:// only\n"), "{said}");

    let own = free_address("127.0.0.1");
    let job = format!("    scheme: https\n    tls_config: {{ ca_file: {authority:?} }}\n");
    let prometheus = Prometheus::start(&pool.dir.join("prometheus"), std::slice::from_ref(&at), &own, &job);
    eventually("Prometheus has read the server", || (query(&own, "sum(up)")? == 1.0).then_some(()));
    drop(prometheus);

    // Those who begin no handshake, or do not end it, keep nobody out for longer than a request may take.
    let mut idle: Vec<TcpStream> = (0..12).filter_map(|_| TcpStream::connect(&at).ok()).collect();
    assert!(idle.len() >= 8);
    for stream in idle.iter_mut().take(4) {
        let _closed = stream.write_all(&[0x16, 3, 1, 2, 0, 1]);
    }
    let since = Instant::now();
    eventually_within(Duration::from_secs(25), "the page is read", || {
        (get_securely(&at, &authority).code == Some(0)).then_some(())
    });
    assert!(since.elapsed() > Duration::from_secs(5), "nobody held it up: {:?}", since.elapsed());
    drop(idle);
}

#[test]
fn a_key_for_metrics_of_somebody_elses_making() {
    // A file needs no authority, so a pool without keys can have it.
    let mut pool = Pool::plain(1);
    let at = free_address(&pool.servers[0].host);
    let (file, certificate) = web::make_web_key(&pool.dir, &pool.servers[0].host);
    pool.stop(0);
    let why = pool.try_start_with(0, &["--metrics", &at, "--metrics-tls"]).unwrap_err();
    assert!(why.contains("--metrics-key FILE") && why.contains("mortar pool secure"), "{why}");
    let words = ["--metrics", &at, "--metrics-key", file.to_str().unwrap()];
    let why = pool.try_start_with(0, &words).unwrap_err();
    assert!(why.contains("--metrics-key") && why.contains("others may read it"), "{why}");
    web::close(&file);
    pool.try_start_with(0, &words).unwrap();
    assert_eq!(value(&get_securely(&at, &certificate).ok(), "mortar_pool_servers", &[]), 1.0);
}

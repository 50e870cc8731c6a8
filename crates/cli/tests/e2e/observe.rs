//! What people ask a pool when something is slow or went wrong: profiles, tops, events, the doctor.

use crate::harness::{Pool, eventually};
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

#[test]
fn a_profile_shows_how_long_requests_take() {
    let mut pool = Pool::new(2);
    pool.volume("v", 2, &[(0, "b"), (1, "b")]);
    let mount = pool.mount("v");
    pool.cli("volume profile v info").refused_with(&["volume v", "profile v start"]);
    pool.cli("volume profile none start").refused_with(&["volume none does not exist"]);
    fs::write(mount.path("before"), "x").unwrap();
    pool.ok("volume profile v start");
    for n in 0..20 {
        fs::write(mount.path(&format!("f{n}")), vec![1; 5000]).unwrap();
    }
    assert!(fs::metadata(mount.path("no")).is_err());
    let report = pool.json("volume profile v info");
    let set = &report["total"]["sets"][0];
    let calls = |r: &serde_json::Value, span: &str, name: &str| {
        let all =
            r[span]["sets"].as_array().unwrap().iter().flat_map(|s| s["operations"].as_array().unwrap());
        let of = |o: &&serde_json::Value| o["operation"] == name;
        all.filter(of).map(|o| o["calls"].as_u64().unwrap()).sum::<u64>()
    };
    assert_eq!((calls(&report, "total", "create"), calls(&report, "total", "write")), (20, 20), "{report}");
    assert_eq!(set["written_bytes"], 100_000, "{report}");
    assert!(set["failures"]["errno"].as_u64().unwrap() >= 1, "{report}");
    fs::write(mount.path("f20"), "x").unwrap();
    let report = pool.json("volume profile v info");
    assert_eq!((calls(&report, "total", "create"), calls(&report, "interval", "create")), (21, 1));
    let table = pool.ok("volume profile v info");
    assert!(table.contains("OPERATION") && table.contains("99 % TO"), "{table}");
    assert!(table.lines().all(|l| l.chars().count() <= 80), "{table}");

    pool.stop(1);
    pool.start(1);
    let note = eventually("who was started anew says so", || {
        let report = pool.json("volume profile v info");
        report["notes"][0].as_str().filter(|n| n.contains("started after")).map(str::to_owned)
    });
    assert!(note.contains("volume profile v start"), "{note}");
    pool.ok("volume profile v stop");
    pool.cli("volume profile v info").refused();
    mount.end();
}

#[test]
fn the_busiest_files_directories_and_clients() {
    let pool = Pool::new(2);
    pool.volume("v", 2, &[(0, "b"), (1, "b")]);
    let mount = pool.mount("v");
    fs::create_dir_all(mount.path("a/deep")).unwrap();
    fs::write(mount.path("a/deep/busy"), vec![0; 1 << 16]).unwrap();
    fs::write(mount.path("calm"), "x").unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let busy = fs::OpenOptions::new().write(true).open(mount.path("a/deep/busy")).unwrap();
            let calm = fs::OpenOptions::new().write(true).open(mount.path("calm")).unwrap();
            let mut n = 0u32;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                busy.write_all_at(&[1; 4096], 0).unwrap();
                if n.is_multiple_of(10) {
                    calm.write_all_at(&[1; 10], 0).unwrap();
                    fs::write(mount.path(&format!("a/deep/new{n}")), "").unwrap();
                }
                n += 1;
            }
        });
        let first = |line: &str| pool.json(&format!("volume top v {line} --seconds 1"))["rates"][0].clone();
        for by in ["operations", "bytes"] {
            let file = first(&format!("files --by {by}"));
            assert_eq!(file["what"], "/a/deep/busy", "{file}");
            assert!(file["per_second"].as_u64().unwrap() > 0);
        }
        assert_eq!(first("directories")["what"], "/a/deep");
        let client = first("clients");
        assert!(client["what"].as_str().unwrap().starts_with("127.0.0.1 "), "{client}");
        let table = pool.ok("volume top v files --by bytes --once --seconds 1 --lines 1");
        assert!(table.contains("BYTES/S") && table.contains("/a/deep/busy"), "{table}");
        assert!(!table.contains("calm"), "one line was asked for: {table}");
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    mount.end();
}

/// All events that the pool tells.
fn events(pool: &Pool) -> Vec<serde_json::Value> {
    pool.ok("events --json").lines().map(|l| serde_json::from_str(l).unwrap()).collect()
}

/// How many events of that kind have all these words.
fn told(pool: &Pool, kind: &str, words: &[&str]) -> usize {
    let fits = |e: &&serde_json::Value| {
        e["kind"] == kind && words.iter().all(|w| e["text"].as_str().unwrap().contains(w))
    };
    events(pool).iter().filter(fits).count()
}

#[test]
fn events_tell_who_did_what_and_what_became_of_bricks() {
    let mut pool = Pool::new(3);
    pool.volume("v", 3, &[(0, "b"), (1, "b"), (2, "b")]);
    let mut follow = {
        let mut command = crate::harness::mortar();
        command.args(["--server", &pool.servers[0].address, "events", "--follow", "--json", "--volume", "v"]);
        command.stdout(Stdio::piped()).spawn().unwrap()
    };
    let stream = BufReader::new(follow.stdout.take().unwrap());
    let lines: Arc<Mutex<Vec<String>>> = Arc::default();
    let reader = std::thread::spawn({
        let lines = lines.clone();
        move || stream.lines().map_while(Result::ok).for_each(|line| lines.lock().unwrap().push(line))
    });
    let streamed = |words: &str| lines.lock().unwrap().iter().filter(|l| l.contains(words)).count();
    pool.ok("volume set v features.read-only on");
    pool.cli("volume set v no.such 1").refused();
    pool.ok("volume status v");
    pool.kill(2);
    let out = format!("{}:", pool.servers[2].host);
    eventually("the brick is out", || (told(&pool, "view", &["out of the view", &out]) == 1).then_some(()));
    assert_eq!(told(&pool, "server", &["is silent", &pool.servers[2].host]).min(1), 1);
    assert_eq!(told(&pool, "admin", &["volume-set", "features.read-only", ": done"]), 1);
    assert_eq!(told(&pool, "admin", &["volume-set", "no.such", "not done"]), 1);
    assert_eq!(told(&pool, "admin", &["volume-status"]), 0, "who only looks is not told");
    assert_eq!(told(&pool, "option", &["features.read-only is on"]), 1, "three servers noted it");
    assert_eq!(told(&pool, "volume", &["volume v was started"]), 1);
    let who = events(&pool).into_iter().find(|e| e["kind"] == "admin").unwrap();
    assert_eq!(who["who"], "root", "{who}");

    pool.start(2);
    eventually("it is back", || {
        (told(&pool, "view", &["holds every change again", &out]) == 1).then_some(())
    });
    eventually("the stream has all of it", || {
        (streamed("features.read-only is on") == 1 && streamed("out of the view") == 1).then_some(())
    });
    follow.kill().unwrap();
    follow.wait().unwrap();
    reader.join().unwrap();
    // What happened is kept over a restart, and nobody else can read it.
    pool.stop(0);
    pool.start(0);
    pool.wait_in_sync();
    assert_eq!(told(&pool, "admin", &["volume-set", "features.read-only", ": done"]), 1);
    let file = pool.servers[0].state().join("events");
    assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
    let table = pool.ok("events --since 1h --volume v");
    assert!(table.lines().count() > 3 && table.contains(": root: "), "{table}");
    assert!(pool.ok("events --lines 1").lines().count() == 1);
    // The newest event of all is not the volume's.
    pool.ok("pool token");
    assert_eq!(pool.ok("events --lines 1 --volume v").lines().count(), 1);
    pool.cli("events --since soon").refused_with(&["--since soon", "2h"]);
}

/// What happened before the first line that was asked for does not come after it.
#[test]
fn who_follows_events_hears_of_new_ones() {
    let pool = Pool::new(1);
    pool.volume("v", 1, &[(0, "b")]);
    pool.ok("volume set v features.read-only on");
    let mut command = std::process::Command::new("timeout");
    command.arg("3").arg(crate::harness::mortar().get_program());
    command.args(["--server", &pool.servers[0].address, "events", "--follow", "--lines", "1"]);
    let told = crate::harness::run(command).stdout;
    assert_eq!(told.lines().count(), 1, "{told}");
}

/// A frozen server keeps a write waiting: the log of the other one says so.
#[test]
fn slow_requests_are_told_with_what_held_them_up() {
    let mut pool = Pool::new(3);
    pool.volume("v", 3, &[(0, "b"), (1, "b"), (2, "b")]);
    pool.ok("volume set v diagnostics.slow-operation 300ms");
    let mount = pool.mount_with("v", &["-o", "threads=2"]);
    // Files of their own: the kernel has who makes names in one directory wait for each other.
    ["f", "g", "h"].iter().for_each(|name| fs::write(mount.path(name), "x").unwrap());
    eventually("it is closed", || pool.ok("volume status v fds").contains("no file is open").then_some(()));
    let open = fs::File::open(mount.path("f")).unwrap();
    let report = pool.json("volume status v fds");
    assert_eq!(
        report["files"],
        serde_json::json!([{ "path": "/f", "set": report["files"][0]["set"], "set_number": 1, "clients": 1 }])
    );
    drop(open);

    let bricks = pool.status("v")["bricks"].as_array().unwrap().clone();
    let secondary = bricks.iter().position(|b| b["role"] == "secondary").unwrap();
    pool.freeze(secondary);
    // One more than the mount has threads.
    std::thread::scope(|all| {
        for name in ["f", "g", "h"] {
            let path = mount.path(name);
            all.spawn(move || {
                fs::write(path, "y").expect("it goes on when the frozen server is out of the view")
            });
        }
    });
    pool.thaw(secondary);
    let words = [
        "WARN",
        ": slow: ",
        "for session",
        ", operation ",
        "meanwhile the set's thread worked",
        "were none of these",
        "it waited for a new view at last",
    ];
    // Other requests may be slow, too.
    eventually("the log says so", || {
        let logs: String = pool.servers.iter().map(|s| s.log()).collect();
        logs.lines().any(|l| words.iter().all(|w| l.contains(w))).then_some(())
    });
    eventually("the mount's log says that a call had to wait for a thread", || {
        mount.log().contains("slow: all 2 threads of this mount were at calls for ").then_some(())
    });
    // The mount tells its part, and names the request alike.
    let told = eventually("the mount's log says so", || {
        let slow = |l: &&str| l.contains("slow: ") && l.contains(" for the answers to ");
        mount.log().lines().find(slow).map(str::to_owned)
    });
    let name = told.split(" took ").next().and_then(|l| l.split_once("for session ")).unwrap().1;
    eventually("a server names it, too", || {
        let logs: String = pool.servers.iter().map(|s| s.log()).collect();
        logs.lines().any(|l| l.contains(": slow: ") && l.contains(name)).then_some(())
    });

    let file = pool.dir.join("bundle.json");
    let line = format!("support bundle {}", file.display());
    pool.ok(&line);
    let bundle: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert_eq!(bundle["missing"], serde_json::json!([]), "{bundle}");
    for part in
        ["peers", "doctor", "configuration", "volumes", "status", "events", "clients of v", "queues of v"]
    {
        assert!(!bundle[part].is_null(), "{part}");
    }
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    pool.cli(&line).refused_with(&["bundle.json"]);
    let told: serde_json::Value = serde_json::from_str(&pool.ok("support bundle -")).unwrap();
    let parts =
        |bundle: &serde_json::Value| -> Vec<String> { bundle.as_object().unwrap().keys().cloned().collect() };
    assert_eq!(parts(&told), parts(&bundle));
    mount.end();
}

#[test]
fn the_doctor_finds_what_is_wrong() {
    let mut pool = Pool::new(3);
    pool.volume("v", 3, &[(0, "b"), (1, "b"), (2, "b")]);
    let report = pool.json("doctor");
    assert!(report["checked"].as_array().unwrap().len() >= 5, "{report}");
    let errors = |r: &serde_json::Value| {
        r["findings"].as_array().unwrap().iter().filter(|f| f["severity"] == "error").count()
    };
    assert_eq!(errors(&report), 0, "{report}");
    pool.kill(2);
    let host = pool.servers[2].host.clone();
    let found = eventually("the copy that is missing is found", || {
        let output = pool.cli("doctor --json");
        assert_eq!(output.code, Some(1), "{}", output.stdout);
        assert!(output.stderr.contains(&host), "{}", output.stderr);
        let report: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
        let all = report["findings"].as_array().unwrap().clone();
        all.iter().any(|f| f["cause"].as_str().unwrap().contains("not in sync")).then_some(all)
    });
    let server = found.iter().find(|f| f["object"] == format!("server {host}")).expect("the server");
    assert!(server["remedy"].as_str().unwrap().contains("start it"), "{server}");
    let text = pool.cli("doctor").stdout;
    assert!(text.contains("looked at") && text.contains("ERROR: server "), "{text}");
    pool.start(2);
    eventually("all is well again", || (pool.cli("doctor").code == Some(0)).then_some(()));
}

/// A status that is watched is shown again and again, with what has changed meanwhile.
#[test]
fn a_status_that_is_watched_follows_what_happens() {
    let pool = Pool::new(1);
    pool.volume("v", 1, &[(0, "b")]);
    assert_eq!(pool.cli("volume status v --watch=0").code, Some(2));
    pool.cli("volume status none --watch").refused_with(&["volume none does not exist"]);
    let mut watch = {
        let mut command = crate::harness::mortar();
        command.args(["--server", &pool.servers[0].address, "volume", "status", "v", "--watch=1"]);
        command.stdout(Stdio::piped()).spawn().unwrap()
    };
    let mut heads = BufReader::new(watch.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok)
        .filter(|line| line.starts_with("volume v: "));
    assert_eq!(heads.next().unwrap(), "volume v: started");
    pool.ok("volume stop v --yes");
    assert!(heads.any(|line| line == "volume v: stopped"), "the watch ended");
    watch.kill().unwrap();
    watch.wait().unwrap();
}

/// Takes requests over HTTP: their bodies, and with which status each is answered. `status`: of the request of that number.
fn receiver(status: impl Fn(usize) -> u16 + Send + 'static) -> (String, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook?secret=x", listener.local_addr().unwrap());
    let (bodies, taken) = mpsc::channel();
    std::thread::spawn(move || {
        for (n, stream) in listener.incoming().enumerate() {
            // Without a body: its sender was killed.
            let Ok(body) = take(stream.unwrap(), || status(n)) else { continue };
            if bodies.send(body).is_err() {
                return;
            }
        }
    });
    (url, taken)
}

/// Takes one request and answers it: the status and the body.
fn take(stream: TcpStream, status: impl Fn() -> u16) -> io::Result<String> {
    let mut stream = BufReader::new(stream);
    let (mut head, mut length) = (String::new(), 0);
    while stream.read_line(&mut head)? > 2 {
        let line = head.lines().last().unwrap().to_ascii_lowercase();
        length = line.strip_prefix("content-length: ").map_or(length, |n| n.parse().unwrap());
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    assert!(head.starts_with("POST /hook?secret=x HTTP/1.1\r\n") || !head.ends_with("\r\n\r\n"), "{head}");
    let status = status();
    write!(stream.get_mut(), "HTTP/1.1 {status} x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")?;
    Ok(format!("{status} {}", String::from_utf8(body).unwrap()))
}

/// Events reach a receiver that is not ready at first, in order, and it is told what became of them.
#[test]
fn events_are_sent_to_a_webhook() {
    let pool = Pool::new(2);
    assert_eq!(pool.ok("events webhook"), "events are sent nowhere\n");
    pool.cli("events webhook ftp://h/").refused_with(&["webhook's address", "http://HOST"]);
    let (url, taken) = receiver(|n| if n < 2 { 503 } else { 204 });
    assert!(pool.ok(&format!("events webhook {url}")).contains("from now on"));
    let audit = pool.ok("events --lines 20");
    assert!(audit.contains("events-webhook") && !audit.contains("secret=x"), "{audit}");
    // What comes right after the answer counts, whichever server is asked.
    pool.cli_at(&pool.servers[1].address, "volume create no 127.0.0.1:relative").refused();
    pool.volume("v", 2, &[(0, "b"), (1, "b")]);
    pool.ok("volume set v network.ping-timeout 5s");
    let mut came = Vec::new();
    let wanted = ["relative", "\"name\":\"v\"", "volume-start", "volume-set"];
    while !wanted.iter().all(|w| came.iter().any(|e: &String| e.contains(w))) {
        let body = taken.recv_timeout(Duration::from_secs(30)).expect("events come");
        if let Some(lines) = body.strip_prefix("204 ") {
            for line in lines.lines() {
                let event: serde_json::Value = serde_json::from_str(line).unwrap();
                assert!(event["at_ms"].as_u64().is_some() && event["server"].is_string(), "{line}");
                came.push(event["text"].as_str().unwrap().to_owned());
            }
        }
    }
    let place = |w: &str| came.iter().position(|e| e.contains(w)).unwrap();
    assert!(
        place("\"name\":\"v\"") < place("volume-start") && place("volume-start") < place("volume-set"),
        "{came:?}"
    );
    let created = came.iter().filter(|e| *e == "volume v was created").count();
    assert_eq!(created, 1, "{came:?}");
    eventually("it is told what was sent", || {
        let report = pool.json("events webhook");
        let servers = report["servers"].as_array().unwrap();
        let sum = |field: &str| servers.iter().filter_map(|s| s[field].as_u64()).sum::<u64>();
        (sum("sent") >= 3 && sum("waiting") == 0 && sum("dropped") == 0).then_some(())
    });
    assert_eq!(pool.ok("events webhook off"), "events are sent nowhere\n");
}

/// Events that a receiver has taken, as (the server that sent it, text).
struct Taken {
    bodies: mpsc::Receiver<String>,
    events: Vec<(String, String)>,
}

impl Taken {
    /// Waits until an event with this text has come.
    fn wait_for(&mut self, text: &str) {
        let end = Instant::now() + Duration::from_secs(90);
        while !self.events.iter().any(|(_, t)| t == text) {
            let left = end.saturating_duration_since(Instant::now());
            let body = self.bodies.recv_timeout(left);
            let body = body.unwrap_or_else(|_| panic!("{text} does not come: {:?}", self.events));
            let Some(lines) = body.strip_prefix("204 ") else { continue };
            for event in lines.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()) {
                let of = |field: &str| event[field].as_str().unwrap().to_owned();
                self.events.push((of("server"), of("text")));
            }
        }
    }

    /// Which servers sent it, in the order in which it came.
    fn senders(&self, text: &str) -> Vec<&str> {
        self.events.iter().filter(|(_, t)| t == text).map(|(server, _)| server.as_str()).collect()
    }
}

/// The leader of the pool's store dies while changes of the pool wait to be sent: the next one sends them. What was taken comes
/// again at most once for each that led, and no server sends anything twice.
#[test]
fn the_next_leader_sends_what_the_one_before_had_not() {
    let mut pool = Pool::new(3);
    pool.volume("v", 3, &[(0, "b"), (1, "b"), (2, "b")]);
    let refuses = Arc::new(AtomicBool::new(false));
    let (url, bodies) = receiver({
        let refuses = refuses.clone();
        move |_| if refuses.load(Ordering::Relaxed) { 503 } else { 204 }
    });
    let mut taken = Taken { bodies, events: vec![] };
    pool.ok(&format!("events webhook {url}"));
    let change = |pool: &Pool, note: &str| {
        pool.ok(&format!("volume set v user.note {note}"));
        format!("volume v: user.note is {note} now")
    };
    let first = change(&pool, "first");
    taken.wait_for(&first);
    refuses.store(true, Ordering::Relaxed);
    let waits = ["second", "third"].map(|note| change(&pool, note));
    let status = pool.json("peer status");
    let leads = |p: &&serde_json::Value| p["id"] == status["leader"];
    let leader = status["peers"].as_array().unwrap().iter().find(leads).unwrap()["host"].as_str().unwrap();
    eventually("the leader was refused", || {
        let report = pool.json("events webhook");
        let mut servers = report["servers"].as_array().unwrap().iter();
        let own = servers.find(|s| s["server"] == leader)?;
        (own["waiting"].as_u64() >= Some(2) && own["error"].is_string()).then_some(())
    });
    let led = pool.servers.iter().position(|s| s.host == leader).unwrap();
    pool.kill(led);
    refuses.store(false, Ordering::Relaxed);
    waits.iter().for_each(|text| taken.wait_for(text));
    let last = change(&pool, "fourth");
    taken.wait_for(&last);
    for text in &waits {
        assert!(!taken.senders(text).contains(&leader), "it was refused: {:?}", taken.events);
    }
    let all = [&first, &waits[0], &waits[1], &last];
    for text in all {
        let senders = taken.senders(text);
        let different: BTreeSet<&&str> = senders.iter().collect();
        assert!(senders.len() <= 2 && different.len() == senders.len(), "{text}: {:?}", taken.events);
    }
    let firsts = all.map(|text| taken.events.iter().position(|(_, t)| t == text));
    assert!(firsts.is_sorted(), "{firsts:?}");
    pool.start(led);
    pool.wait_in_sync();
    let again = change(&pool, "fifth");
    taken.wait_for(&again);
    let report = pool.json("events webhook");
    assert!(report["servers"].as_array().unwrap().iter().all(|s| s["dropped"] == 0), "{report}");
}

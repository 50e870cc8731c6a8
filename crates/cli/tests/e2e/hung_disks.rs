//! Disks that hang: a write to them neither succeeds nor fails, until it does.
//!
//! A frozen file system (`fsfreeze`) is such a disk. All others of the server have to go on.

use crate::harness::{Alone, Disk, Mounted, Pool, alone, eventually, files};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// What is on another disk does not notice. (Before each disk had threads of its own: 2 to 3.4 s.)
const UNNOTICED: Duration = Duration::from_millis(1500);
/// `network.ping-timeout`, and the most that a failover takes from there on.
const BOUND: Duration = Duration::from_secs(5);
/// How long the disk hangs.
const HANGS: Duration = Duration::from_secs(12);

/// A frozen file system. It thaws when this is dropped, and when this process dies.
struct Frozen(Child);

impl Frozen {
    fn new(disk: &Disk) -> Frozen {
        let mut child = Command::new("sh")
            .args(["-c", "fsfreeze -f \"$1\" && echo frozen; read _; fsfreeze -u \"$1\"", "sh"])
            .arg(&disk.dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut line)
            .unwrap();
        let frozen = Frozen(child);
        assert_eq!(line, "frozen\n");
        frozen
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ended = self.0.wait();
    }
}

/// A program that writes small files to one volume, and what it was told.
#[derive(Default)]
struct Writer {
    done: AtomicUsize,
    longest: Mutex<Duration>,
}

fn content(n: usize) -> Vec<u8> {
    files::noise(n as u64, 100 + n % 5000)
}

impl Writer {
    fn run(&self, dir: &Path, stop: &AtomicBool) {
        for n in 0.. {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            let begun = Instant::now();
            let path = dir.join(format!("f{n}"));
            fs::write(&path, content(n)).unwrap();
            assert_eq!(fs::read(&path).unwrap(), content(n));
            let mut longest = self.longest.lock().unwrap();
            *longest = begun.elapsed().max(*longest);
            drop(longest);
            self.done.store(n + 1, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn check(&self, mount: &Mounted) {
        for n in 0..self.done.load(Ordering::Relaxed) {
            let there = fs::read(mount.path(&format!("f{n}")));
            assert!(there.is_ok_and(|c| c == content(n)), "f{n} was acknowledged");
        }
    }

    /// The longest time that one file took, since this was last asked.
    fn longest(&self) -> Duration {
        std::mem::take(&mut *self.longest.lock().unwrap())
    }
}

/// A volume with one set.
struct Volume {
    name: String,
    bricks: [(usize, String); 2],
    set: u64,
    primary: String,
}

/// The disk of a volume's brick on server 1. Primaries are mostly given in turns: each disk gets both kinds.
fn disk_of(volume: usize) -> usize {
    volume / 2 % 2
}

/// Volumes with one brick on each of servers 1 and 2.
fn volumes(pool: &Pool, count: usize) -> Vec<Volume> {
    let names = (0..count).map(|n| {
        let bricks = [(1, format!("disk{}/b{n}", disk_of(n))), (2, format!("disk/b{n}"))];
        let name = format!("v{n}");
        pool.volume(&name, 2, &bricks.each_ref().map(|(s, b)| (*s, b.as_str())));
        (name, bricks)
    });
    let all: Vec<_> = names.collect();
    let known = all.into_iter().map(|(name, bricks)| {
        let (set, primary) = eventually("the set is served", || {
            let status = pool.status(&name);
            let found = status["bricks"].as_array()?.iter().find(|b| b["role"] == "primary")?.clone();
            Some((found["set"].as_u64()?, found["server"].as_str()?.to_owned()))
        });
        Volume { name, bricks, set, primary }
    });
    known.collect()
}

fn in_sync(pool: &Pool, volume: &str) -> bool {
    let output = pool.cli(&format!("volume status {volume} --json"));
    let Ok(status) = serde_json::from_str::<serde_json::Value>(&output.stdout) else { return false };
    status[0]["bricks"].as_array().is_some_and(|all| all.iter().all(|b| b["in_sync"] == true))
}

fn show(what: &str, longest: &BTreeMap<&str, Duration>) {
    let shown: Vec<String> = longest.iter().map(|(v, d)| format!("{v} {:.2} s", d.as_secs_f64())).collect();
    println!("{what}: {}", shown.join(", "));
}

/// A disk of a server hangs under a primary: its set goes on with the other brick. Sets on other disks do not notice, on
/// either server. When the disk answers again its brick comes back by itself.
#[test]
fn a_hung_disk_stops_only_the_sets_on_it_and_not_for_long() {
    let alone = Alone::after_set_up();
    let mut pool = Pool::new(3);
    // All of one size: a primary compares the room of all bricks with what its own disk is to keep free.
    for (server, name) in [(1, "disk0"), (1, "disk1"), (2, "disk")] {
        let dir = pool.servers[server].path(name);
        pool.disks.push(Disk::new("ext4", &dir, 1024));
    }
    let volumes = volumes(&pool, 8);
    let host = pool.servers[1].host.clone();
    let led = |disk: usize| {
        volumes.iter().enumerate().find(|(n, v)| disk_of(*n) == disk && v.primary == host).map(|(_, v)| v)
    };
    let (hit, beside) = led(0).zip(led(1)).expect("the server leads sets on both disks");
    println!("sets {} (disk 0) and {} (disk 1) are led by {host}", hit.set, beside.set);
    let mounts: Vec<Mounted> = volumes.iter().map(|v| pool.mount(&v.name)).collect();
    alone.measures();
    let writers: Vec<Writer> = volumes.iter().map(|_| Writer::default()).collect();
    let stop = AtomicBool::new(false);
    let longest = || volumes.iter().zip(&writers).map(|(v, w)| (v.name.as_str(), w.longest())).collect();
    std::thread::scope(|scope| {
        for (writer, mount) in writers.iter().zip(&mounts) {
            let stop = &stop;
            scope.spawn(move || writer.run(&mount.dir, stop));
        }
        struct Stop<'a>(&'a AtomicBool);
        impl Drop for Stop<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let _stop = Stop(&stop);
        eventually("all write", || writers.iter().all(|w| w.done.load(Ordering::Relaxed) > 20).then_some(()));
        show("before", &longest());
        let frozen = Frozen::new(&pool.disks[0]);
        let at = Instant::now();
        let counts: Vec<usize> = writers.iter().map(|w| w.done.load(Ordering::Relaxed)).collect();
        while at.elapsed() < HANGS {
            let begun = Instant::now();
            let status = pool.cli(&format!("volume status {}", hit.name));
            let took = begun.elapsed();
            assert!(status.code == Some(0) && took < BOUND, "{took:?}: {}", status.stderr);
            std::thread::sleep(Duration::from_millis(200));
        }
        let status = pool.status(&hit.name);
        let hung =
            status["bricks"].as_array().unwrap().iter().find(|b| b["server"] == host.as_str()).unwrap();
        assert!(hung["in_sync"] == false && hung["online"] == false, "{hung}");
        let why = hung["error"].as_str().unwrap_or_default();
        assert!(why.contains("does not answer"), "{hung}");
        let during: BTreeMap<&str, Duration> = longest();
        show("while the disk hung", &during);
        for ((volume, writer), before) in volumes.iter().zip(&writers).zip(counts) {
            let done = writer.done.load(Ordering::Relaxed) - before;
            assert!(done > 20, "{}: {done} files while the disk hung", volume.name);
        }
        let worst = during.values().max().copied().unwrap_or_default();
        assert!(worst < BOUND, "a call took {worst:?}");
        for (_, volume) in volumes.iter().enumerate().filter(|(n, _)| disk_of(*n) == 1) {
            let took = during.get(volume.name.as_str()).copied().unwrap_or_default();
            assert!(took < UNNOTICED, "{}: its disks are well, and a call took {took:?}", volume.name);
            assert!(in_sync(&pool, &volume.name), "{}: its disks are well, and a brick left", volume.name);
        }
        drop(frozen);
        for volume in &volumes {
            eventually("both bricks are in sync", || in_sync(&pool, &volume.name).then_some(()));
        }
        show("afterwards", &longest());
    });
    alone.measured();
    for ((volume, writer), mount) in volumes.iter().zip(&writers).zip(&mounts) {
        writer.check(mount);
        let shown = files::tree(&mount.dir);
        for (server, brick) in &volume.bricks {
            let brick = pool.servers[*server].path(brick);
            eventually("the brick holds what the mount shows", || {
                (files::brick_tree(&brick) == shown).then_some(())
            });
        }
    }
}

/// A disk that hangs for a second, on the server of another brick than the primary's: the primary's log names that brick,
/// and the log of its server tells what it did for the same operation.
#[test]
fn a_slow_disk_of_another_brick_is_named_on_both_servers() {
    let _alone = alone();
    let pool = Pool::new(2);
    let disks = [0, 1].map(|i| Disk::new("ext4", &pool.servers[i].path("disk"), 300));
    pool.volume("v", 2, &[(0, "disk/b"), (1, "disk/b")]);
    pool.ok("volume set v diagnostics.slow-operation 300ms");
    let mount = pool.mount("v");
    fs::write(mount.path("f"), "x").unwrap();
    let status = pool.status("v");
    let secondary = usize::from(status["bricks"][1]["role"] == "secondary");
    let frozen = Frozen::new(&disks[secondary]);
    std::thread::scope(|s| {
        s.spawn(|| {
            std::thread::sleep(Duration::from_secs(1));
            drop(frozen);
        });
        fs::create_dir(mount.path("d")).unwrap();
    });
    let line = |server: usize, words: &[&str]| {
        eventually("the log says so", || {
            let log = pool.servers[server].log();
            let found = log.lines().find(|l| l.contains(": slow: ") && words.iter().all(|w| l.contains(w)));
            found.map(str::to_owned)
        })
    };
    let brick = pool.servers[secondary].brick("disk/b");
    let at_primary = line(1 - secondary, &[&format!("the last to acknowledge was brick {brick}")]);
    let named = at_primary.split_once("for session").and_then(|(_, rest)| rest.split_once(", took"));
    let named = format!("for session{}", named.unwrap().0);
    assert!(named.contains(", operation "), "{at_primary}");
    let there = line(secondary, &["the primary's change", &named]);
    assert!(there.contains("took this brick") && there.contains("the set's thread worked"), "{there}");
    mount.end();
}

//! Striped files of a volume whose sets come, stay after all and go, while servers are killed and a brick is lost (gluster/glusterfs
//! 1918: after a drain that was given up, and a rebalance, an old mount and a new one looked for shards in different places).

use crate::adopt::is_sound;
use crate::data_loss_reports::program;
use crate::drain::{await_out, drain_set};
use crate::faults::all_in_sync;
use crate::faults::wiped::empty;
use crate::grow::words;
use crate::harness::{Mounted, Pool, eventually_within, files};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

const MIB: usize = 1 << 20;
/// Sets of two copies each; the last one comes later.
const BRICKS: [(usize, &str); 8] =
    [(0, "a"), (1, "a"), (1, "b"), (2, "b"), (2, "c"), (0, "c"), (3, "d"), (0, "d")];
const LEN: usize = 4 * MIB;

/// How many files are made anew again and again.
const NEW: usize = 12;

/// What each file holds.
type Known = BTreeMap<String, Vec<u8>>;

/// What is written in a round, and where.
fn record(n: usize) -> (Vec<u8>, usize) {
    let record = files::noise(n as u64, 10_000 + (n * 7919) % 150_000);
    let at = (n * 1_234_577) % (LEN - record.len());
    (record, at)
}

fn open(dir: &Path, name: &str) -> File {
    let opened = OpenOptions::new().read(true).write(true).open(dir.join(name));
    opened.unwrap_or_else(|e| panic!("{name} in {dir:?}: {e}"))
}

/// One mount writes into the midst of files, through an open file and through fresh ones; another one reads at once what was
/// written. Both make files anew.
struct Programs {
    stop: Arc<AtomicBool>,
    written: Arc<Mutex<Known>>,
    new: Arc<Mutex<Known>>,
    running: [JoinHandle<usize>; 3],
}

impl Programs {
    fn start(mounts: &[Mounted; 2]) -> Programs {
        let stop = Arc::new(AtomicBool::new(false));
        let (written, new): (Arc<Mutex<Known>>, Arc<Mutex<Known>>) = Default::default();
        let dirs = mounts.each_ref().map(|mount| mount.dir.clone());
        for name in ["open", "closed"] {
            let content = files::noise(name.len() as u64, LEN);
            fs::write(dirs[0].join(name), &content).unwrap();
            written.lock().unwrap().insert(name.to_owned(), content);
        }
        let writes = |name: &'static str, stays_open: bool| {
            let (dirs, written) = (dirs.clone(), written.clone());
            let both = move || dirs.each_ref().map(|dir| open(dir, name));
            let kept = stays_open.then(&both);
            program(&stop, move |n| {
                let fresh = (!stays_open).then(&both);
                let [one, two] = kept.as_ref().or(fresh.as_ref()).unwrap();
                let (record, at) = record(n);
                one.write_all_at(&record, at as u64).unwrap();
                written.lock().unwrap().get_mut(name).unwrap()[at..at + record.len()]
                    .copy_from_slice(&record);
                let mut back = vec![0; record.len()];
                two.read_exact_at(&mut back, at as u64).unwrap();
                assert!(back == record, "{name}: what was written to {at} in round {n}");
            })
        };
        let (of_new, of_both) = (new.clone(), dirs.clone());
        let makes = program(&stop, move |n| {
            let (name, content) =
                (format!("new{}", n % NEW), files::noise(n as u64, MIB + MIB / 2 + n * 1000));
            let mut new = of_new.lock().unwrap();
            fs::write(of_both[n % 2].join(&name), &content).unwrap();
            is_like(&of_both[1 - n % 2], &name, &content);
            new.insert(name, content);
        });
        let running = [writes("open", true), writes("closed", false), makes];
        Programs { stop, written, new, running }
    }

    /// New files are whole in a mount, while programs go on.
    fn look(&self, mount: &Mounted, what: &str) {
        let new = self.new.lock().unwrap();
        assert!(!new.is_empty(), "{what} no file was made yet");
        new.iter().for_each(|(name, content)| is_like(&mount.dir, name, content));
        println!("{what}: {} files", new.len());
    }

    fn end(self) -> Known {
        self.stop.store(true, Ordering::Relaxed);
        let rounds = self.running.map(|program| program.join().unwrap());
        println!("records and new files: {rounds:?}");
        let [mut all, new] = [self.written, self.new].map(|known| known.lock().unwrap().clone());
        all.extend(new);
        all
    }
}

fn is_like(dir: &Path, name: &str, content: &[u8]) {
    let found = fs::read(dir.join(name)).unwrap();
    let differs = found.iter().zip(content).position(|(a, b)| a != b);
    assert_eq!((found.len(), differs), (content.len(), None), "{name} in {dir:?}: where it differs");
}

fn kill_and_start(pool: &mut Pool, server: usize) {
    pool.kill(server);
    pool.start(server);
    all_in_sync(pool);
}

fn files_move(pool: &Pool, bricks: &[(usize, &str)]) {
    eventually_within(Duration::from_secs(90), "files move", || {
        (drain_set(pool, bricks, "status")["moved"]["files"].as_u64()? >= 3).then_some(())
    });
}

/// A new set; a drain that is given up, with a kill in its midst; a brick that is lost and filled again; a rebalance; a set that
/// goes, with a kill in the midst of that.
#[test]
fn striped_files_stay_whole_over_a_drain_that_is_given_up_and_lost_bricks() {
    let mut pool = Pool::new(4);
    pool.expect_errors(&[
        "is not a brick",
        "open brick",
        "could not be applied",
        "is not as the change expects",
    ]);
    pool.volume("v", 2, &BRICKS[..6]);
    pool.ok("volume set v cluster.stripe-count 3");
    pool.ok("volume set v cluster.stripe-size 64KB");
    pool.ok("volume set v cluster.rebalance-throttle fast");
    all_in_sync(&pool);
    let old = [pool.mount("v"), pool.mount("v")];
    let dirs: Vec<PathBuf> = (0..12).map(|d| old[0].path(&format!("d{d}"))).collect();
    for (d, dir) in dirs.iter().enumerate() {
        fs::create_dir(dir).unwrap();
        (0..6).for_each(|f| fs::write(dir.join(format!("f{f}")), files::noise(d as u64, 9000)).unwrap());
    }
    let programs = Programs::start(&old);
    for brick in pool.paths(&BRICKS[..6]) {
        let pieces =
            fs::read_dir(brick.join(".mortar/orphans")).unwrap().map(|e| e.unwrap().metadata().unwrap());
        assert!(pieces.map(|m| m.len()).sum::<u64>() > MIB as u64, "pieces are on all sets");
    }
    pool.ok(&format!("volume add-brick v {}", words(&pool, &BRICKS[6..])));
    all_in_sync(&pool);

    drain_set(&pool, &BRICKS[2..4], "start");
    files_move(&pool, &BRICKS[2..4]);
    kill_and_start(&mut pool, 1);
    drain_set(&pool, &BRICKS[2..4], "stop");
    let new = pool.mount("v");
    programs.look(&new, "after a drain that was given up");

    pool.kill(2);
    empty(&pool.servers[2].path("c"));
    pool.start(2);
    all_in_sync(&pool);
    programs.look(&new, "after a brick was lost");

    pool.ok("volume rebalance v start");
    kill_and_start(&mut pool, 0);
    pool.ok("volume rebalance v stop");

    drain_set(&pool, &BRICKS[..2], "start");
    kill_and_start(&mut pool, 3);
    drain_set(&pool, &BRICKS[..2], "force");
    kill_and_start(&mut pool, 2);
    await_out(&pool, &[pool.servers[0].brick("a"), pool.servers[1].brick("a")]);
    all_in_sync(&pool);
    programs.look(&new, "after a set was taken out");

    let known = programs.end();
    for mount in [&old[0], &old[1], &new] {
        known.iter().for_each(|(name, content)| is_like(&mount.dir, name, content));
    }
    for (d, dir) in dirs.iter().enumerate() {
        (0..6).for_each(|f| is_like(dir, &format!("f{f}"), &files::noise(d as u64, 9000)));
    }
    let bricks = pool.status("v")["bricks"].as_array().unwrap().clone();
    old.into_iter().chain([new]).for_each(Mounted::end);
    (0..4).for_each(|s| pool.stop(s));
    bricks.iter().for_each(|brick| is_sound(Path::new(brick["path"].as_str().unwrap())));
}

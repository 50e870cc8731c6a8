//! A primary is killed in the midst of many changes, some of which have not reached all of the others: these stay in sync,
//! and no application sees an error.

use super::verify::{Kept, all_in_sync, verify};
use super::writer::Writer;
use super::{KILLED, primary};
use crate::harness::{Alone, Mounted, Pool, eventually, files};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Two more servers, so that the pool's store does not notice.
const BRICKS: [(usize, &str); 3] = [(2, "b"), (3, "b"), (4, "b")];
const ARBITER: usize = 4;
/// A link is cut for so long before the primary dies: enough for changes to pile up, too short for a brick to be left out.
const PILE_UP: Duration = Duration::from_millis(300);
const WRITERS: usize = 6;
const KILLS: usize = 6;

/// Threads that keep many changes under way, and take no error.
struct Load {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    fn start(mount: &Mounted) -> Load {
        let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let threads = (0..WRITERS)
            .map(|n| {
                let (dir, stop, done) = (mount.path(&format!("load{n}")), stop.clone(), done.clone());
                std::thread::spawn(move || work(&dir, &stop, &done))
            })
            .collect();
        Load { stop, done, threads }
    }

    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().for_each(|t| t.join().unwrap());
    }
}

fn work(dir: &PathBuf, stop: &AtomicBool, done: &AtomicU64) {
    fs::create_dir(dir).unwrap();
    let data = files::noise(1, 256 << 10);
    for n in 0_u64.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let (name, other) = (dir.join(format!("f{}", n % 50)), dir.join(format!("g{}", n % 50)));
        let size = [100, 4 << 10, 64 << 10, 256 << 10][usize::try_from(n % 4).unwrap()];
        fs::write(&name, &data[..size]).unwrap_or_else(|e| panic!("write {}: {e}", name.display()));
        fs::rename(&name, &other).unwrap_or_else(|e| panic!("rename {}: {e}", name.display()));
        if n % 3 == 0 {
            fs::remove_file(&other).unwrap_or_else(|e| panic!("remove {}: {e}", other.display()));
        }
        done.fetch_add(1, Ordering::Relaxed);
    }
}

/// Views that leave out another brick than the one that was killed, as servers say that propose them.
fn left_out(pool: &Pool) -> Vec<String> {
    let logs: String = pool.servers.iter().map(|s| s.log()).collect();
    let is_small =
        |line: &str| line.contains("propose {") && line.matches("BrickId(").count() < BRICKS.len() - 1;
    let lines = logs.lines().filter(|l| l.contains("its journal ends elsewhere") || is_small(l));
    lines.map(str::to_owned).collect()
}

/// How many bricks the pool calls in sync.
fn in_sync(pool: &Pool) -> usize {
    eventually("the status is told", || {
        let status: serde_json::Value =
            serde_json::from_str(&pool.cli("volume status v --json").stdout).ok()?;
        let bricks = status[0]["bricks"].as_array()?;
        Some(bricks.iter().filter(|b| b["in_sync"] == true).count())
    })
}

/// Kills the primary some times. Before, the link from it to another brick is cut, so that this one lacks what the third
/// has: each time another one.
fn killed_again_and_again(create: &str) {
    let alone = Alone::after_set_up();
    let mut pool = Pool::in_network(5);
    let bricks: Vec<String> = BRICKS.iter().map(|(i, b)| pool.servers[*i].brick(b)).collect();
    pool.ok(&format!("volume create v {create} {}", bricks.join(" ")));
    pool.ok("volume start v");
    pool.ok("volume set v cluster.quorum-type auto");
    let arbiter = create.contains("arbiter").then_some(ARBITER);
    let (mount, other) = (pool.mount("v"), pool.mount("v"));
    alone.measures();
    let writer = Writer::start(&mount, &[]);
    let load = Load::start(&other);
    for n in 0..KILLS {
        let before_left = left_out(&pool);
        let before = load.done.load(Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(500));
        writer.went_on();
        let victim = primary(&pool, 3, 0);
        let others: Vec<usize> = BRICKS.iter().map(|(i, _)| *i).filter(|i| *i != victim).collect();
        let lacks = others[n % 2];
        writer.longest();
        pool.network.as_ref().unwrap().cut(victim, lacks);
        std::thread::sleep(PILE_UP);
        pool.kill(victim);
        writer.went_on();
        let stay = in_sync(&pool);
        let pause = writer.longest().took.saturating_sub(PILE_UP);
        pool.network.as_ref().unwrap().repair();
        let done = load.done.load(Ordering::Relaxed) - before;
        // What only the arbiter has nobody can have from it: it heals, and the others wait.
        let ahead = arbiter.is_some_and(|a| a != lacks);
        println!(
            "{create}, {victim} killed, {lacks} lacks changes: pause {pause:?}, {stay} in sync, {done} files"
        );
        assert!(pause < KILLED, "{pause:?}");
        pool.start(victim);
        all_in_sync(&pool);
        if !ahead {
            assert_eq!(stay, 2, "only the one that was killed left");
            assert_eq!(left_out(&pool), before_left, "nobody is left out");
        }
    }
    load.end();
    other.end();
    let model = writer.stop();
    alone.measured();
    let with_data = if arbiter.is_some() { 2 } else { 3 };
    verify(&pool, &BRICKS[..with_data], with_data, &model, Kept::All);
}

#[test]
fn a_failover_under_load_leaves_nobody_out() {
    killed_again_and_again("replica 3");
}

#[test]
fn a_failover_under_load_with_an_arbiter() {
    killed_again_and_again("replica 3 arbiter 1");
}

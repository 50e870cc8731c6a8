//! Leader and followers: who reads the device, how many threads there are,
//! and how long a request takes.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{JoinHandle, spawn};
use std::time::{Duration, Instant};

use fuse::SessionConfig;

use crate::guard::{Mounted, mount_with};
use crate::memfs::LONG;

fn config(max_threads: usize) -> SessionConfig {
    SessionConfig { max_threads, keep_idle: 2, idle_after: Duration::from_millis(50) }
}

fn callers(m: &Mounted, count: usize) -> Vec<JoinHandle<()>> {
    let call =
        |path: PathBuf| move || assert_eq!(fs::metadata(path).unwrap_err().kind(), ErrorKind::NotFound);
    (0..count).map(|i| spawn(call(m.at(&format!("slow-{i}"))))).collect()
}

/// Answers when all are there at once: they can be only if each blocked
/// leader was replaced.
#[test]
fn blocked_leaders_are_replaced() {
    let Some(m) = mount_with(Duration::ZERO, config(64)) else { return };
    for _ in 0..50 {
        let callers = callers(&m, 16);
        drop(m.fs.take_calls(16));
        callers.into_iter().for_each(|caller| caller.join().unwrap());
    }
    // Idle threads end, but for those to keep and the leader; other tests' threads end with their tests.
    let start = Instant::now();
    while workers().len() > 3 {
        assert!(start.elapsed() < LONG, "{} threads are left", workers().len());
        std::thread::yield_now();
    }
    assert!(fs::metadata(m.at("still-served")).is_err());
}

#[test]
fn no_more_threads_than_allowed() {
    let Some(m) = mount_with(Duration::ZERO, config(4)) else { return };
    for _ in 0..50 {
        let callers = callers(&m, 16);
        for _ in 0..4 {
            let calls = m.fs.take_calls(4);
            assert_eq!(calls.len(), 4);
        }
        callers.into_iter().for_each(|caller| caller.join().unwrap());
    }
}

/// Requests that wait in the kernel are nobody's: the file system is told for how long it may have been so, once all is over.
#[test]
fn a_file_system_is_told_when_all_threads_were_busy() {
    for threads in [1, 4] {
        let Some(m) = mount_with(Duration::ZERO, config(threads)) else { return };
        let crowds = || m.fs.seen.crowds.load(Ordering::SeqCst);
        let waiting = callers(&m, threads);
        let calls = m.fs.take_calls(threads);
        assert_eq!(crowds(), 0, "{threads} threads are at requests");
        let late = callers(&m, 1);
        std::thread::sleep(Duration::from_millis(300));
        drop(calls);
        drop(m.fs.take_calls(1));
        waiting.into_iter().chain(late).for_each(|caller| caller.join().unwrap());
        let start = Instant::now();
        while crowds() == 0 {
            assert!(start.elapsed() < LONG, "it is told of {threads} threads");
            std::thread::yield_now();
        }
        let lasted = m.fs.seen.crowded_for.load(Ordering::SeqCst);
        // The last thread may say that it is at a request a moment after the test has that.
        assert!((250..10_000).contains(&lasted), "{lasted} ms");
    }
}

#[test]
fn a_single_thread_is_enough_without_blocking() {
    let Some(m) = mount_with(Duration::ZERO, config(1)) else { return };
    let work = |path: PathBuf| {
        move || {
            for i in 0..50 {
                fs::write(&path, vec![i; 3000]).unwrap();
                assert_eq!(fs::read(&path).unwrap(), vec![i; 3000]);
            }
        }
    };
    let threads: Vec<_> = (0..8).map(|i| spawn(work(m.at(&format!("f{i}"))))).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// A backend that answers every call at once, from another thread.
fn answer_all(m: &Mounted, calls: usize) -> JoinHandle<()> {
    let fs = Arc::clone(&m.fs);
    spawn(move || {
        let mut left = calls;
        while left > 0 {
            left -= fs.take_calls(1).len();
        }
    })
}

#[test]
fn many_callers_at_random_lose_nothing() {
    let Some(m) = mount_with(Duration::ZERO, config(8)) else { return };
    let (callers, each) = (16, 300);
    let answers = answer_all(&m, callers * each);
    let work = |path: PathBuf, plain: PathBuf| {
        move || {
            for _ in 0..each {
                assert!(fs::metadata(&path).is_err());
                assert!(fs::metadata(&plain).is_err());
            }
        }
    };
    let threads: Vec<_> =
        (0..callers).map(|i| spawn(work(m.at(&format!("slow{i}")), m.at(&format!("no{i}"))))).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    answers.join().unwrap();
}

fn measure(what: &str, count: usize, mut op: impl FnMut()) {
    let mut times: Vec<Duration> = (0..count)
        .map(|_| {
            let start = Instant::now();
            op();
            start.elapsed()
        })
        .collect();
    times.sort();
    let us = |time: Duration| time.as_secs_f64() * 1e6;
    let mean = us(times.iter().sum::<Duration>()) / count as f64;
    println!(
        "{what}: median {:.1}, mean {mean:.1}, p99 {:.1} us",
        us(times[count / 2]),
        us(times[count * 99 / 100])
    );
}

/// The threads of this process named as ours are.
fn workers() -> BTreeSet<String> {
    let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
    tasks
        .map(|task| task.path())
        .filter(|task| fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm == "fuse\n"))
        .map(|task| task.display().to_string())
        .collect()
}

#[test]
fn latency_at_depth_one() {
    use std::os::unix::fs::FileExt;
    let before = workers();
    let Some(m) = mount_with(Duration::from_secs(60), config(64)) else { return };
    let mut missing = (0..).map(|i| m.at(&format!("missing{i}")));
    measure("lookup miss", 20_000, || assert!(fs::metadata(missing.next().unwrap()).is_err()));
    let file =
        fs::File::options().read(true).write(true).create(true).truncate(true).open(m.at("f")).unwrap();
    file.write_all_at(&vec![7; 1 << 20], 0).unwrap();
    for size in [4096, 128 << 10, 1 << 20] {
        let mut buf = vec![0; size];
        measure(&format!("read of {size}"), 1000, || file.read_exact_at(&mut buf, 0).unwrap());
        measure(&format!("write of {size}"), 1000, || file.write_all_at(&buf, 0).unwrap());
    }
    let answers = answer_all(&m, 5000);
    let mut slow = (0..).map(|i| m.at(&format!("slow{i}")));
    measure("lookup answered by another thread", 5000, || {
        assert!(fs::metadata(slow.next().unwrap()).is_err())
    });
    answers.join().unwrap();
    println!("worker threads: {} (with those of other tests)", workers().difference(&before).count());
}

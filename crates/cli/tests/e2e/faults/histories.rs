//! Three mounts change the same files and directories at random while servers are killed, frozen and cut off; what each call
//! answered, and when, is recorded, and the history of each object must be linearizable.
//!
//! `FAULTS_LONG=1` goes on for ten minutes instead of some twenty seconds. The seed is drawn anew each time and printed;
//! `HISTORIES_SEED=N` gives one.

use super::verify::all_in_sync;
use crate::harness::{Alone, Mounted, Pool, eventually, is_long};
use linearizability::{Model, Operation, check};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Files with a value of eight bytes, files that are appended to, directories with links.
const REGISTERS: usize = 8;
const LOGS: usize = 6;
const DIRECTORIES: usize = 6;
/// Names in each directory: few, so that they meet.
const NAMES: usize = 4;
/// Threads of each mount.
const THREADS: usize = 2;
/// The pause between two calls of a thread, at most: the histories stay short enough to be checked.
const THINK: u64 = 12;

/// Three sets of two bricks with data and an arbiter; each server has one of each kind.
const BRICKS: [(usize, &str); 9] =
    [(0, "b1"), (1, "b1"), (2, "b1"), (1, "b2"), (2, "b2"), (0, "b2"), (2, "b3"), (0, "b3"), (1, "b3")];

/// A file that holds one value.
struct Register;

#[derive(Clone, Debug)]
enum OnRegister {
    Write(u64),
    Read,
}

impl Model for Register {
    type State = u64;
    type Input = OnRegister;
    type Output = u64;

    fn initial() -> u64 {
        0
    }

    fn step(state: &u64, input: &OnRegister) -> (u64, u64) {
        match input {
            OnRegister::Write(value) => (*value, 0),
            OnRegister::Read => (*state, *state),
        }
    }
}

/// A file that only grows.
struct Log;

#[derive(Clone, Debug)]
enum OnLog {
    Append(u64),
    Size,
}

impl Model for Log {
    type State = u64;
    type Input = OnLog;
    type Output = u64;

    fn initial() -> u64 {
        0
    }

    fn step(state: &u64, input: &OnLog) -> (u64, u64) {
        match input {
            OnLog::Append(n) => (state + n, 0),
            OnLog::Size => (*state, *state),
        }
    }
}

/// A directory of symbolic links: made whole in one call, so each name has a value.
struct Directory;

#[derive(Clone, Debug)]
enum OnDirectory {
    Make(usize, u64),
    Read(usize),
    Remove(usize),
    Rename(usize, usize),
    /// A rename that overlapped an equal one, both of which were done: see [`twice`].
    RenameTwice(usize, usize),
    List,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Told {
    Done,
    Missing,
    Exists,
    Value(u64),
    Names(Vec<usize>),
}

impl Model for Directory {
    type State = BTreeMap<usize, u64>;
    type Input = OnDirectory;
    type Output = Told;

    fn initial() -> BTreeMap<usize, u64> {
        BTreeMap::new()
    }

    fn step(state: &BTreeMap<usize, u64>, input: &OnDirectory) -> (BTreeMap<usize, u64>, Told) {
        let mut next = state.clone();
        let told = match input {
            OnDirectory::Make(name, _) if state.contains_key(name) => Told::Exists,
            OnDirectory::Make(name, value) => {
                next.insert(*name, *value);
                Told::Done
            }
            OnDirectory::Read(name) => state.get(name).map_or(Told::Missing, |v| Told::Value(*v)),
            OnDirectory::Remove(name) => next.remove(name).map_or(Told::Missing, |_| Told::Done),
            OnDirectory::Rename(from, to) | OnDirectory::RenameTwice(from, to) => match next.remove(from) {
                Some(value) => {
                    next.insert(*to, value);
                    Told::Done
                }
                None if matches!(input, OnDirectory::RenameTwice(..)) && state.contains_key(to) => Told::Done,
                None => Told::Missing,
            },
            OnDirectory::List => Told::Names(state.keys().copied().collect()),
        };
        (next, told)
    }
}

/// Linux looks both names of a rename up one after the other. If another client renames in between, both lead to the same
/// object, and the kernel says that all is done without asking anybody. So of two equal renames at one time, both done, one
/// may have done nothing.
fn twice(history: &mut [Operation<Directory>]) {
    let of = |o: &Operation<Directory>| match (&o.input, &o.answer) {
        (OnDirectory::Rename(from, to), Some((Told::Done, ended))) => Some((*from, *to, o.begun, *ended)),
        _ => None,
    };
    let renames: Vec<_> = history.iter().map(of).collect();
    for (n, one) in renames.iter().enumerate() {
        let Some((from, to, begun, ended)) = *one else { continue };
        let equal = |(m, other): (usize, &Option<(usize, usize, u64, u64)>)| {
            m != n && other.is_some_and(|(f, t, b, e)| (f, t) == (from, to) && b < ended && begun < e)
        };
        if renames.iter().enumerate().any(equal) {
            history[n].input = OnDirectory::RenameTwice(from, to);
        }
    }
}

/// What was recorded of the objects of one kind.
type Histories<M> = Vec<Mutex<Vec<Operation<M>>>>;

struct Records {
    begun: Instant,
    registers: Histories<Register>,
    logs: Histories<Log>,
    directories: Histories<Directory>,
    values: AtomicU64,
    stop: AtomicBool,
}

fn histories<M: Model>(count: usize) -> Histories<M> {
    (0..count).map(|_| Mutex::default()).collect()
}

impl Records {
    fn new() -> Records {
        Records {
            begun: Instant::now(),
            registers: histories(REGISTERS),
            logs: histories(LOGS),
            directories: histories(DIRECTORIES),
            values: AtomicU64::new(1),
            stop: AtomicBool::new(false),
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_nanos()).unwrap()
    }

    /// A value that was never used before.
    fn value(&self) -> u64 {
        self.values.fetch_add(1, Ordering::Relaxed)
    }

    /// Carries out one call and notes it. No fault of this test explains an error: there always is a quorum.
    fn note<M: Model>(
        &self,
        history: &Mutex<Vec<Operation<M>>>,
        input: M::Input,
        call: impl FnOnce() -> io::Result<M::Output>,
    ) {
        let begun = self.now();
        let told = call();
        let ended = self.now();
        match told {
            Ok(output) => {
                history.lock().unwrap().push(Operation { input, begun, answer: Some((output, ended)) })
            }
            Err(e) => panic!("{input:?} failed: {e}"),
        }
    }
}

fn name(n: usize) -> String {
    format!("n{n}")
}

/// What a call on names told, as the model says it.
fn told(result: io::Result<Told>) -> io::Result<Told> {
    match result {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Told::Missing),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(Told::Exists),
        other => other,
    }
}

fn on_directory(dir: &Path, input: &OnDirectory) -> io::Result<Told> {
    let at = |n: &usize| dir.join(name(*n));
    told(match input {
        OnDirectory::Make(n, value) => {
            std::os::unix::fs::symlink(value.to_string(), at(n)).map(|()| Told::Done)
        }
        OnDirectory::Read(n) => {
            fs::read_link(at(n)).map(|t| Told::Value(t.to_str().unwrap().parse().unwrap()))
        }
        OnDirectory::Remove(n) => fs::remove_file(at(n)).map(|()| Told::Done),
        OnDirectory::Rename(from, to) | OnDirectory::RenameTwice(from, to) => {
            fs::rename(at(from), at(to)).map(|()| Told::Done)
        }
        OnDirectory::List => fs::read_dir(dir).and_then(|entries| {
            let mut names = Vec::new();
            for e in entries {
                names.push(e?.file_name().to_str().unwrap()[1..].parse().unwrap());
            }
            names.sort_unstable();
            Ok(Told::Names(names))
        }),
    })
}

/// One thread's files, held open at its mount.
struct Worker<'a> {
    records: &'a Records,
    root: PathBuf,
    /// Bytes of each file before those that change.
    before: u64,
    held: Vec<File>,
    rng: StdRng,
}

impl Worker<'_> {
    fn run(mut self) {
        while !self.records.stop.load(Ordering::Relaxed) {
            match self.rng.random_range(0..10) {
                0..3 => self.register(),
                3..5 => self.log(),
                _ => self.directory(),
            }
            std::thread::sleep(Duration::from_millis(self.rng.random_range(0..THINK)));
        }
    }

    fn register(&mut self) {
        let n = self.rng.random_range(0..REGISTERS);
        let fresh = self.rng.random_bool(0.5);
        let path = self.root.join(format!("r{n}"));
        let opened = fresh.then(|| File::options().read(true).write(true).open(path).unwrap());
        let file = opened.as_ref().unwrap_or(&self.held[n]);
        let history = &self.records.registers[n];
        if self.rng.random_bool(0.4) {
            let value = self.records.value();
            self.records.note(history, OnRegister::Write(value), || {
                file.write_all_at(&value.to_le_bytes(), self.before).map(|()| 0)
            });
        } else {
            self.records.note(history, OnRegister::Read, || {
                let mut bytes = [0; 8];
                file.read_exact_at(&mut bytes, self.before)?;
                Ok(u64::from_le_bytes(bytes))
            });
        }
    }

    fn log(&mut self) {
        let n = self.rng.random_range(0..LOGS);
        let path = self.root.join(format!("l{n}"));
        let history = &self.records.logs[n];
        if self.rng.random_bool(0.5) {
            let mut file = File::options().append(true).open(path).unwrap();
            let len = self.rng.random_range(1..50);
            let bytes = vec![b'x'; usize::try_from(len).unwrap()];
            self.records.note(history, OnLog::Append(len), || file.write_all(&bytes).map(|()| 0));
        } else {
            self.records.note(history, OnLog::Size, || fs::metadata(&path).map(|m| m.len() - self.before));
        }
    }

    fn directory(&mut self) {
        let n = self.rng.random_range(0..DIRECTORIES);
        let dir = self.root.join(format!("d{n}"));
        let one = self.rng.random_range(0..NAMES);
        let other = (one + self.rng.random_range(1..NAMES)) % NAMES;
        let input = match self.rng.random_range(0..10) {
            0..3 => OnDirectory::Make(one, self.records.value()),
            3..6 => OnDirectory::Read(one),
            6 => OnDirectory::Remove(one),
            7 | 8 => OnDirectory::Rename(one, other),
            _ => OnDirectory::List,
        };
        self.records.note(&self.records.directories[n], input.clone(), || on_directory(&dir, &input));
    }
}

/// Makes the shared objects: each directory may live on another set, and a part of the files lies in each.
fn make_objects(root: &Path, before: u64) {
    let before = vec![0; usize::try_from(before).unwrap()];
    for n in 0..REGISTERS {
        fs::write(root.join(format!("r{n}")), [&before[..], &0u64.to_le_bytes()].concat()).unwrap();
    }
    for n in 0..LOGS {
        fs::write(root.join(format!("l{n}")), &before).unwrap();
    }
    for n in 0..DIRECTORIES {
        fs::create_dir(root.join(format!("d{n}"))).unwrap();
    }
}

/// One fault of one server, and its end; then all heals.
fn fault(pool: &mut Pool, kind: usize, rng: &mut StdRng) -> &'static str {
    let server = rng.random_range(0..pool.servers.len());
    let lasts = Duration::from_millis(rng.random_range(1000..5000));
    let what = ["kill", "freeze", "cut off"][kind % 3];
    println!("server {server}: {what} for {lasts:?}");
    match kind % 3 {
        0 => {
            pool.kill(server);
            std::thread::sleep(lasts);
            pool.start(server);
        }
        1 => {
            pool.freeze(server);
            std::thread::sleep(lasts);
            pool.thaw(server);
        }
        _ => {
            pool.network.as_ref().unwrap().isolate(server);
            std::thread::sleep(lasts);
            pool.network.as_ref().unwrap().repair();
        }
    }
    stay_in_sync(pool);
    what
}

/// Waits until all bricks are in sync and stay so for a while: a brick whose silence was noticed only as it ended leaves a
/// moment later, and the next fault would be a second one.
fn stay_in_sync(pool: &Pool) {
    let views = || {
        all_in_sync(pool);
        let bricks = pool.status("v")["bricks"].clone();
        let epochs = bricks.as_array().unwrap().iter().map(|b| b["epoch"].as_u64().unwrap_or(0));
        epochs.collect::<Vec<_>>()
    };
    let (mut since, mut seen) = (Instant::now(), views());
    eventually("the views do not change any more", || {
        let now = views();
        if now != seen {
            (since, seen) = (Instant::now(), now);
        }
        (since.elapsed() > Duration::from_millis(1500)).then_some(())
    });
}

fn examine<M: Model>(kind: &str, histories: &Histories<M>) -> usize {
    let mut sum = 0;
    for (n, history) in histories.iter().enumerate() {
        let history = history.lock().unwrap();
        sum += history.len();
        if let Err(wrong) = check(&history) {
            panic!("{kind} {n} is not linearizable: {wrong}");
        }
    }
    sum
}

#[test]
fn three_mounts_see_one_history() {
    three_mounts("", 0);
}

/// Likewise of files whose data lies on all three sets.
#[test]
fn three_mounts_see_one_history_of_striped_files() {
    three_mounts("stripe 3 ", 300_000);
}

/// `before`: bytes of each file before those that change.
fn three_mounts(words_of_create: &str, before: u64) {
    let alone = Alone::after_set_up();
    let seed = std::env::var("HISTORIES_SEED").ok().map_or_else(rand::random, |s| s.parse().unwrap());
    println!("HISTORIES_SEED={seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let mut pool = Pool::in_network(3);
    pool.expect_errors(&["could not be applied", "is not as the change expects"]);
    let words: Vec<String> = BRICKS.iter().map(|(s, b)| pool.servers[*s].brick(b)).collect();
    pool.ok(&format!("volume create v replica 3 arbiter 1 {words_of_create}{}", words.join(" ")));
    for option in ["cluster.stripe-size 64KB", "cluster.large-file-size 256KB"].iter().filter(|_| before > 0)
    {
        pool.ok(&format!("volume set v {option}"));
    }
    pool.ok("volume start v");
    let mounts: Vec<Mounted> = (0..3).map(|_| pool.mount("v")).collect();
    all_in_sync(&pool);
    make_objects(&mounts[0].dir, before);
    stay_in_sync(&pool);
    alone.measures();
    let records = Records::new();
    let lasts = Duration::from_secs(if is_long() { 600 } else { 12 });
    let mut faults = Vec::new();
    std::thread::scope(|scope| {
        for mount in &mounts {
            for _ in 0..THREADS {
                let open =
                    |n: usize| File::options().read(true).write(true).open(mount.path(&format!("r{n}")));
                let held = (0..REGISTERS).map(|n| open(n).unwrap()).collect();
                let root = mount.dir.clone();
                let worker = Worker {
                    records: &records,
                    root,
                    before,
                    held,
                    rng: StdRng::seed_from_u64(rng.random()),
                };
                scope.spawn(move || worker.run());
            }
        }
        let first = rng.random_range(0..3);
        while records.begun.elapsed() < lasts || faults.len() < 3 {
            faults.push(fault(&mut pool, first + faults.len(), &mut rng));
        }
        records.stop.store(true, Ordering::Relaxed);
    });
    alone.measured();
    records.directories.iter().for_each(|d| twice(&mut d.lock().unwrap()));
    let calls = examine("register", &records.registers)
        + examine("log", &records.logs)
        + examine("directory", &records.directories);
    println!(
        "{calls} calls of {} threads on {} objects, {} faults, in {:?}: linearizable",
        THREADS * mounts.len(),
        REGISTERS + LOGS + DIRECTORIES,
        faults.len(),
        records.begun.elapsed()
    );
    assert!(calls > 500, "only {calls} calls");
    for mount in mounts {
        mount.end();
    }
}

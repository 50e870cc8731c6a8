//! Pools of servers.

use super::{Disk, Mounted, Network, Output, eventually, mortar, mortar_elsewhere, plain, run, spawn};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

/// How long one test may take before its processes are killed, so that nothing hangs for ever.
fn limit() -> Duration {
    Duration::from_secs(if super::is_long() { 900 } else { 240 })
}

/// One server, running or not.
pub(crate) struct Server {
    pub(crate) host: String,
    pub(crate) address: String,
    pub(crate) folder: PathBuf,
    /// More words of its command line.
    pub(crate) words: Vec<String>,
    /// It runs as if on another machine: without the sockets of this one.
    pub(crate) elsewhere: bool,
    child: Option<Child>,
    frozen: bool,
}

/// A pool, and its mounts.
pub(crate) struct Pool {
    pub(crate) dir: PathBuf,
    pub(crate) port: u16,
    pub(crate) servers: Vec<Server>,
    subnet: String,
    mounts: AtomicU32,
    /// Processes to kill when the test takes too long.
    pub(super) pids: Arc<Mutex<Vec<i32>>>,
    finished: mpsc::Sender<()>,
    /// Errors in logs that a test provokes.
    expected_errors: Vec<&'static str>,
    /// File systems of bricks.
    pub(crate) disks: Vec<Disk>,
    pub(crate) network: Option<Network>,
}

static COUNTER: AtomicU32 = AtomicU32::new(0);

impl Server {
    fn new(host: String, address: String, folder: PathBuf) -> Server {
        Server { host, address, folder, words: vec![], elsewhere: false, child: None, frozen: false }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().expect("the server runs").id()
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.folder.join("state")
    }

    /// Its local socket.
    pub(crate) fn socket(&self) -> String {
        self.state().join("socket").display().to_string()
    }

    /// A directory of this server, as HOST:/PATH.
    pub(crate) fn brick(&self, name: &str) -> String {
        format!("{}:{}", self.host, self.path(name).display())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

/// A port that nobody has on the first address now.
fn free_port(subnet: &str) -> u16 {
    TcpListener::bind((format!("{subnet}.11"), 0)).unwrap().local_addr().unwrap().port()
}

impl Pool {
    /// A pool of `count` servers.
    pub(crate) fn new(count: usize) -> Pool {
        Pool::probed(Pool::apart(count))
    }

    /// A pool without keys, whose servers were first started by a version that made none.
    pub(crate) fn plain(count: usize) -> Pool {
        Pool::probed(Pool::make(count, None, plain::make_state))
    }

    /// Lets nobody in without a key any more.
    pub(crate) fn secure(&self) {
        let socket = self.servers[0].socket();
        self.cli_at(&socket, "pool secure --yes").ok();
        self.wait_in_sync();
    }

    fn probed(pool: Pool) -> Pool {
        for i in 1..pool.servers.len() {
            let probe = format!("peer probe {}:{}", pool.servers[i].host, pool.port);
            pool.ok(&probe);
        }
        pool.wait_in_sync();
        pool
    }

    /// So many servers, each a pool of its own.
    pub(crate) fn apart(count: usize) -> Pool {
        Pool::make(count, None, |_| {})
    }

    /// A pool whose servers are in network namespaces of their own.
    pub(crate) fn in_network(count: usize) -> Pool {
        super::turn::beside_others();
        Pool::probed(Pool::make(count, Some(Network::new(count)), |_| {}))
    }

    /// `before`: what is done to each server before its first start.
    fn make(count: usize, network: Option<Network>, before: fn(&Server)) -> Pool {
        super::turn::beside_others();
        let n = COUNTER.fetch_add(1, Ordering::Relaxed);
        let (a, b) = (1 + std::process::id() % 200, std::process::id() / 200 % 250);
        let mut subnet = format!("127.{a}.{}", (b + n) % 250);
        let dir = std::env::temp_dir().join(format!("mortar-e2e.{}.{n}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        let port = free_port(&subnet);
        if network.is_some() {
            subnet = Network::SUBNET.to_owned();
        }
        let (finished, wait) = mpsc::channel();
        let pids: Arc<Mutex<Vec<i32>>> = Arc::default();
        let mounts = AtomicU32::new(0);
        let watched = pids.clone();
        std::thread::spawn(move || watchdog(&wait, &watched));
        let (servers, expected_errors, disks) = (vec![], vec![], vec![]);
        let mut pool =
            Pool { dir, port, servers, subnet, mounts, pids, finished, expected_errors, disks, network };
        for i in 0..count {
            let host = pool.host(i);
            let folder = pool.dir.join(format!("s{i}"));
            fs::create_dir(&folder).unwrap();
            let address = format!("{host}:{port}");
            pool.servers.push(Server::new(host, address, folder));
            before(&pool.servers[i]);
            if i == 0 && pool.network.is_none() {
                pool.start_first();
            } else {
                pool.start(i);
            }
        }
        pool
    }

    /// Starts the first server, on another port if somebody has taken that one since it was found to be free.
    fn start_first(&mut self) {
        for _ in 0..5 {
            match self.try_start(0) {
                Err(why) if why.contains("the port is in use") => {
                    self.port = free_port(&self.subnet);
                    self.servers[0].address = format!("{}:{}", self.host(0), self.port);
                }
                started => return started.unwrap_or_else(|why| panic!("server 0 does not start: {why}")),
            }
        }
        panic!("no port is free");
    }

    /// One more server, which joins with a token and is started by the test.
    pub(crate) fn one_more(&mut self) -> usize {
        let i = self.servers.len();
        let host = self.host(i);
        let folder = self.dir.join(format!("s{i}"));
        fs::create_dir(&folder).unwrap();
        let address = format!("{host}:{}", self.port);
        self.servers.push(Server::new(host, address, folder));
        i
    }

    fn host(&self, i: usize) -> String {
        format!("{}.{}", self.subnet, 11 + i)
    }

    /// Another address of this pool that nobody uses.
    pub(crate) fn spare_address(&self) -> String {
        format!("{}.200:{}", self.subnet, self.port)
    }

    pub(crate) fn expect_errors(&mut self, words: &[&'static str]) {
        self.expected_errors.extend(words);
    }

    /// Starts a server that is not running; it serves afterwards.
    pub(crate) fn start(&mut self, i: usize) {
        if let Err(why) = self.try_start(i) {
            panic!("server {i} does not start: {why}");
        }
    }

    /// Starts a server, or tells the line it refuses with.
    pub(crate) fn try_start(&mut self, i: usize) -> Result<(), String> {
        self.try_start_with(i, &[])
    }

    /// The same with more words.
    pub(crate) fn try_start_with(&mut self, i: usize, words: &[&str]) -> Result<(), String> {
        let server = &mut self.servers[i];
        assert!(server.child.is_none());
        let errors = server.folder.join("stderr");
        let here = if server.elsewhere { mortar_elsewhere } else { mortar };
        let command = self.network.as_ref().map_or_else(here, |n| n.mortar(i));
        let mut child = spawn(command, |c| {
            c.args(["server", "--address", &server.address, "--state"]).arg(server.state());
            c.arg("--log").arg(server.folder.join("log")).args(&server.words).args(words);
            c.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::create(&errors).unwrap());
        });
        self.pids.lock().unwrap().push(i32::try_from(child.id()).unwrap());
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        if line.trim_end() == format!("ready {}", server.address) {
            server.child = Some(child);
            return Ok(());
        }
        let code = child.wait().unwrap().code();
        let why = fs::read_to_string(&errors).unwrap();
        let output = Output { code, stdout: line, stderr: why };
        Err(output.refused())
    }

    /// Ends a server in order.
    pub(crate) fn stop(&mut self, i: usize) {
        let code = self.signal(i, Signal::TERM);
        assert_eq!(code, Some(0), "server {i} did not end cleanly: {}", self.servers[i].log());
    }

    /// Ends a server at once.
    pub(crate) fn kill(&mut self, i: usize) {
        self.signal(i, Signal::KILL);
    }

    /// Waits until a server has ended by itself, as failed.
    pub(crate) fn await_end(&mut self, i: usize) {
        let mut child = self.servers[i].child.take().expect("the server runs");
        let status = eventually("the server ends by itself", || child.try_wait().unwrap());
        self.pids.lock().unwrap().retain(|p| i64::from(*p) != i64::from(child.id()));
        assert_eq!(status.code(), Some(1), "{}", self.servers[i].log());
    }

    fn signal(&mut self, i: usize, signal: Signal) -> Option<i32> {
        let mut child = self.servers[i].child.take().expect("the server runs");
        self.servers[i].frozen = false;
        let raw = i32::try_from(child.id()).unwrap();
        kill_process(Pid::from_raw(raw).unwrap(), signal).unwrap();
        let status = eventually("the server ends", || child.try_wait().unwrap());
        self.pids.lock().unwrap().retain(|p| *p != raw);
        status.code()
    }

    /// Stops a server in the midst of whatever it does.
    pub(crate) fn freeze(&mut self, i: usize) {
        self.send(i, Signal::STOP);
        self.servers[i].frozen = true;
    }

    /// A frozen server goes on.
    pub(crate) fn thaw(&mut self, i: usize) {
        self.send(i, Signal::CONT);
        self.servers[i].frozen = false;
    }

    fn send(&self, i: usize, signal: Signal) {
        let raw = i32::try_from(self.servers[i].pid()).unwrap();
        kill_process(Pid::from_raw(raw).unwrap(), signal).unwrap();
    }

    /// Runs a command against the first server that runs.
    pub(crate) fn cli(&self, line: &str) -> Output {
        let cut = |i| self.network.as_ref().is_some_and(|n| n.is_cut(i));
        let runs = |(i, s): &(usize, &Server)| s.child.is_some() && !s.frozen && !cut(*i);
        let at = self.servers.iter().enumerate().find(runs).expect("a server runs").1;
        self.cli_at(&at.address, line)
    }

    pub(crate) fn cli_at(&self, server: &str, line: &str) -> Output {
        let mut command = self.network.as_ref().map_or_else(mortar, Network::mortar_outside);
        command.arg("--server").arg(server).args(line.split(' '));
        run(command)
    }

    /// Runs a command on a server's machine, without naming a server.
    pub(crate) fn cli_on(&self, i: usize, line: &str) -> Output {
        let mut command = self.network.as_ref().map_or_else(mortar, |n| n.mortar(i));
        command.args(line.split(' '));
        run(command)
    }

    #[track_caller]
    pub(crate) fn ok(&self, line: &str) -> String {
        self.cli(line).ok()
    }

    #[track_caller]
    pub(crate) fn json(&self, line: &str) -> serde_json::Value {
        serde_json::from_str(&self.cli(&format!("{line} --json")).ok()).unwrap()
    }

    /// Waits until all servers are seen by all, and hold their leases.
    pub(crate) fn wait_in_sync(&self) {
        for server in self.servers.iter().filter(|s| s.child.is_some()) {
            eventually("all servers are connected", || {
                let output = self.cli_at(&server.address, "peer status --json");
                let status: serde_json::Value = serde_json::from_str(&output.stdout).ok()?;
                let peers = status["peers"].as_array()?;
                let all = peers.len() == self.servers.len() && peers.iter().all(|p| p["connected"] == true);
                (all && !status["leader"].is_null()).then_some(())
            });
        }
    }

    /// Makes and starts a volume. `bricks`: server and directory of each.
    pub(crate) fn volume(&self, name: &str, replica: usize, bricks: &[(usize, &str)]) {
        let words: Vec<String> = bricks.iter().map(|(s, b)| self.servers[*s].brick(b)).collect();
        let replica = if replica > 1 { format!("replica {replica} ") } else { String::new() };
        self.ok(&format!("volume create {name} {replica}{}", words.join(" ")));
        // All tests can be run with other options: with "KEY VALUE" in the environment.
        if let Ok(option) = std::env::var("E2E_OPTION") {
            self.ok(&format!("volume set {name} {option}"));
        }
        self.ok(&format!("volume start {name}"));
    }

    /// The directories of bricks.
    pub(crate) fn paths(&self, bricks: &[(usize, &str)]) -> Vec<PathBuf> {
        bricks.iter().map(|(s, b)| self.servers[*s].path(b)).collect()
    }

    /// All servers, as a source names them.
    pub(crate) fn source(&self, volume: &str) -> String {
        let all: Vec<&str> = self.servers.iter().map(|s| s.address.as_str()).collect();
        format!("{}:/{volume}", all.join(","))
    }

    pub(crate) fn mount(&self, volume: &str) -> Mounted {
        self.mount_with(volume, &[])
    }

    pub(crate) fn mount_with(&self, volume: &str, words: &[&str]) -> Mounted {
        let n = self.mounts.fetch_add(1, Ordering::Relaxed);
        let command = self.network.as_ref().map_or_else(mortar, Network::mortar_outside);
        let dir = self.dir.join(format!("mnt{n}"));
        Mounted::new(command, &self.source(volume), &dir, words, &self.pids)
    }

    /// A mount by servers at these addresses, and in the test's own network.
    pub(crate) fn mount_from(&self, source: &str) -> Mounted {
        let n = self.mounts.fetch_add(1, Ordering::Relaxed);
        Mounted::new(mortar(), source, &self.dir.join(format!("mnt{n}")), &[], &self.pids)
    }

    /// A mount with this key.
    pub(crate) fn mount_key(&self, volume: &str, key: &Path) -> Mounted {
        self.mount_with_key(volume, key, &[])
    }

    /// The same with more words.
    pub(crate) fn mount_with_key(&self, volume: &str, key: &Path, words: &[&str]) -> Mounted {
        let n = self.mounts.fetch_add(1, Ordering::Relaxed);
        let key = format!("key={}", key.display());
        let words: Vec<&str> = words.iter().copied().chain(["-o", &key]).collect();
        Mounted::new(mortar(), &self.source(volume), &self.dir.join(format!("mnt{n}")), &words, &self.pids)
    }

    /// Makes a client's key; its file.
    pub(crate) fn client_key(&self, name: &str, volume: &str, words: &str) -> PathBuf {
        let file = self.dir.join(format!("{name}.key"));
        let line = format!("client add {name} --volume {volume} --out {} {words}", file.display());
        self.ok(line.trim_end());
        file
    }

    /// Status of one volume.
    pub(crate) fn status(&self, volume: &str) -> serde_json::Value {
        self.json(&format!("volume status {volume}"))[0].clone()
    }

    /// What the status says is wrong with a brick; bricks count from 0.
    pub(crate) fn brick_error(&self, volume: &str, brick: usize) -> Option<String> {
        self.status(volume)["bricks"][brick]["error"].as_str().map(str::to_owned)
    }
}

/// Kills the processes of a test that does not end: what hangs in them fails then.
fn watchdog(finished: &mpsc::Receiver<()>, pids: &Mutex<Vec<i32>>) {
    if finished.recv_timeout(limit()) == Err(mpsc::RecvTimeoutError::Timeout) {
        eprintln!("the test takes too long: its processes are killed");
        for pid in pids.lock().unwrap().drain(..) {
            let _gone = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let mut errors = Vec::new();
        for server in &mut self.servers {
            let log = server.log();
            let bad = log.lines().filter(|l| l.contains(" ERROR ") || l.contains("panicked"));
            errors.extend(
                bad.filter(|l| !self.expected_errors.iter().any(|e| l.contains(e)))
                    .map(|l| format!("{}: {l}", server.host)),
            );
            if let Some(mut child) = server.child.take() {
                let _gone = child.kill();
                let _ended = child.wait();
            }
            if std::thread::panicking() {
                let lines: Vec<&str> = log.lines().collect();
                let from = lines.len().saturating_sub(25);
                eprintln!("--- log of {}:\n{}", server.host, lines[from..].join("\n"));
                eprint!("{}", fs::read_to_string(server.folder.join("stderr")).unwrap_or_default());
            }
        }
        let _ended = self.finished.send(());
        self.disks.clear();
        self.network = None;
        remove(&self.dir);
        if !std::thread::panicking() {
            assert!(errors.is_empty(), "errors in logs:\n{}", errors.join("\n"));
        }
    }
}

fn remove(dir: &Path) {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let beneath = |l: &str| l.split(' ').nth(1).is_some_and(|d| Path::new(d).starts_with(dir));
    if mounts.lines().any(beneath) {
        eprintln!("{} stays: something is mounted in it", dir.display());
        return;
    }
    let mut command = Command::new("rm");
    command.arg("-rf").arg("--one-file-system").arg(dir);
    run(command);
}

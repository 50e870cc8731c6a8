//! The demo's servers, its volume and its mount.

use super::VOLUME;
use super::stage::Stage;
use super::stop::Stop;
use crate::ask::ask_at;
use crate::limits::POOL_READY_WAIT;
use crate::output;
use anyhow::{Context, anyhow, bail};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// One server of the demo.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) host: String,
    pub(super) process: u32,
    folder: PathBuf,
}

impl Server {
    fn brick(&self, n: usize) -> PathBuf {
        self.folder.join(format!("brick{n}"))
    }
}

/// The demo's pool.
#[derive(Debug)]
pub(super) struct Pool {
    folder: PathBuf,
    port: u16,
    pub(super) servers: Vec<Server>,
    /// The bricks of each set.
    pub(super) sets: Vec<Vec<PathBuf>>,
    bricks: Vec<String>,
}

fn host(i: usize) -> String {
    format!("127.0.0.{}", 11 + i)
}

/// The usual port if it is free on all addresses, else another that is.
fn free_port(servers: usize) -> anyhow::Result<u16> {
    let free = |port: u16| (0..servers).all(|i| TcpListener::bind((host(i), port)).is_ok());
    if free(transport::DEFAULT_PORT) {
        return Ok(transport::DEFAULT_PORT);
    }
    for _ in 0..50 {
        let port = TcpListener::bind((host(0), 0))
            .and_then(|l| l.local_addr())
            .context("look for a free port")?
            .port();
        if free(port) {
            return Ok(port);
        }
    }
    bail!("no port is free on all of {} to {}: stop what uses them", host(0), host(servers - 1))
}

impl Pool {
    /// Starts the servers and joins them.
    pub(super) fn start(folder: &Path, count: usize, stage: &Stage, stop: &Stop) -> anyhow::Result<Pool> {
        let port = free_port(count)?;
        let mut pool =
            Pool { folder: folder.to_owned(), port, servers: vec![], sets: vec![], bricks: vec![] };
        for i in 0..count {
            stop.check()?;
            let folder = folder.join(format!("server{}", i + 1));
            fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
            let server = pool.start_server(&host(i), folder, stage, stop)?;
            output::line(&format!("server {}:{port} runs as process {}", server.host, server.process))?;
            pool.servers.push(server);
        }
        for server in pool.servers.iter().skip(1) {
            stop.check()?;
            pool.ask(admin::PeerProbe { host: server.host.clone(), port: Some(port), fingerprint: None })?;
            output::line(&format!("{} is in the pool", server.host))?;
        }
        Ok(pool)
    }

    fn start_server(
        &self,
        host: &str,
        folder: PathBuf,
        stage: &Stage,
        stop: &Stop,
    ) -> anyhow::Result<Server> {
        let address = format!("{host}:{}", self.port);
        let mut command = program()?;
        command.args(["server", "--address", &address, "--state"]).arg(folder.join("state"));
        command.arg("--log").arg(folder.join("log"));
        let (child, ready) = spawn(command, &folder.join("stderr"))?;
        let process = child.id();
        stage.add_server(child);
        let why = || last_line(&folder.join("stderr"));
        wait_ready(&ready, stop).with_context(|| format!("server {address}: {}", why()))?;
        Ok(Server { host: host.to_owned(), process, folder })
    }

    /// The address of the first server.
    pub(super) fn address(&self) -> String {
        format!("{}:{}", host(0), self.port)
    }

    /// What to give `--server`.
    pub(super) fn server_word(&self) -> String {
        if self.port == transport::DEFAULT_PORT { host(0) } else { self.address() }
    }

    /// What to give `mortar mount`.
    pub(super) fn source(&self) -> String {
        let port =
            if self.port == transport::DEFAULT_PORT { String::new() } else { format!(":{}", self.port) };
        let hosts: Vec<String> = self.servers.iter().map(|s| format!("{}{port}", s.host)).collect();
        format!("{}:/{VOLUME}", hosts.join(","))
    }

    pub(super) fn mount_dir(&self) -> PathBuf {
        self.folder.join("mnt")
    }

    /// How many copies there are of each file.
    pub(super) fn replica(&self) -> usize {
        if self.servers.len() > 1 { 2 } else { 1 }
    }

    pub(super) fn ask<R: admin::Ask>(&self, request: R) -> anyhow::Result<R::Answer> {
        ask_at(&self.address(), request)
    }

    /// Two sets, each on two servers if there are two.
    pub(super) fn make_volume(&mut self, stop: &Stop) -> anyhow::Result<()> {
        stop.check()?;
        let (replica, count) = (self.replica(), self.servers.len());
        for set in 0..2 {
            let members = (0..replica).map(|i| (set * replica + i) % count);
            let of = |i: usize| self.servers.get(i).map(|s| (s.host.clone(), s.brick(set + 1)));
            let bricks: Vec<(String, PathBuf)> = members.filter_map(of).collect();
            self.bricks.extend(bricks.iter().map(|(host, path)| format!("{host}:{}", path.display())));
            self.sets.push(bricks.into_iter().map(|(_, path)| path).collect());
        }
        let request = admin::VolumeCreate {
            name: VOLUME.to_owned(),
            replica: Some(replica as u32).filter(|r| *r > 1),
            arbiter: None,
            stripe: None,
            bricks: self.bricks.clone(),
            force: false,
            adopt: false,
        };
        self.ask(request)?;
        let layout = if replica > 1 { format!("replica {replica} ") } else { String::new() };
        output::line(&format!("$ mortar volume create {VOLUME} {layout}{}", self.bricks.join(" ")))?;
        stop.check()?;
        self.ask(admin::VolumeStart { name: VOLUME.to_owned() })?;
        output::line(&format!("$ mortar volume start {VOLUME}"))
    }

    /// Mounts the volume.
    pub(super) fn mount(&self, stage: &Stage, stop: &Stop) -> anyhow::Result<()> {
        stop.check()?;
        let dir = self.mount_dir();
        fs::create_dir(&dir).with_context(|| format!("make {}", dir.display()))?;
        let mut command = program()?;
        command.args(["mount", "--foreground", "--tell-ready", "--log"]).arg(self.folder.join("mount.log"));
        command.arg(self.source()).arg(&dir);
        let errors = self.folder.join("mount.stderr");
        let (child, ready) = spawn(command, &errors)?;
        stage.set_mount(child, dir.clone());
        wait_ready(&ready, stop)
            .with_context(|| format!("mount {}: {}", dir.display(), last_line(&errors)))?;
        output::line(&format!("$ mortar mount {} {}", self.source(), dir.display()))
    }
}

/// This program again.
fn program() -> anyhow::Result<Command> {
    Ok(Command::new(std::env::current_exe().context("find this program")?))
}

/// Starts a child that ends with us, and gives the lines of its stdout. To be called by the main thread only: the kernel
/// ends the child when the thread that started it ends.
fn spawn(mut command: Command, errors: &Path) -> anyhow::Result<(Child, mpsc::Receiver<String>)> {
    command.arg("--die-with").arg(std::process::id().to_string());
    // A process group of its own: Ctrl-C at the terminal is for us, and we end the others in their order.
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::create(errors)?);
    let mut child = command.spawn().context("start a process of this program")?;
    let out =
        child.stdout.take().ok_or_else(|| anyhow!("start a process of this program: it has no pipe"))?;
    let (to, from) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            if to.send(line).is_err() {
                return;
            }
        }
    });
    Ok((child, from))
}

/// Waits for the line `ready ...`.
fn wait_ready(lines: &mpsc::Receiver<String>, stop: &Stop) -> anyhow::Result<()> {
    let until = Instant::now() + POOL_READY_WAIT;
    while Instant::now() < until {
        stop.check()?;
        match lines.recv_timeout(Duration::from_millis(50)) {
            Ok(line) if line.split(' ').next() == Some("ready") => return Ok(()),
            Ok(_) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => bail!("its process ended"),
        }
    }
    bail!("it is not ready after {} s", POOL_READY_WAIT.as_secs())
}

fn last_line(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap_or_default();
    let last = text.lines().rfind(|l| !l.trim().is_empty()).unwrap_or("see its log");
    last.trim_start_matches("mortar: ").to_owned()
}

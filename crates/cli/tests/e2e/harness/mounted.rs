//! Mounts.

use super::{TEST_TIMEOUT, is_mounted, spawn};
use rustix::mount::UnmountFlags;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A mounted volume; unmounted when dropped.
pub(crate) struct Mounted {
    pub(crate) dir: PathBuf,
    child: Child,
    errors: PathBuf,
    pids: Arc<Mutex<Vec<i32>>>,
}

impl Mounted {
    pub(super) fn new(
        command: Command,
        source: &str,
        dir: &Path,
        words: &[&str],
        pids: &Arc<Mutex<Vec<i32>>>,
    ) -> Mounted {
        fs::create_dir(dir).unwrap();
        let errors = dir.with_extension("stderr");
        let mut child = spawn(command, |c| {
            c.args(["mount", source]).arg(dir).args(["--foreground", "--tell-ready"]).args(words);
            c.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::create(&errors).unwrap());
        });
        pids.lock().unwrap().push(i32::try_from(child.id()).unwrap());
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let mounted = Mounted { dir: dir.to_path_buf(), child, errors, pids: pids.clone() };
        assert!(line.starts_with("ready "), "no mount: {}", mounted.log());
        mounted
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.errors).unwrap_or_default()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Stops its process in the midst of whatever it does.
    pub(crate) fn freeze(&self) {
        self.send(Signal::STOP);
    }

    /// A frozen one goes on.
    pub(crate) fn thaw(&self) {
        self.send(Signal::CONT);
    }

    fn send(&self, signal: Signal) {
        let raw = i32::try_from(self.child.id()).unwrap();
        kill_process(Pid::from_raw(raw).unwrap(), signal).unwrap();
    }

    /// Ends it by SIGTERM, in order.
    pub(crate) fn end(mut self) {
        assert_eq!(self.terminate(), Some(0), "the mount did not end cleanly: {}", self.log());
        assert!(!is_mounted(&self.dir));
    }

    fn terminate(&mut self) -> Option<i32> {
        let raw = i32::try_from(self.child.id()).unwrap();
        let _gone = kill_process(Pid::from_raw(raw).unwrap(), Signal::TERM);
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(
                begun.elapsed() < TEST_TIMEOUT,
                "the mount at {} did not end; its threads:\n{}",
                self.dir.display(),
                threads(self.child.id())
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// What each thread of a process waits for in the kernel.
fn threads(pid: u32) -> String {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap().map(|t| t.unwrap().path());
    let told = |task: PathBuf| {
        let [name, status, stack] =
            ["comm", "status", "stack"].map(|f| fs::read_to_string(task.join(f)).unwrap_or_default());
        let kept =
            status.lines().filter(|l| l.starts_with("State") || l.contains("Pnd") || l.starts_with("SigBlk"));
        format!("{} {:?}\n{stack}", name.trim(), kept.collect::<Vec<_>>())
    };
    tasks.map(told).collect()
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let raw = i32::try_from(self.child.id()).unwrap();
        if self.child.try_wait().is_ok_and(|s| s.is_none()) {
            if std::thread::panicking() {
                let log = self.log();
                let from = log.lines().count().saturating_sub(20);
                eprintln!("--- log of {}:", self.dir.display());
                log.lines().skip(from).for_each(|l| eprintln!("{l}"));
                let _gone = self.child.kill();
            } else {
                self.terminate();
            }
            let _ended = self.child.wait();
        }
        self.pids.lock().unwrap().retain(|p| *p != raw);
        if is_mounted(&self.dir) {
            let _gone = rustix::mount::unmount(&self.dir, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
        }
    }
}

//! `mortar demo` leaves nothing behind, however it ends.

use crate::harness::{eventually, files, mortar_at_a_terminal, run};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Demos have fixed addresses: two that begin at the same moment choose the same ports.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A folder for temporary files of one demo; checked and removed at the end.
struct Place {
    dir: PathBuf,
    _turn: MutexGuard<'static, ()>,
}

impl Place {
    fn new(name: &str) -> Place {
        let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let dir = std::env::temp_dir().join(format!("mortar-demo-test.{}.{name}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        Place { dir, _turn: turn }
    }

    fn demo(&self, words: &[&str]) -> Command {
        let mut command = mortar_at_a_terminal();
        command.arg("demo").args(words).env("TMPDIR", &self.dir);
        command
    }

    /// No process and no mount.
    fn await_quiet(&self) {
        let shown = self.dir.to_str().unwrap();
        eventually("no process is left", || files::processes_with(shown).is_empty().then_some(()));
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        assert!(!mounts.contains(shown), "a mount is left: {mounts}");
    }

    fn await_gone(&self) {
        self.await_quiet();
        assert_eq!(files::names(&self.dir), Vec::<String>::new(), "files are left");
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _gone = fs::remove_dir_all(&self.dir);
    }
}

fn interrupt(child: &Child, signal: Signal) {
    kill_process(Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap(), signal).unwrap();
}

#[test]
fn it_shows_and_ends() {
    let place = Place::new("whole");
    let out = run(place.demo(&["--seconds", "3"])).ok();
    print!("{out}");
    for words in ["volume demo: started", "copies of", "same bytes", "unmounted, stopped, removed"] {
        assert!(out.contains(words), "{words} is missing");
    }
    let on = |set: &str| {
        out.split(set).nth(1).unwrap().split([',', ')']).next().unwrap().trim().parse::<u32>().unwrap()
    };
    assert!(on("(set 1:") > 0 && on("set 2:") > 0, "the files are not spread over both sets");
    place.await_gone();
    // With one server, two servers, and in a given directory, which stays.
    let dir = place.dir.join("kept");
    run(place.demo(&["--seconds", "0", "--servers", "1", "--dir", dir.to_str().unwrap()])).ok();
    place.await_quiet();
    assert!(dir.join("server1/state/identity").exists());
    run(place.demo(&["--dir", dir.to_str().unwrap()])).refused_with(&["not empty"]);
    fs::remove_dir_all(dir).unwrap();
    run(place.demo(&["--seconds", "0", "--servers", "2"])).ok();
    place.await_gone();
}

/// Interrupted as soon as it says these words.
fn interrupted_at(name: &str, words: &str, signal: Signal) {
    let place = Place::new(name);
    let mut command = place.demo(&[]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let mut child = command.spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains(words) {
        line.clear();
        assert!(out.read_line(&mut line).unwrap() > 0, "the demo ended before it said {words}");
    }
    interrupt(&child, signal);
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    let status = child.wait().unwrap();
    if signal == Signal::KILL {
        return place.await_quiet();
    }
    assert_eq!(status.code(), Some(0), "{rest}");
    place.await_gone();
}

#[test]
fn it_ends_when_interrupted() {
    interrupted_at("first", "server", Signal::INT);
    interrupted_at("pool", "is in the pool", Signal::INT);
    interrupted_at("mount", "mortar mount", Signal::INT);
    interrupted_at("end", "Ctrl-C", Signal::TERM);
    interrupted_at("terminal", "copied", Signal::HUP);
    interrupted_at("killed", "copied", Signal::KILL);
}

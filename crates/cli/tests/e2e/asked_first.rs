//! What destroys, or stops serving somebody, is asked first; where nobody can be asked it needs --yes.

use crate::harness::{Pool, mortar};
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

/// Runs a command at a terminal where somebody types `answer`. Tells whether it succeeded, and what the terminal showed.
fn at_terminal(pool: &Pool, line: &str, answer: &str) -> (bool, String) {
    let program = mortar().get_program().to_owned().into_string().unwrap();
    let line = format!("{program} --server {} {line}", pool.servers[0].address);
    let mut command = Command::new("script");
    command.args(["-q", "-e", "-c", &line, "/dev/null"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    writeln!(child.stdin.take().unwrap(), "{answer}").unwrap();
    let output = child.wait_with_output().unwrap();
    (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn volumes_and_servers() {
    let pool = Pool::new(2);
    pool.volume("v", 1, &[(0, "b")]);
    let again = pool.ok("volume start v");
    assert!(again.contains("nothing to do"), "{again}");
    pool.cli("volume stop v").refused_with(&["Stop volume v?", "nothing was done", "--yes"]);
    assert_eq!(pool.json("volume info v")[0]["status"], "started");
    let (done, shown) = at_terminal(&pool, "volume stop v", "n");
    assert!(!done && shown.contains("Stop volume v?") && shown.contains("(y/N)"), "{shown}");
    assert_eq!(pool.json("volume info v")[0]["status"], "started");
    let (done, shown) = at_terminal(&pool, "volume stop v", "y");
    assert!(done, "{shown}");
    assert_eq!(pool.json("volume info v")[0]["status"], "stopped");
    assert!(pool.ok("volume stop v --yes").contains("nothing to do"));

    pool.cli("volume delete v").refused_with(&["Delete volume v?", "--yes"]);
    assert_eq!(pool.ok("volume list"), "v\n");
    pool.ok("volume delete v --yes");
    assert_eq!(pool.ok("volume list"), "");

    let detach = format!("peer detach {}", pool.servers[1].host);
    pool.cli(&detach).refused_with(&[&pool.servers[1].host, "--yes"]);
    assert_eq!(pool.json("pool list").as_array().unwrap().len(), 2);
    pool.ok(&format!("{detach} --yes"));
    assert_eq!(pool.json("pool list").as_array().unwrap().len(), 1);
}

#[test]
fn documents() {
    let pool = Pool::new(1);
    pool.volume("v", 1, &[(0, "b")]);
    let file = pool.dir.join("pool.toml");
    let exported = pool.ok("config export");
    fs::write(&file, &exported).unwrap();
    let line = |what: &str| format!("config {what} {}", file.display());
    assert_eq!(pool.ok(&line("diff")), "");

    fs::write(&file, exported.replace("status = \"started\"", "status = \"stopped\"")).unwrap();
    assert_eq!(pool.ok(&line("diff")), "stop volume v\n");
    assert_eq!(pool.json(&line("diff"))["stopped"][0], "v");
    let refused = pool.cli(&line("apply"));
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(1), "stop volume v\n"), "the plan comes first");
    assert!(
        refused.stderr.contains("Stop volume v?") && refused.stderr.contains("--yes"),
        "{}",
        refused.stderr
    );
    assert_eq!(pool.json("volume info v")[0]["status"], "started");
    assert_eq!(pool.ok(&format!("{} --yes", line("apply"))), "stop volume v\n1 change made\n");
    assert_eq!(pool.json("volume info v")[0]["status"], "stopped");

    // A dry run looks at the disks, as applying it does.
    fs::write(pool.servers[0].path("file"), "x").unwrap();
    let new = format!("[volume.w]\nbricks = [\"{}\"]\n", pool.servers[0].brick("file"));
    fs::write(&file, new).unwrap();
    assert_eq!(pool.ok(&line("diff")), "create volume w with 1 bricks\n");
    pool.cli(&format!("{} --dry-run", line("apply"))).refused_with(&["is not a directory"]);
    pool.cli(&line("apply")).refused_with(&["is not a directory"]);
    assert_eq!(pool.ok("volume list"), "v\n");
}

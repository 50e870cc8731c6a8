//! The outside suite pjdfstest (of the registry, 0.2.2; `make test` installs it) on a volume of four sets.

use crate::harness::{Pool, eventually, files, run};
use std::path::Path;
use std::process::Command;
use std::{fs, thread};

const SETTINGS: &str = r#"
[features]
posix_fallocate = {}
rename_ctime = {}
utime_now = {}
utimensat = {}
[settings]
naptime = 0.01
allow_remount = false
[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
"#;

/// What a mount without remounts, and a file system that says no bound of its links, leave out.
const SKIPPED: usize = 14;
const TESTS: usize = 398;

/// The suite makes a directory at the top, and in it one for each test. The first eight would stay on its set: with those in
/// it, each of the others has a set of its own (docs/design/0017).
fn spread_what_follows(top: &Path) {
    let suite = eventually("the suite makes its directory", || files::names(top).pop());
    (0..8).for_each(|n| fs::create_dir(top.join(&suite).join(format!("stays{n}"))).unwrap());
}

#[test]
fn a_volume_of_four_sets_passes() {
    let pool = Pool::new(4);
    pool.volume("v", 1, &[(0, "b"), (1, "b"), (2, "b"), (3, "b")]);
    let mount = pool.mount("v");
    let (settings, elsewhere) = (pool.dir.join("pjdfstest.toml"), pool.dir.join("elsewhere"));
    fs::write(&settings, SETTINGS).unwrap();
    fs::create_dir(&elsewhere).unwrap();
    let suite = || {
        let mut suite = Command::new(std::env::var_os("PJDFSTEST").unwrap_or_else(|| "pjdfstest".into()));
        suite.arg("-c").arg(&settings).arg("-p").arg(&mount.dir).arg("-s").arg(&elsewhere);
        suite
    };
    let said = thread::scope(|s| {
        s.spawn(|| spread_what_follows(&mount.dir));
        run(suite())
    });
    let failed: Vec<&str> = said.stdout.lines().filter_map(|line| line.strip_suffix("FAILED")).collect();
    let passed = TESTS - SKIPPED - failed.len();
    let summary = format!("Summary: {} failed, {SKIPPED} skipped, {passed} passed", failed.len());
    let end = said.stdout.lines().last().unwrap_or_default();
    assert!(end.starts_with(&summary), "{end} {failed:#?} {}", said.stderr);
    for test in failed {
        // They execute what they have just written, while other threads of the suite make processes, which may still hold
        // that open for writing: by itself each has to pass.
        assert!(test.trim().ends_with("::etxtbsy"), "{test}: {}", said.stderr);
        let mut alone = suite();
        alone.arg(test.trim());
        let said = run(alone);
        assert!(said.stdout.contains("Summary: 0 failed, 0 skipped, 1 passed"), "{test}: {said:?}");
    }
    for server in pool.status("v")["servers"].as_array().unwrap() {
        let done = |op: &str| server["ops"][op].as_u64().unwrap_or(0);
        assert!(done("mkdir") > 20 && done("create") > 20 && done("rename") > 2, "on each set: {server}");
    }
    mount.end();
}

//! Files that are open while their names come and go on several sets.

use super::*;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

fn text(file: &File) -> String {
    let mut all = vec![0; usize::try_from(file.metadata().unwrap().len()).unwrap()];
    file.read_exact_at(&mut all, 0).unwrap();
    String::from_utf8(all).unwrap()
}

#[test]
fn what_is_open_outlives_its_names_on_any_set() {
    let rig = Rig::new(2, &TWO);
    let dirs = &rig.dirs;
    let (one, two) = (rig.mount(), rig.mount());
    fs::write(dirs.at(&one, 0, "f"), "a").unwrap();
    let open = || File::options().read(true).write(true).open(dirs.at(&one, 0, "f")).unwrap();
    let (early, again) = (open(), open());
    fs::rename(dirs.at(&two, 0, "f"), dirs.at(&two, 1, "f")).unwrap();
    early.write_all_at(b"b", 1).unwrap();
    assert_eq!(fs::read_to_string(dirs.at(&two, 1, "f")).unwrap(), "ab");
    // Opened by its new name.
    let late = File::options().read(true).write(true).open(dirs.at(&two, 1, "f")).unwrap();
    late.write_all_at(b"c", 2).unwrap();
    assert_eq!(text(&early), "abc");
    fs::remove_file(dirs.at(&one, 1, "f")).unwrap();
    is_gone(&dirs.at(&two, 1, "f"));
    for (n, file) in [&early, &late, &again].into_iter().enumerate() {
        assert_eq!(file.metadata().unwrap().nlink(), 0);
        file.write_all_at(b"d", 3 + n as u64).unwrap();
        file.sync_all().unwrap();
    }
    assert_eq!((text(&early), text(&late)), ("abcddd".to_owned(), "abcddd".to_owned()));
    drop((early, late, again));
    two.end();
    rig.leaves_nothing(one);
}

/// One mount writes through what it holds open, another one gives the file names and takes them, a third reads.
#[test]
fn a_writer_writes_on_while_names_come_and_go() {
    let rig = Rig::new(3, &THREE);
    let dirs = &rig.dirs;
    let (one, two, three) = (rig.mount(), rig.mount(), rig.mount());
    let log = File::options().create_new(true).append(true).open(dirs.at(&one, 0, "log")).unwrap();
    let (stop, lines) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut rounds = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let n = lines.fetch_add(1, Ordering::Relaxed);
                writeln!(&log, "{n:07}").unwrap_or_else(|e| panic!("line {n}: {e}"));
            }
        });
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(4) {
            let at = |set, name: &str| dirs.at(&two, set, name);
            let set = 1 + rounds % 2;
            fs::hard_link(at(0, "log"), at(set, "l")).unwrap();
            fs::rename(at(set, "l"), at(set, "m")).unwrap();
            let known = lines.load(Ordering::Relaxed).saturating_sub(1);
            let seen = fs::metadata(dirs.at(&three, set, "m")).unwrap();
            assert!(seen.len() >= known * 8, "{} bytes after {known} lines", seen.len());
            assert_eq!(seen.nlink(), 2);
            fs::remove_file(at(set, "m")).unwrap();
            rounds += 1;
        }
        fs::rename(dirs.at(&two, 0, "log"), dirs.at(&two, 1, "log")).unwrap();
        stop.store(true, Ordering::Relaxed);
    });
    let lines = lines.into_inner();
    println!("{lines} lines, {rounds} rounds");
    assert!(rounds > 5 && lines > 100, "{lines} lines, {rounds} rounds");
    writeln!(&log, "{lines:07}").unwrap();
    drop(log);
    let wanted: String = (0..=lines).map(|n| format!("{n:07}\n")).collect();
    is_one_file(wanted.as_bytes(), &[dirs.at(&one, 1, "log"), dirs.at(&three, 1, "log")], 1);
    two.end();
    three.end();
    rig.leaves_nothing(one);
}

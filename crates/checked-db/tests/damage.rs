//! Damaged files are refused, or open with all that was in them. The opening runs in a child process: a panic, an
//! abort or an allocation without end is seen as its death.

#![allow(clippy::unwrap_used, reason = "tests")]

use redb::{Database, Durability, ReadableDatabase, ReadableTable, TableDefinition};
use std::io::Write;
use std::path::Path;
use std::process::Command;

const ROWS: TableDefinition<'_, (u32, u32, u64), &[u8]> = TableDefinition::new("rows");
const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
const COUNT: u64 = 2400;
const CHILD: &str = "CHECKED_DB_CHILD";

fn value(i: u64) -> Vec<u8> {
    let len = usize::try_from(i % 40).unwrap() + if i.is_multiple_of(500) { 9000 } else { 0 };
    vec![u8::try_from(i % 251).unwrap(); len]
}

/// A file with rows of many commits, one of them taken back, as a kill leaves it; then the same closed in order.
fn populate(dir: &Path, two_phase: bool) -> [Vec<u8>; 2] {
    let path = dir.join("whole");
    let db = checked_db::open_file(&path, 1 << 20).unwrap();
    for commit in 0..12 {
        let mut txn = db.begin_write().unwrap();
        txn.set_two_phase_commit(two_phase);
        {
            let mut rows = txn.open_table(ROWS).unwrap();
            for i in (0..COUNT).filter(|i| i % 12 == commit) {
                rows.insert((1, 2, i), value(i).as_slice()).unwrap();
            }
            txn.open_table(META).unwrap().insert("commit", commit).unwrap();
        }
        txn.commit().unwrap();
    }
    let mut txn = db.begin_write().unwrap();
    txn.set_durability(Durability::None).unwrap();
    txn.open_table(META).unwrap().insert("lazy", 1).unwrap();
    txn.commit().unwrap();
    let killed = std::fs::read(&path).unwrap();
    drop(db);
    let closed = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    [killed, closed]
}

/// One way to damage a file. Only pages with something in them are damaged.
fn damage(whole: &[u8], way: usize) -> Option<Vec<u8>> {
    let mut bad = whole.to_vec();
    let used: Vec<usize> =
        whole.chunks(4096).enumerate().filter(|(_, p)| p.iter().any(|b| *b != 0)).map(|(at, _)| at).collect();
    let flags = 8;
    let head = flags + 320 * 2;
    // The second place differs from page to page.
    let bytes = head + used.len() * 2;
    let pages = bytes + used.len() * 2;
    if way < flags {
        bad[9] ^= 1 << way;
    } else if way < head {
        let at = (way - flags) / 2;
        bad[at] ^= [1 << (at % 8), 0xff][way % 2];
    } else if way < bytes {
        let way = way - head;
        let at = [[0, 2, 4, 8][way / 2 % 4], 16 + way * 37 % 4000][way % 2];
        bad[used[way / 2] * 4096 + at] ^= [0x01, 0x02, 0xff][way / 2 % 3];
    } else if way < pages {
        let page = used[(way - bytes) / 2] * 4096;
        let other = used[((way - bytes) / 2 + 7) % used.len()] * 4096;
        let with = if way.is_multiple_of(2) { &[0; 4096] } else { &whole[other..][..4096] };
        bad[page..][..4096].copy_from_slice(with);
    } else {
        let lengths = [0, 1, 9, 100, 319, 320, 321, 4095, 4096, 4097, 8192, 12_288, 16_384, whole.len() / 2];
        let more = [whole.len() - 4096, whole.len() - 1, whole.len() + 1, whole.len() + 4096];
        let len = lengths.into_iter().chain(more).nth(way - pages)?;
        bad.resize(len, 0);
    }
    Some(bad)
}

/// Everything in the file. Also writes to it: the map of free pages has to fit.
fn walk(db: &Database) -> Result<(u64, Option<u64>), redb::Error> {
    let read = db.begin_read()?;
    let mut found = 0;
    for row in read.open_table(ROWS)?.iter()? {
        let (key, bytes) = row?;
        assert_eq!(bytes.value(), value(key.value().2), "a wrong value");
        found += 1;
    }
    let commit = read.open_table(META)?.get("commit")?.map(|v| v.value());
    let txn = db.begin_write()?;
    txn.open_table(ROWS)?.insert((3, 3, 3), vec![1; 20_000].as_slice())?;
    txn.commit()?;
    Ok((found, commit))
}

/// In the child: opens the file damaged in all ways from the one named on, and says which way it is at.
#[test]
fn child() {
    let Ok(args) = std::env::var(CHILD) else { return };
    let [file, first, strict] = args.split('|').collect::<Vec<_>>().try_into().unwrap();
    let whole = std::fs::read(file).unwrap();
    let path = Path::new(file).with_extension("bad");
    let mut refused = 0;
    for way in first.parse().unwrap().. {
        let Some(bad) = damage(&whole, way) else { break };
        std::fs::write(&path, &bad).unwrap();
        writeln!(std::io::stderr(), "\nway {way}").unwrap();
        let walked =
            checked_db::open_file(&path, 1 << 20).map_err(redb::Error::from).and_then(|db| walk(&db));
        match walked {
            Err(redb::Error::TableDoesNotExist(_)) if bad.is_empty() => {}
            Err(redb::Error::Corrupted(_) | redb::Error::Io(_) | redb::Error::UpgradeRequired(_)) => {
                refused += 1
            }
            Err(e) => panic!("{e}"),
            Ok((COUNT, Some(11))) => {}
            Ok(other) => assert!(strict == "false", "an older commit: {other:?}"),
        }
    }
    writeln!(std::io::stderr(), "\nrefused {refused}").unwrap();
}

/// What ended the child, way by way.
fn deaths(file: &Path, strict: bool) -> Vec<String> {
    let mut deaths = Vec::new();
    let mut first = 0;
    loop {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["child", "--exact", "--nocapture"])
            .env(CHILD, format!("{}|{first}|{strict}", file.display()))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&child.stderr);
        let number = |word| said.lines().rev().find_map(|l| l.strip_prefix(word)?.parse::<usize>().ok());
        if child.status.success() {
            assert!(number("refused ").unwrap() > 0 || first > 0, "no damage was seen");
            return deaths;
        }
        let way = number("way ").unwrap();
        let why = said.lines().find(|l| l.contains("panicked") || l.contains("abort")).unwrap_or("died");
        deaths.push(format!("way {way}: {why}"));
        first = way + 1;
    }
}

fn no_deaths(two_phase: bool, closed: bool) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, &populate(dir.path(), two_phase)[usize::from(closed)]).unwrap();
    let deaths = deaths(&file, two_phase || closed);
    let some = deaths.iter().take(12).cloned().collect::<Vec<_>>().join("\n");
    assert!(deaths.is_empty(), "{} deaths, among them\n{some}", deaths.len());
}

#[test]
fn a_damaged_file_that_was_closed_is_refused_or_whole() {
    no_deaths(false, true);
}

#[test]
fn a_damaged_file_of_two_phase_commits_that_was_closed_is_refused_or_whole() {
    no_deaths(true, true);
}

#[test]
fn a_damaged_file_that_was_left_by_a_kill_is_refused_or_has_an_older_commit() {
    no_deaths(false, false);
}

#[test]
fn a_damaged_file_of_two_phase_commits_that_was_left_by_a_kill_is_refused_or_whole() {
    no_deaths(true, false);
}

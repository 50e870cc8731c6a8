//! What the demo shows.

use super::VOLUME;
use super::copy::Copied;
use super::pool::Pool;
use super::stop::Stop;
use crate::commands::volume::status;
use crate::limits::IN_SYNC_WAIT;
use crate::output;
use anyhow::bail;
use brick::STUB_MODE;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const SHOWN: usize = 4;

/// Status, places, and that all copies are the same.
pub(super) fn everything(pool: &Pool, copied: &[Copied], stop: &Stop) -> anyhow::Result<()> {
    let alike = wait_alike(pool, copied, stop)?;
    stop.check()?;
    output::line(&format!("\n$ mortar --server {} volume status {VOLUME}", pool.server_word()))?;
    let answer = pool.ask(admin::VolumeStatus { name: Some(VOLUME.to_owned()) })?;
    for volume in &answer.volumes {
        output::line(&status::show(volume, false))?;
    }
    output::line("\nwhere some of the files lie, as ordinary files on the bricks:")?;
    for file in samples(pool, copied) {
        output::line(&listing(&places(pool, &file.path))?)?;
    }
    output::line(&alike)
}

/// Files of different directories, from all sets.
fn samples<'a>(pool: &Pool, copied: &'a [Copied]) -> Vec<&'a Copied> {
    let mut chosen: Vec<&Copied> = Vec::new();
    for set in &pool.sets {
        let here = |c: &&Copied| set.iter().any(|brick| is_copy(&brick.join(&c.path)));
        let mut last = None;
        for file in copied.iter().filter(here) {
            if last != file.path.parent() && chosen.len() < SHOWN {
                chosen.push(file);
                if last.is_some() {
                    break;
                }
                last = file.path.parent();
            }
        }
    }
    chosen
}

fn places(pool: &Pool, file: &Path) -> Vec<PathBuf> {
    pool.sets.iter().flatten().map(|brick| brick.join(file)).filter(|p| is_copy(p)).collect()
}

/// Whether a brick has the file here. A large one may live on another set than its directory, whose bricks have a stub of it.
fn is_copy(place: &Path) -> bool {
    fs::symlink_metadata(place)
        .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o7777 != STUB_MODE)
}

fn listing(paths: &[PathBuf]) -> anyhow::Result<String> {
    let out = Command::new("ls").args(["-l", "--time-style=long-iso"]).args(paths).output()?;
    Ok(String::from_utf8_lossy(&out.stdout).trim_end().to_owned())
}

/// Waits until every file has its copies and they are the same; says so.
fn wait_alike(pool: &Pool, copied: &[Copied], stop: &Stop) -> anyhow::Result<String> {
    let until = Instant::now() + IN_SYNC_WAIT;
    loop {
        stop.check()?;
        let differing = copied.iter().find_map(|c| difference(pool, &c.path));
        match differing {
            None => break,
            Some(why) if Instant::now() > until => bail!("demo: the bricks do not agree: {why}"),
            Some(_) => stop.wait(Some(Duration::from_millis(100))),
        }
    }
    let on =
        |set: &Vec<PathBuf>| copied.iter().filter(|c| set.iter().any(|b| is_copy(&b.join(&c.path)))).count();
    let sets: Vec<String> =
        pool.sets.iter().enumerate().map(|(i, s)| format!("set {}: {}", i + 1, on(s))).collect();
    let copies = copied.len() * pool.replica();
    Ok(format!(
        "all {copies} copies of {} files compared: same bytes, owner, mode and times ({})",
        copied.len(),
        sets.join(", ")
    ))
}

/// What is wrong with a file's copies.
fn difference(pool: &Pool, file: &Path) -> Option<String> {
    let mounted = pool.mount_dir().join(file);
    let Ok(wanted) = Seen::of(&mounted) else { return Some(format!("{} cannot be read", mounted.display())) };
    let places = places(pool, file);
    if places.len() != pool.replica() {
        return Some(format!("{} has {} copies", file.display(), places.len()));
    }
    let wrong = places.iter().find(|p| Seen::of(p).is_ok_and(|seen| seen != wanted));
    wrong.map(|p| format!("{} is not what the mount shows", p.display()))
}

#[derive(PartialEq, Eq)]
struct Seen {
    bytes: Vec<u8>,
    owner: (u32, u32),
    mode: u32,
    mtime: (i64, i64),
}

impl Seen {
    fn of(path: &Path) -> std::io::Result<Seen> {
        let meta = fs::metadata(path)?;
        Ok(Seen {
            bytes: fs::read(path)?,
            owner: (meta.uid(), meta.gid()),
            mode: meta.mode(),
            mtime: (meta.mtime(), meta.mtime_nsec()),
        })
    }
}

/// Commands to copy and paste.
pub(super) fn what_next(pool: &Pool, seconds: Option<u64>) -> anyhow::Result<()> {
    let program = std::env::current_exe()?.display().to_string();
    let (mnt, server) = (pool.mount_dir(), pool.server_word());
    let mnt = mnt.display();
    let mut lines = vec![
        "\nwhat to try next, in another terminal:".to_owned(),
        format!("  ls -l {mnt}"),
        format!("  echo hello > {mnt}/hello; cat {}", hello(pool)),
        format!("  {program} --server {server} volume status {VOLUME}"),
        format!("  {program} --server {server} peer status"),
        format!("  {program} --server {server} volume get {VOLUME}"),
        format!("  {program} --server {server} config export"),
        format!("  {program} bench {mnt} --count 1000"),
        format!(
            "  mkdir /tmp/second; {program} mount {} /tmp/second; ls /tmp/second; umount /tmp/second",
            pool.source()
        ),
    ];
    if pool.servers.len() > 2
        && let Some(last) = pool.servers.last()
    {
        lines.push(format!(
            "  kill {}; ls -l {mnt}     # server {} fails: its set goes on",
            last.process, last.host
        ));
    }
    lines.push(match seconds {
        Some(s) => format!("ends in {s} s, or at Ctrl-C"),
        None => "Ctrl-C ends the demo".to_owned(),
    });
    output::line(&lines.join("\n"))
}

/// Where a file at the top lies: the root is on the first set.
fn hello(pool: &Pool) -> String {
    let bricks = pool.sets.first().map(Vec::as_slice).unwrap_or_default();
    let paths: Vec<String> = bricks.iter().map(|b| b.join("hello").display().to_string()).collect();
    paths.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stub_is_no_copy_of_a_file() {
        let dir = std::env::temp_dir().join(format!("mortar-demo-copies.{}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        let made = |name: &str, mode: u32| {
            let path = dir.join(name);
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            is_copy(&path)
        };
        let seen = [made("file", 0o644), made("without", 0), made("stub", STUB_MODE), is_copy(&dir)];
        fs::remove_dir_all(&dir).unwrap();
        assert_eq!(seen, [true, true, false, false]);
    }
}

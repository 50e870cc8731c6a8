//! Files whose data lies on several sets (docs/design/0029).

use crate::adopt::is_sound;
use crate::drain::{await_out, drain_set};
use crate::faults::all_in_sync;
use crate::grow::words;
use crate::harness::{Disk, Mounted, Pool, eventually, eventually_within, files};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

const MIB: usize = 1 << 20;
const SERVERS: usize = 2;
const BRICKS: [(usize, &str); 4] = [(0, "a"), (1, "b"), (0, "c"), (1, "d")];

/// Bytes that take room beneath a brick, hidden folders included, but not its journal and index.
fn held(brick: &Path) -> u64 {
    let orphans = brick.join(".mortar/orphans");
    let of = |dir: &Path| -> u64 {
        let all = fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok);
        all.filter_map(|e| e.metadata().ok()).filter(|m| m.is_file()).map(|m| m.blocks() * 512).sum()
    };
    of(brick) + of(&orphans)
}

/// A volume of four sets that stripes files over all of them.
fn striped(pool: &Pool) -> Vec<PathBuf> {
    pool.volume("v", 1, &BRICKS);
    pool.ok("volume set v cluster.stripe-count 4");
    pool.ok("volume set v cluster.stripe-size 64KB");
    eventually("all sets serve", || {
        let status = pool.status("v");
        let bricks = status["bricks"].as_array()?;
        bricks.iter().all(|b| b["online"] == true && b["role"] == "primary").then_some(())
    });
    pool.paths(&BRICKS)
}

fn is_like(mount: &Mounted, name: &str, content: &[u8]) {
    let path = mount.path(name);
    assert_eq!(fs::metadata(&path).unwrap().len(), content.len() as u64, "{name}");
    let found = fs::read(&path).unwrap();
    let differs = found.iter().zip(content).position(|(a, b)| a != b);
    assert_eq!((found.len(), differs), (content.len(), None), "{name}: where it differs");
}

#[test]
fn a_large_file_lies_on_all_sets() {
    let mut pool = Pool::new(SERVERS);
    let paths = striped(&pool);
    let (one, two) = (pool.mount("v"), pool.mount("v"));
    let mut content = files::noise(1, 64 * MIB);
    let mut file = File::create(one.path("f")).unwrap();
    let ino = file.metadata().unwrap().ino();
    for piece in content.chunks(700_000) {
        file.write_all(piece).unwrap();
    }
    file.sync_all().unwrap();
    assert_eq!(file.metadata().unwrap().ino(), ino);
    drop(file);
    let on_each: Vec<u64> = paths.iter().map(|p| held(p)).collect();
    println!("bytes on each set: {on_each:?}");
    for held in &on_each {
        assert!((14 * MIB as u64..19 * MIB as u64).contains(held), "about a quarter: {on_each:?}");
    }
    is_like(&two, "f", &content);
    is_like(&one, "f", &content);

    // Written in its midst, by one and the other.
    for (n, mount) in [(3, &one), (17, &two), (40, &one)] {
        let file = OpenOptions::new().write(true).open(mount.path("f")).unwrap();
        let piece = files::noise(n, MIB + 12_345);
        let at = n as usize * MIB + 777;
        file.write_all_at(&piece, at as u64).unwrap();
        content[at..at + piece.len()].copy_from_slice(&piece);
    }
    is_like(&one, "f", &content);
    is_like(&two, "f", &content);

    // Shorter, and longer again: what was cut off is zeros.
    let cut = 21 * MIB + 4321;
    two_lengths(&two, "f", cut as u64, 30 * MIB as u64);
    content.truncate(cut);
    content.resize(30 * MIB, 0);
    is_like(&one, "f", &content);
    is_like(&two, "f", &content);
    let file = OpenOptions::new().read(true).write(true).open(one.path("f")).unwrap();
    file.write_all_at(b"behind a gap", 40 * MIB as u64).unwrap();
    content.resize(40 * MIB, 0);
    content.extend_from_slice(b"behind a gap");
    is_like(&two, "f", &content);

    // Renamed, linked, and open without a name.
    fs::create_dir(one.path("d")).unwrap();
    fs::rename(one.path("f"), one.path("d/g")).unwrap();
    fs::hard_link(two.path("d/g"), two.path("h")).unwrap();
    is_like(&one, "h", &content);
    let mut open = File::open(one.path("h")).unwrap();
    fs::remove_file(two.path("d/g")).unwrap();
    fs::remove_file(two.path("h")).unwrap();
    let mut back = Vec::new();
    open.seek(SeekFrom::Start(0)).unwrap();
    open.read_to_end(&mut back).unwrap();
    assert!(back == content);
    drop((open, file));
    eventually_within(Duration::from_secs(150), "all room is free again", || {
        paths.iter().all(|p| held(p) < MIB as u64).then_some(())
    });
    drop((one, two));
    (0..SERVERS).for_each(|i| pool.stop(i));
    paths.iter().for_each(|p| is_sound(p));
}

/// Sets are added, replaced and taken out while one mount writes to a striped file and another one reads what was written (1918
/// and 2417 at github.com/gluster/glusterfs: sharded files that were corrupt afterwards).
#[test]
fn a_striped_file_stays_whole_while_the_volume_changes_its_shape() {
    const LEN: usize = 24 * MIB;
    let mut pool = Pool::new(SERVERS + 1);
    pool.expect_errors(&["is not a brick"]);
    striped(&pool);
    let mounts = [pool.mount("v"), pool.mount("v")];
    let mut content = files::noise(5, LEN);
    fs::write(mounts[0].path("f"), &content).unwrap();
    let open = |mount: &Mounted| OpenOptions::new().read(true).write(true).open(mount.path("f")).unwrap();
    let (writer, reader) = (open(&mounts[0]), open(&mounts[1]));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let written = scope.spawn(|| {
            let mut rounds = 0;
            while !stop.load(Ordering::Relaxed) {
                let record = files::noise(rounds, 10_000 + (rounds as usize * 7919) % 150_000);
                let at = (rounds as usize * 1_234_577) % (LEN - record.len());
                writer.write_all_at(&record, at as u64).unwrap();
                content[at..at + record.len()].copy_from_slice(&record);
                let mut back = vec![0; record.len()];
                reader.read_exact_at(&mut back, at as u64).unwrap();
                assert!(back == record, "what was written to {at} in round {rounds}");
                rounds += 1;
            }
            rounds
        });
        let changed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| change_shape(&pool)));
        stop.store(true, Ordering::Relaxed);
        let rounds = written.join().unwrap();
        println!("{rounds} records were written");
        changed.unwrap_or_else(|failure| std::panic::resume_unwind(failure));
    });
    mounts.iter().for_each(|mount| is_like(mount, "f", &content));
    drop((writer, reader));
    fs::write(mounts[0].path("g"), &content).unwrap();
    is_like(&mounts[1], "g", &content);
    drop(mounts);
    let paths =
        [(2, "e"), (2, "new"), (0, "c"), (1, "d")].map(|(server, brick)| pool.servers[server].path(brick));
    (0..=SERVERS).for_each(|i| pool.stop(i));
    paths.iter().for_each(|p| is_sound(p));
}

/// A new set; a set's only brick moves to another server; the set of another brick is taken out.
fn change_shape(pool: &Pool) {
    let online = |(server, brick): (usize, &str)| {
        let path = pool.servers[server].path(brick).display().to_string();
        eventually("the new brick serves", || {
            let status = pool.status("v");
            let brick = status["bricks"].as_array()?.iter().find(|b| b["path"] == path.as_str())?.clone();
            (brick["online"] == true && brick["role"] == "primary").then_some(())
        });
    };
    pool.ok(&format!("volume add-brick v {}", words(pool, &[(2, "e")])));
    online((2, "e"));
    pool.ok(&format!("volume replace-brick v {}", words(pool, &[BRICKS[0], (2, "new")])));
    online((2, "new"));
    drain_set(pool, &BRICKS[1..2], "start");
    eventually("nothing more can leave", || {
        (drain_set(pool, &BRICKS[1..2], "status")["moved"]["none_can_move"] == true).then_some(())
    });
    drain_set(pool, &BRICKS[1..2], "commit");
    await_out(pool, &[pool.servers[1].brick("b")]);
    all_in_sync(pool);
}

/// A set runs full under a striped file (4686 at github.com/gluster/glusterfs: a copy that ended well and was wrong; 4522: shards
/// that stay after a failed fallocate; 2038: files that cannot be removed for want of room).
#[test]
fn a_striped_file_on_full_sets_holds_what_was_answered() {
    let mut pool = Pool::new(SERVERS);
    pool.expect_errors(&["no space left"]);
    let bricks = [(0, "disk/a"), (1, "disk/b")];
    for (server, _) in bricks {
        let dir = pool.servers[server].path("disk");
        pool.disks.push(Disk::new("ext4", &dir, 128));
    }
    pool.volume("v", 1, &bricks);
    pool.ok("volume set v cluster.stripe-count 2");
    pool.ok("volume set v cluster.stripe-size 64KB");
    all_in_sync(&pool);
    let paths = pool.paths(&bricks);
    let ballast = File::create(pool.servers[1].path("disk/ballast")).unwrap();
    rustix::fs::fallocate(&ballast, rustix::fs::FallocateFlags::empty(), 0, 60 << 20).unwrap();
    let mounts = [pool.mount("v"), pool.mount("v")];
    let path = mounts[0].path("f");
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).unwrap();
    let full = |result: std::io::Result<()>| match result {
        Ok(()) => false,
        Err(e) => {
            assert_eq!(e.raw_os_error(), Some(rustix::io::Errno::NOSPC.raw_os_error()), "{e}");
            true
        }
    };
    let mut content = Vec::new();
    for n in 0.. {
        let more = files::noise(n, 300_000);
        let written = file.write_all_at(&more, content.len() as u64);
        if full(written) {
            break;
        }
        content.extend_from_slice(&more);
    }
    // The kernel divides a write; what was answered of the last one counts.
    let len = file.metadata().unwrap().len() as usize;
    assert!((content.len()..content.len() + 300_000).contains(&len), "{len} bytes of {}", content.len());
    assert!(len > 20 * MIB, "{len} bytes have room");
    content.extend(
        files::noise((content.len() / 300_000) as u64, 300_000).into_iter().take(len - content.len()),
    );
    mounts.iter().for_each(|mount| is_like(mount, "f", &content));
    let more = rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 1 << 30);
    assert!(full(more.map_err(std::io::Error::from)), "a GiB is more than there is");
    mounts.iter().for_each(|mount| is_like(mount, "f", &content));
    drop(file);
    fs::remove_file(&path).unwrap();
    eventually_within(Duration::from_secs(150), "all room is free again", || {
        paths.iter().all(|p| held(p) < MIB as u64).then_some(())
    });
    // Servers tell each other once a second.
    eventually("it is known that there is room", || fs::write(&path, &content).ok());
    is_like(&mounts[1], "f", &content);
    drop(mounts);
    (0..SERVERS).for_each(|i| pool.stop(i));
    paths.iter().for_each(|p| is_sound(p));
}

/// A striped file goes on without a name (1281), and keeps the times that it is given (853).
#[test]
fn a_striped_file_lives_on_without_a_name() {
    let mut pool = Pool::new(SERVERS);
    striped(&pool);
    let mounts = [pool.mount("v"), pool.mount("v")];
    let mut content = files::noise(3, 2 * MIB);
    fs::write(mounts[0].path("f"), &content).unwrap();
    let old = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_000, 123_456_789);
    let file = OpenOptions::new().read(true).write(true).open(mounts[0].path("f")).unwrap();
    file.set_modified(old).unwrap();
    for mount in &mounts {
        assert_eq!(fs::metadata(mount.path("f")).unwrap().modified().unwrap(), old);
        is_like(mount, "f", &content);
    }
    fs::remove_file(mounts[1].path("f")).unwrap();
    let write = |content: &mut Vec<u8>, at: usize, n: u64| {
        let record = files::noise(n, 200_000);
        file.write_all_at(&record, at as u64).unwrap();
        content.resize(content.len().max(at + record.len()), 0);
        content[at..at + record.len()].copy_from_slice(&record);
    };
    write(&mut content, MIB, 11);
    write(&mut content, 3 * MIB, 12);
    file.sync_all().unwrap();
    (0..SERVERS).for_each(|server| pool.kill(server));
    (0..SERVERS).for_each(|server| pool.start(server));
    write(&mut content, 2 * MIB, 13);
    file.set_len(3 * MIB as u64 + 7).unwrap();
    content.truncate(3 * MIB + 7);
    write(&mut content, 4 * MIB, 14);
    let mut back = vec![0; content.len()];
    file.read_exact_at(&mut back, 0).unwrap();
    assert!(back == content);
    assert_eq!(file.metadata().unwrap().len(), content.len() as u64);
    drop(file);
    mounts.into_iter().for_each(Mounted::end);
}

fn two_lengths(mount: &Mounted, name: &str, first: u64, second: u64) {
    let file = OpenOptions::new().write(true).open(mount.path(name)).unwrap();
    file.set_len(first).unwrap();
    assert_eq!(file.metadata().unwrap().len(), first);
    file.set_len(second).unwrap();
}

/// What several append, each from its own mount, is all there, and none of it in another's.
#[test]
fn appends_of_several_follow_each_other() {
    const RECORDS: usize = 60;
    const LEN: usize = 70_000;
    let pool = Pool::new(SERVERS);
    striped(&pool);
    let mounts = [pool.mount("v"), pool.mount("v")];
    fs::write(mounts[0].path("log"), files::noise(9, 2 * MIB)).unwrap();
    std::thread::scope(|scope| {
        for (n, mount) in mounts.iter().enumerate() {
            scope.spawn(move || {
                let mut file = OpenOptions::new().append(true).open(mount.path("log")).unwrap();
                for record in 0..RECORDS {
                    file.write_all(&[u8::try_from(n * 100 + record).unwrap(); LEN]).unwrap();
                }
            });
        }
    });
    let found = fs::read(mounts[1].path("log")).unwrap();
    assert_eq!(found.len(), 2 * MIB + 2 * RECORDS * LEN);
    assert!(found[..2 * MIB] == files::noise(9, 2 * MIB));
    let mut records: Vec<u8> = Vec::new();
    for record in found[2 * MIB..].chunks(LEN) {
        assert!(record.iter().all(|b| *b == record[0]), "records are not mixed");
        records.push(record[0]);
    }
    for n in 0..mounts.len() {
        let own: Vec<u8> = records.iter().copied().filter(|r| usize::from(*r) / 100 == n).collect();
        assert!(own.is_sorted() && own.len() == RECORDS, "in the order in which each wrote: {own:?}");
    }
}

/// Servers are killed while a file is written and cut; nothing that was acknowledged is lost, and nothing that was cut off
/// comes back.
#[test]
fn servers_are_killed_while_a_striped_file_is_written() {
    let mut pool = Pool::new(3);
    let bricks = [(0, "a"), (1, "a"), (1, "b"), (2, "b"), (2, "c"), (0, "c")];
    pool.volume("v", 2, &bricks);
    pool.ok("volume set v cluster.stripe-count 3");
    pool.ok("volume set v cluster.stripe-size 64KB");
    let mount = pool.mount("v");
    let mut content = files::noise(5, 2 * MIB);
    fs::write(mount.path("f"), &content).unwrap();
    let file = OpenOptions::new().read(true).write(true).open(mount.path("f")).unwrap();
    for round in 0..6_u64 {
        let victim = usize::try_from(round).unwrap() % 3;
        all_in_sync(&pool);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for n in 0..12 {
                    let piece = files::noise(round * 100 + n, 300_000);
                    let at = content.len();
                    file.write_all_at(&piece, at as u64).unwrap();
                    content.extend_from_slice(&piece);
                    if n % 4 == 3 {
                        let cut = content.len() - 410_000;
                        file.set_len(cut as u64).unwrap();
                        content.truncate(cut);
                        file.set_len(cut as u64 + 50_000).unwrap();
                        content.resize(cut + 50_000, 0);
                    }
                }
            });
            pool.kill(victim);
            writer.join().unwrap();
        });
        is_like(&mount, "f", &content);
        pool.start(victim);
    }
    all_in_sync(&pool);
    let other = pool.mount("v");
    is_like(&other, "f", &content);
    drop((mount, other));
    (0..3).for_each(|i| pool.stop(i));
    pool.paths(&bricks).iter().for_each(|p| is_sound(p));
}

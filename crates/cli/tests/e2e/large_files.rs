//! Files that grow large as they are made, or for which their directory's set has no room (docs/design/0023).

use crate::adopt::is_sound;
use crate::harness::{Disk, Mounted, Pool, eventually, files};
use crate::rebalance::bytes;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::sync::Barrier;

const SETS: usize = 40;
const SERVERS: usize = 4;
const FILES: usize = 40;
const MIB: usize = 1 << 20;
/// Bytes of each file.
const LEN: usize = 4 * MIB;

fn content(n: usize) -> Vec<u8> {
    files::noise(n as u64, LEN)
}

/// Writes a file as programs do; its inode number stays the same for who has it open.
fn write_piece_by_piece(mount: &Mounted, n: usize) {
    let path = mount.path(&format!("d/f{n}"));
    let mut file = File::create(&path).unwrap();
    let ino = file.metadata().unwrap().ino();
    let pieces = [64 << 10, 256 << 10, MIB, 2 * MIB];
    for piece in content(n).chunks(pieces[n % pieces.len()]) {
        file.write_all(piece).unwrap();
    }
    file.sync_all().unwrap();
    assert_eq!(file.metadata().unwrap().ino(), ino);
    assert_eq!(fs::metadata(&path).unwrap().ino(), ino);
}

/// Files that are written at once into one directory of a volume for which nobody set an option use all sets, each as much as the
/// other; they are read, changed and removed as any other files, by those who have them open and by others.
#[test]
fn large_files_of_one_directory_are_spread_over_all_sets() {
    let mut pool = Pool::new(SERVERS);
    let names: Vec<String> = (0..SETS).map(|n| format!("b{n}")).collect();
    let bricks: Vec<(usize, &str)> =
        names.iter().enumerate().map(|(n, b)| (n % SERVERS, b.as_str())).collect();
    pool.volume("v", 1, &bricks);
    let paths: Vec<PathBuf> = pool.paths(&bricks);
    let (one, two) = (pool.mount("v"), pool.mount("v"));
    fs::create_dir(one.path("d")).unwrap();
    // No file goes to a set that does not serve yet.
    eventually("all sets serve", || {
        let status = pool.status("v");
        let bricks = status["bricks"].as_array()?;
        bricks.iter().all(|b| b["online"] == true && b["role"] == "primary").then_some(())
    });
    std::thread::scope(|scope| {
        let one = &one;
        (0..FILES).for_each(|n| drop(scope.spawn(move || write_piece_by_piece(one, n))));
    });
    let held: Vec<u64> = paths.iter().map(|p| bytes(p)).collect();
    let (least, most, all) =
        (*held.iter().min().unwrap(), *held.iter().max().unwrap(), held.iter().sum::<u64>());
    println!("{FILES} files on {SETS} sets, bytes on each: {held:?}");
    assert!(all >= (FILES * LEN) as u64);
    assert!(least >= LEN as u64, "a brick has none of the files: {held:?}");
    assert!(most * 10 * SETS as u64 <= all * 13, "more than 1.3 times as much as the mean: {held:?}");
    for n in 0..FILES {
        assert!(fs::read(two.path(&format!("d/f{n}"))).unwrap() == content(n), "file {n}");
    }
    // One that is open goes on, whatever becomes of its name.
    let mut open = OpenOptions::new().create(true).read(true).append(true).open(one.path("d/open")).unwrap();
    for _ in 0..3 {
        open.write_all(&[7; MIB]).unwrap();
    }
    fs::rename(two.path("d/open"), two.path("d/renamed")).unwrap();
    open.write_all(&[8; 10]).unwrap();
    assert_eq!(fs::metadata(two.path("d/renamed")).unwrap().len(), 3 * MIB as u64 + 10);
    fs::remove_file(two.path("d/renamed")).unwrap();
    open.write_all(&[9; MIB]).unwrap();
    let mut back = Vec::new();
    open.seek(SeekFrom::Start(0)).unwrap();
    open.read_to_end(&mut back).unwrap();
    assert!(back == [&vec![7; 3 * MIB][..], &[8; 10], &vec![9; MIB]].concat());
    drop(open);
    // What is announced counts as well, and what is written in its midst.
    let sparse = File::create(one.path("d/sparse")).unwrap();
    sparse.set_len(9 * MIB as u64).unwrap();
    sparse.write_all_at(b"end", 8 * MIB as u64).unwrap();
    assert_eq!(fs::metadata(two.path("d/sparse")).unwrap().len(), 9 * MIB as u64);
    drop(sparse);
    for n in 0..FILES {
        fs::remove_file(one.path(&format!("d/f{n}"))).unwrap();
    }
    fs::remove_file(one.path("d/sparse")).unwrap();
    eventually("all room is free again", || {
        (paths.iter().map(|p| bytes(p)).sum::<u64>() < MIB as u64).then_some(())
    });
    (0..SERVERS).for_each(|i| pool.stop(i));
    paths.iter().for_each(|p| is_sound(p));
}

const SIZE: &str = "cluster.large-file-size";

/// The size and whether somebody or something set it.
fn size(pool: &Pool, volume: &str) -> (String, bool) {
    let line = &pool.json(&format!("volume get {volume} {SIZE}"))[0];
    (line["value"].as_str().unwrap().to_owned(), line["is_set"].as_bool().unwrap())
}

/// What is made of directories begins with the size, with data in them or without. What a document or a deleted volume says of
/// options stays as it is.
#[test]
fn a_new_volume_spreads_large_files_unless_a_document_makes_it() {
    let pool = Pool::new(1);
    let (set, unset) = (("1MB".to_owned(), true), ("0B".to_owned(), false));
    let create = |name: &str, words: &str| {
        let bricks = [0, 1].map(|n| pool.servers[0].brick(&format!("{name}{n}")));
        pool.ok(&format!("volume create {name} {}{words}", bricks.join(" ")));
    };
    let data = pool.servers[0].path("adopted0");
    fs::create_dir_all(&data).unwrap();
    fs::write(data.join("old"), "data").unwrap();
    create("made", "");
    create("adopted", " --adopt");
    for volume in ["made", "adopted"] {
        assert_eq!(size(&pool, volume), set, "{volume}");
    }
    assert!(pool.ok("volume info made").contains(SIZE));

    pool.ok(&format!("volume set made {SIZE} 0"));
    pool.ok("volume delete made --yes");
    pool.ok("volume import made");
    assert_eq!(size(&pool, "made"), ("0".to_owned(), true));
    pool.ok(&format!("volume reset made {SIZE}"));
    assert_eq!(size(&pool, "made"), unset);

    let document = pool.dir.join("pool.toml");
    let apply = format!("config apply {}", document.display());
    fs::write(&document, pool.ok("config export")).unwrap();
    assert!(pool.ok(&apply).contains("nothing to change"));
    let brick = pool.servers[0].brick("n");
    let volume = format!("[volume.n]\nbricks = [\"{brick}\"]\n");
    fs::write(&document, &volume).unwrap();
    pool.ok(&apply);
    assert_eq!(size(&pool, "n"), unset);
    fs::write(&document, format!("{volume}[volume.n.options]\n\"{SIZE}\" = \"1MB\"\n")).unwrap();
    pool.ok(&apply);
    assert_eq!(size(&pool, "n"), set);
}

const DISK: u64 = 128;
const BRICKS: [(usize, &str); 2] = [(0, "disk/b"), (1, "disk/b")];

/// A volume of two sets with a directory `d` whose set has less room than is to stay free; which of them that is.
fn with_a_full_set() -> (Pool, Mounted, usize) {
    let mut pool = Pool::new(2);
    for (server, _) in BRICKS {
        let dir = pool.servers[server].path("disk");
        pool.disks.push(Disk::new("ext4", &dir, DISK));
    }
    pool.volume("v", 1, &BRICKS);
    pool.ok("volume set v cluster.min-free-disk 20%");
    let mount = pool.mount("v");
    fs::create_dir(mount.path("d")).unwrap();
    fs::write(mount.path("d/old"), [1; 1000]).unwrap();
    let paths = pool.paths(&BRICKS);
    let near = usize::from(paths[1].join("d/old").exists());
    let disk = &pool.disks[near].dir;
    let ballast = File::create(disk.join("ballast")).unwrap();
    let room = rustix::fs::statvfs(disk).unwrap();
    // Less than is to stay free, and more than half of that.
    let left = room.f_blocks * room.f_frsize * 15 / 100;
    let taken = room.f_bavail * room.f_frsize - left;
    rustix::fs::fallocate(&ballast, rustix::fs::FallocateFlags::empty(), 0, taken).unwrap();
    eventually("the set knows that it is full, and that the other one is not", || {
        let probe = mount.path("d/probe");
        fs::write(&probe, [2; 10]).ok()?;
        let there = fs::metadata(paths[near].join("d/probe")).unwrap();
        fs::remove_file(&probe).unwrap();
        (there.len() == 0).then_some(())
    });
    (pool, mount, near)
}

/// A set without room fails no write while the other one has some: of a new file, and of one that was there and is opened.
#[test]
fn files_of_a_full_set_grow_on_another_one() {
    let (pool, mount, near) = with_a_full_set();
    let paths = pool.paths(&BRICKS);
    let mut old = OpenOptions::new().append(true).open(mount.path("d/old")).unwrap();
    for n in 0..20 {
        old.write_all(&[3; 100_000]).unwrap();
        fs::write(mount.path(&format!("d/new{n}")), files::noise(n, 300_000)).unwrap();
    }
    old.sync_all().unwrap();
    let grown = fs::read(mount.path("d/old")).unwrap();
    assert!(grown.len() == 2_001_000 && grown[..1000] == [1; 1000] && grown[1000..].iter().all(|b| *b == 3));
    for n in 0..20 {
        assert!(fs::read(mount.path(&format!("d/new{n}"))).unwrap() == files::noise(n, 300_000));
    }
    // Directories have a length of their own.
    let left = bytes(&paths[near]);
    assert!(left < 10_000, "{left} bytes are on the full set");
    assert!(bytes(&paths[1 - near]) >= 8_000_000);
}

/// Two mounts make the same names at once, without asking that they be the first, in a directory whose set is full (4548, 980, 1723):
/// both have one file, with what each of them has written.
#[test]
fn two_mounts_make_one_file_in_the_directory_of_a_full_set() {
    const ROUNDS: usize = 100;
    const LINE: usize = 5000;
    let (mut pool, mount, _near) = with_a_full_set();
    let other = pool.mount("v");
    let turn = Barrier::new(2);
    let writes = |mount: &Mounted, who: u8| {
        for n in 0..ROUNDS {
            turn.wait();
            let path = mount.path(&format!("d/both{n}"));
            let mut file = OpenOptions::new().create(true).append(true).open(&path).unwrap();
            file.write_all(&[who; LINE]).unwrap();
            drop(file);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| writes(&mount, b'a'));
        writes(&other, b'b');
    });
    for n in 0..ROUNDS {
        // Inode numbers may differ: a mount keeps that of a file that went to another set while it was open there.
        let seen = [&mount, &other].map(|mount| fs::read(mount.path(&format!("d/both{n}"))).unwrap());
        assert!(seen[0] == seen[1], "both{n} is two files");
        let lines: Vec<&[u8]> = seen[0].chunks(LINE).collect();
        let all: [[u8; LINE]; 2] = [[b'a'; LINE], [b'b'; LINE]];
        let held = |line: &[u8; LINE]| lines.iter().filter(|held| **held == line).count();
        assert!(lines.len() == 2 && all.iter().all(|line| held(line) == 1), "both{n}: {} lines", lines.len());
    }
    assert_eq!(files::names(&mount.path("d")).iter().filter(|name| name.starts_with("both")).count(), ROUNDS);
    mount.end();
    other.end();
    (0..2).for_each(|s| pool.stop(s));
    pool.paths(&BRICKS).iter().for_each(|brick| is_sound(brick));
}

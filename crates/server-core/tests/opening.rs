//! Opening bricks of a pool on file systems in memory.
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

use crate::pool::{ME, MINE, OTHER, SET, THEIRS, pool, view};
use brick::Options;
use cluster::arbitration::Evidence;
use cluster::{Command, State};
use file_system::{FileSystem, S_IFDIR};
use ids::{Epoch, Lsn, ServerId};
use memory_fs::MemoryFs;
use server_core::{
    OpenSet, OpenedBrick, Place, RecoveryVerdict, bricks_to_open, identity, pool_bytes, settings,
};
use std::path::{Path, PathBuf};
use std::time::Duration;

fn options() -> Options {
    Options { seed: Some(1), ..Options::default() }
}

/// The disk of the first brick, which was made.
fn disk(state: &State) -> MemoryFs {
    let fs = MemoryFs::new(1 << 30);
    fs.make_dirs(Path::new("/b1")).unwrap();
    let set = state.sets.get(&SET).unwrap();
    let volume = state.volumes.get(&set.volume).unwrap();
    let identity = identity(pool_bytes(state), volume, set, set.brick(MINE).unwrap());
    brick::format_on(&fs, Path::new("/b1"), &identity, ids::Time::default()).unwrap();
    fs.open_dir(Path::new("/")).unwrap().sync_all().unwrap();
    fs
}

fn open_at(state: &State, fs: &MemoryFs, mount: &str, knows_all: bool) -> Result<OpenedBrick, String> {
    let set = OpenSet::new(SET, MINE, state, &options(), knows_all).unwrap();
    let mount_point = |_: &Path| Ok(PathBuf::from(mount));
    set.run(Place { fs, mount_point: &mount_point, adopted: &|_| () }, Duration::ZERO)
}

fn open(state: &State, fs: &MemoryFs) -> Result<OpenedBrick, String> {
    open_at(state, fs, "/", true)
}

/// A new disk in its place.
fn empty_disk() -> MemoryFs {
    let fs = MemoryFs::new(1 << 30);
    fs.make_dirs(Path::new("/b1")).unwrap();
    fs
}

#[test]
fn a_server_opens_its_bricks_of_started_volumes() {
    let mut state = pool();
    assert_eq!(bricks_to_open(&state, ME), [(SET, MINE)].into());
    assert_eq!(bricks_to_open(&state, OTHER), [(SET, THEIRS)].into());
    assert_eq!(bricks_to_open(&state, ServerId(3)), [].into());
    state.apply(&Command::StopVolume { name: "v".into() }).unwrap();
    assert_eq!(bricks_to_open(&state, ME), [].into());
}

#[test]
fn a_set_is_told_what_the_pool_agreed_on() {
    let mut state = pool();
    view(&mut state, THEIRS, &[THEIRS]);
    let told = settings(&state, SET).unwrap();
    assert_eq!(told.members, [(MINE, ME), (THEIRS, OTHER)].into());
    assert_eq!((told.view.primary, told.view.quorum), (Some(THEIRS), 1));
    assert_eq!(told.view.in_sync, [THEIRS].into());
    assert_eq!(told.sets, [(SET, true)]);
    assert_eq!(settings(&state, ids::SetId(9)), None);
}

#[test]
fn a_brick_that_was_closed_in_order_is_certain() {
    let mut state = pool();
    let fs = disk(&state);
    let opened = open(&state, &fs).unwrap();
    assert_eq!((opened.uncertainty(), opened.moved()), (None, Some("/")));
    let mut start = opened.start();
    assert_eq!((start.set, start.me, start.uncertain), (SET, MINE, false));
    assert_eq!(start.floor, state.sets.get(&SET).unwrap().view.epoch);
    start.brick.shut().unwrap();
    drop(start);
    state.apply(&Command::BrickMounted { brick: MINE, mount: "/".into() }).unwrap();
    let opened = open(&state, &fs).unwrap();
    assert_eq!((opened.uncertainty(), opened.moved()), (None, None));
}

#[test]
fn after_a_power_cut_a_brick_asks_where_it_stands() {
    let state = pool();
    let fs = disk(&state);
    drop(open(&state, &fs).unwrap());
    fs.crash(memory_fs::CrashRule::Ordered, &mut |below| below - 1);
    let opened = open(&state, &fs).unwrap();
    assert!(matches!(opened.uncertainty(), Some(Evidence::LostMemory(_))), "{:?}", opened.uncertainty());
    let after = opened.apply_verdict(RecoveryVerdict { epoch: Epoch(5), last: true }).unwrap();
    assert_eq!(after.uncertainty().map(|_| ()), Some(()), "it was found all the same");
    let start = after.start();
    assert!(!start.uncertain, "what it has is the set's history");
    assert_eq!(start.floor, Epoch(5));
    assert_eq!(start.history, [(Epoch(5), Lsn(1))].into(), "the epoch after it may be another brick's");
}

/// Records beyond the durable position may be there while what they say is lost. A second restart does not change that.
#[test]
fn what_a_power_cut_may_have_taken_is_not_answered_as_done_however_often_the_server_starts() {
    let state = pool();
    let fs = disk(&state);
    let mut start = open(&state, &fs).unwrap().start();
    let op = |seq| ids::OpId { session: ids::SessionId(7), seq };
    for n in 1..=2 {
        let name = wire::Name::new(format!("f{n}").as_bytes()).unwrap();
        let fid = ids::Fid { set: SET, epoch: Epoch(1), lsn: Lsn(n) };
        let (parent, home, node, mode) = (ids::Fid::root(SET), SET, wire::op::Node::File, 0o644);
        let (uid, gid, time) = (0, 0, ids::Time::default());
        let change = wire::Change::Create { parent, name, fid, home, node, mode, uid, gid, time };
        let stamp = wire::peer::Stamp { epoch: Epoch(1), lsn: Lsn(n) };
        start.brick.apply(stamp, op(n), Some(fid), &change, b"").unwrap();
        if n == 1 {
            start.brick.begin_sync(None).unwrap().run().unwrap();
        }
    }
    drop(start);
    // Nothing is lost at all, but nobody can know.
    fs.crash(memory_fs::CrashRule::Ordered, &mut |below| below - 1);
    for life in 1..=2 {
        let opened = open(&state, &fs).unwrap();
        assert!(matches!(opened.uncertainty(), Some(Evidence::LostMemory(_))));
        let start = opened.start();
        assert_eq!(start.brick.last().lsn, Lsn(2), "the record is there");
        let done = |seq| start.results.get(op(seq)).map(|outcome| outcome.lsn);
        assert_eq!((done(1), done(2)), (Some(Lsn(1)), None), "in life {life}");
    }
}

/// A process that ends in the midst of a write, and the next one too: nothing that was acknowledged is lost.
#[test]
fn a_change_that_was_not_finished_is_no_loss_however_often_the_server_is_killed() {
    let state = pool();
    let fs = disk(&state);
    let mut start = open(&state, &fs).unwrap().start();
    let (parent, name) = (ids::Fid::root(SET), wire::Name::new(b"f").unwrap());
    let fid = ids::Fid { set: SET, epoch: Epoch(1), lsn: Lsn(1) };
    let (home, node, mode, uid, gid) = (SET, wire::op::Node::File, 0o644, 0, 0);
    let time = ids::Time::default();
    let changes = [
        (wire::Change::Create { parent, name, fid, home, node, mode, uid, gid, time }, &b""[..]),
        (wire::Change::Write { fid, offset: 0, len: 4, mode: None, time }, &b"data"[..]),
    ];
    for (lsn, (change, data)) in (1..).zip(&changes) {
        let stamp = wire::peer::Stamp { epoch: Epoch(1), lsn: Lsn(lsn) };
        start.brick.apply(stamp, ids::OpId::default(), None, change, data).unwrap();
    }
    drop(start);
    let file = fs.open_dir(Path::new("/b1")).unwrap().open_at(b"f", file_system::S_IFREG).unwrap();
    file.write_all(0, b"da\0\0").unwrap();
    for _ in 0..3 {
        let opened = open(&state, &fs).unwrap();
        assert!(matches!(opened.uncertainty(), Some(Evidence::Uncertain(_))), "{:?}", opened.uncertainty());
    }
    fs.crash(memory_fs::CrashRule::Ordered, &mut |below| below - 1);
    for _ in 0..3 {
        let opened = open(&state, &fs).unwrap();
        assert!(matches!(opened.uncertainty(), Some(Evidence::LostMemory(_))), "{:?}", opened.uncertainty());
    }
}

#[test]
fn an_empty_directory_is_filled_again_only_where_the_brick_was_and_others_hold_its_data() {
    let mut state = pool();
    let fs = empty_disk();
    let refused = |state: &State, mount: &str, knows_all: bool| {
        open_at(state, &fs, mount, knows_all).map(drop).unwrap_err()
    };
    assert!(refused(&state, "/", true).contains("is not a brick"), "it is in sync");
    view(&mut state, THEIRS, &[THEIRS]);
    assert!(refused(&state, "/", false).contains("is not a brick"), "a newer view may name it");
    state.apply(&Command::BrickMounted { brick: MINE, mount: "/disk".into() }).unwrap();
    assert!(refused(&state, "/", true).contains("its file system is not the one at /disk"));
    let dir = fs.open_dir(Path::new("/b1")).unwrap();
    dir.make_dir(b"somebody's", 0o755).unwrap();
    assert!(refused(&state, "/disk", true).contains("is not empty"));
    dir.remove_dir(b"somebody's").unwrap();
    let start = open_at(&state, &fs, "/disk", true).unwrap().start();
    assert!(start.uncertain, "it heals before it takes part");
}

#[test]
fn a_missing_directory_is_made_where_nothing_is_known_of_the_disk() {
    let mut state = pool();
    view(&mut state, THEIRS, &[THEIRS]);
    let fs = MemoryFs::new(1 << 30);
    let start = open(&state, &fs).unwrap().start();
    assert!(start.uncertain, "it heals before it takes part");
}

#[test]
fn a_lost_identity_comes_back() {
    let state = pool();
    let fs = disk(&state);
    let mut start = open(&state, &fs).unwrap().start();
    start.brick.shut().unwrap();
    drop(start);
    let meta = fs.open_dir(Path::new("/b1")).unwrap().open_at(b".mortar", S_IFDIR).unwrap();
    meta.unlink(b"identity").unwrap();
    drop(open(&state, &fs).unwrap());
}

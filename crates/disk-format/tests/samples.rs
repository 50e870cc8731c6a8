//! Frozen samples of what lies on disk, `testdata/<format>/v1/*.txt`: read as the same values and written as the same bytes,
//! for as long as version 1 is read. A change that is added needs a record of its own: `UPDATE=1 cargo test -p wire`, then
//! `UPDATE=1 cargo test -p disk-format`.
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

#[path = "../../wire/tests/sample/mod.rs"]
mod sample;

use disk_format::{Identity, Marks, Record, SegmentHead, State, Tag};
use ids::{BrickId, Epoch, Fid, Lsn, OpId, SessionId, SetId, Time, VolumeId};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use wire::peer::Stamp;
use wire::{Change, Wire};

fn folder(format: &str) -> PathBuf {
    folder_of(format, "v1")
}

fn folder_of(format: &str, version: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(format).join(version)
}

fn fid(set: u32, epoch: u32, lsn: u64) -> Fid {
    Fid { set: SetId(set), epoch: Epoch(epoch), lsn: Lsn(lsn) }
}

fn stamp(epoch: u32, lsn: u64) -> Stamp {
    Stamp { epoch: Epoch(epoch), lsn: Lsn(lsn) }
}

#[test]
fn a_tag_is_frozen() {
    for (name, flags) in
        [("plain", 0), ("pending", disk_format::tag::PENDING), ("orphan", disk_format::tag::ORPHAN)]
    {
        let fresh = || {
            let version = (&stamp(5, 6)).into();
            let (ctime, atime) = (Time { sec: -7, nsec: 8 }, Time { sec: 9, nsec: 10 });
            Tag { flags, fid: fid(1, 2, 3), home: SetId(4), version, ctime, atime }.encode()
        };
        let file = folder("tag").join(format!("{name}.txt"));
        sample::check(&file, fresh, |b| Tag::decode(b).unwrap(), Tag::encode);
    }
}

#[test]
fn a_tag_of_a_stub_is_frozen() {
    use disk_format::tag::{PENDING, stub_flags};
    for (name, flags) in [("file", stub_flags(0o100_000)), ("pending_link", PENDING | stub_flags(0o120_000))]
    {
        let fresh = || {
            let version = (&stamp(5, 6)).into();
            let (ctime, atime) = (Time { sec: -7, nsec: 8 }, Time { sec: 9, nsec: 10 });
            Tag { flags, fid: fid(1, 2, 3), home: SetId(4), version, ctime, atime }.encode()
        };
        let file = folder_of("tag", "v2").join(format!("{name}.txt"));
        sample::check(&file, fresh, |b| Tag::decode(b).unwrap(), Tag::encode);
    }
}

#[test]
fn an_intent_is_frozen() {
    use disk_format::tag::{Meant, Version, decode_intent, encode_intent};
    use wire::op::{EntryName, Intent, Successor};
    let place =
        |lsn, name: &str| EntryName { dir: fid(1, 2, lsn), name: wire::Name::new(name.as_bytes()).unwrap() };
    let named = OpId { session: SessionId(5), seq: 6 };
    for (name, tx, drop, add) in [
        ("move", named, Some(place(3, "a")), Some(place(4, "b").clone())),
        ("link", named, None, Some(place(4, "b"))),
        ("unlink", named, Some(place(3, "a")), None),
        ("directory", OpId::default(), None, Some(place(4, "d"))),
    ] {
        let intent = Intent { tx, coordinator: SetId(7), drop, add };
        let file = folder("intent").join(format!("{name}.txt"));
        sample::check(&file, || encode_intent(&intent), |b| decode_intent(b).unwrap().intent, encode_intent);
        let successor = Successor { fid: fid(8, 9, 10), home: SetId(11), kind: 0o100_000 };
        let at = (&stamp(8, 9)).into();
        let ended = |(intent, at): &(Intent, Version)| {
            Meant { intent: intent.clone(), successor: None, ended: Some(*at), from: None }.encode()
        };
        let read = |b: &[u8]| decode_intent(b).map(|meant| (meant.intent, meant.ended.unwrap())).unwrap();
        let file = folder_of("intent", "v2").join(format!("{name}.txt"));
        sample::check(&file, || ended(&(intent.clone(), at)), read, ended);
        for (version, ended) in [("v3", None), ("v4", Some(at))] {
            let successor = Some(successor.clone());
            let meant = Meant { intent: intent.clone(), successor, ended, from: None };
            let file = folder_of("intent", version).join(format!("{name}.txt"));
            sample::check(&file, || meant.encode(), |b| decode_intent(b).unwrap(), Meant::encode);
        }
        for (version, successor) in [("v5", None), ("v6", Some(successor))] {
            let meant = Meant { intent: intent.clone(), successor, ended: None, from: Some(SetId(12)) };
            let file = folder_of("intent", version).join(format!("{name}.txt"));
            sample::check(&file, || meant.encode(), |b| decode_intent(b).unwrap(), Meant::encode);
            assert!(decode_intent(&[meant.encode(), vec![0]].concat()).is_err(), "trailing bytes");
        }
    }
    assert!(decode_intent(&[]).is_err() && decode_intent(&[7, 0, 0, 0, 0]).is_err());
}

#[test]
fn what_a_directory_was_taken_by_is_frozen() {
    use wire::op::Taken;
    let fresh = || Taken { tx: OpId { session: SessionId(5), seq: 6 }, from: SetId(7) }.encode();
    let file = folder("taken").join("taken.txt");
    sample::check(&file, fresh, |b| Taken::decode(b).unwrap(), Taken::encode);
    assert!(Taken::decode(&[fresh(), vec![0]].concat()).is_err(), "trailing bytes");
    let (mut later, short) = (fresh(), fresh());
    later[0] = 2;
    assert!(
        Taken::decode(&later).is_err() && Taken::decode(&short[..9]).is_err() && Taken::decode(&[]).is_err()
    );
}

#[test]
fn the_names_of_a_copy_are_frozen() {
    use wire::op::{EntryName, Leaving, decode_names, encode_names};
    let place =
        |lsn, name: &str| EntryName { dir: fid(1, 2, lsn), name: wire::Name::new(name.as_bytes()).unwrap() };
    let fresh = || encode_names(&[place(3, "a"), place(4, "b")]);
    let file = folder("names").join("two.txt");
    sample::check(&file, fresh, |b| decode_names(b).unwrap(), |names| encode_names(names));
    let leaving = || Leaving {
        to: ids::SetId(5),
        copy: fid(5, 6, 7),
        names: vec![place(3, "a"), EntryName { dir: fid(8, 9, 10).names(), ..place(4, "b") }],
    };
    let file = folder_of("names", "v2").join("leaving.txt");
    sample::check(&file, || leaving().encode(), |b| Leaving::decode(b).unwrap().unwrap(), Leaving::encode);
    assert_eq!(Leaving::decode(&encode_names(&[place(3, "a")])), Ok(None));
    assert!(Leaving::decode(&[]).is_err() && Leaving::decode(&[3, 0, 0, 0, 0]).is_err());
    assert!(decode_names(&[]).is_err() && decode_names(&[2, 0, 0, 0, 0]).is_err());
}

#[test]
fn an_identity_is_frozen() {
    for (name, arbiter) in [("brick", false), ("arbiter", true)] {
        let fresh = || {
            Identity {
                pool: *b"0123456789abcdef",
                volume: VolumeId(1),
                set: SetId(2),
                brick: BrickId(3),
                arbiter,
                volume_name: "home".to_owned(),
                root: fid(5, 6, 7),
                root_home: SetId(5),
            }
            .encode()
        };
        let file = folder("identity").join(format!("{name}.txt"));
        sample::check(&file, fresh, |b| Identity::decode(b).unwrap(), Identity::encode);
    }
}

#[test]
fn a_state_is_frozen() {
    for (name, clean) in [("open", false), ("closed", true)] {
        let fresh =
            || State { boot: *b"0123456789abcdef", durable: stamp(2, 99), flushed: Lsn(101), clean }.encode();
        let file = folder("state").join(format!("{name}.txt"));
        sample::check(&file, fresh, |b| State::decode(b).unwrap(), State::encode);
    }
}

#[test]
fn marks_are_frozen() {
    for (name, files) in [("none", vec![]), ("two", vec![fid(1, 2, 3), fid(1, 4, 5)])] {
        let fresh = || Marks { files: files.clone() }.encode();
        let file = folder("marks").join(format!("{name}.txt"));
        sample::check(&file, fresh, |b| Marks::decode(b).unwrap(), Marks::encode);
    }
}

#[test]
fn notes_of_an_adoption_are_frozen() {
    use disk_format::adoption::{Became, Parent};
    let file = folder("adoption").join("place.txt");
    let fresh = || Parent { dir: fid(1, 2, 3), home: SetId(4) }.encode();
    sample::check(&file, fresh, |b| Parent::decode(b).unwrap(), Parent::encode);
    let file = folder("adoption").join("adopted.txt");
    let (atime, mtime) = (Time { sec: 9, nsec: 10 }, Time { sec: -7, nsec: 8 });
    let fresh = || Became { fid: fid(1, 2, 3), home: SetId(4), atime, mtime }.encode();
    sample::check(&file, fresh, |b| Became::decode(b).unwrap(), Became::encode);
    assert!(Became::decode(&[fresh(), vec![0]].concat()).is_err(), "trailing bytes");
}

#[test]
fn what_users_see_of_a_top_directory_is_frozen() {
    use disk_format::Top;
    let fresh = || Top { mode: 0o2775, uid: 1000, gid: 70_000 }.encode();
    let file = folder("top").join("top.txt");
    sample::check(&file, fresh, |b| Top::decode(b).unwrap(), Top::encode);
    assert_eq!(fresh().len(), disk_format::top::SIZE);
    let wrong = Top { mode: 0o10_755, uid: 0, gid: 0 }.encode();
    assert!(Top::decode(&wrong).is_err(), "bits of a type");
    assert!(Top::decode(&[fresh(), vec![0]].concat()).is_err(), "trailing bytes");
}

#[test]
fn the_head_of_a_segment_is_frozen() {
    let fresh = || SegmentHead { brick: BrickId(3), base: stamp(1, 8), previous: Lsn(1) }.encode();
    let file = folder("segment").join("head.txt");
    sample::check(&file, fresh, |b| SegmentHead::decode(b).unwrap(), SegmentHead::encode);
}

fn record(bytes: &[u8]) -> Record {
    let (record, read) = Record::decode(bytes).unwrap();
    assert_eq!(read, bytes.len());
    record
}

/// A record of each change that there is a sample of in `wire`: the journal holds the same bytes.
#[test]
fn a_record_of_each_change_is_frozen() {
    let changes = Path::new(env!("CARGO_MANIFEST_DIR")).join("../wire/testdata/v2/Change");
    let mut expected = BTreeSet::new();
    for entry in fs::read_dir(changes).unwrap() {
        let entry = entry.unwrap();
        let file = folder("record").join(entry.file_name());
        expected.insert(entry.file_name());
        let Ok(change) = Change::from_bytes(&sample::bytes(&entry.path())) else {
            // Its tag went out of use.
            assert!(Record::decode(&sample::bytes(&file)).is_err(), "{}", file.display());
            continue;
        };
        let result_fid = (!matches!(change, Change::Nop)).then(|| fid(1, 2, 3));
        let data_crc = if matches!(change, Change::Write { .. }) { 0x0102_0304_0506_0708 } else { 0 };
        let op = OpId { session: SessionId(5), seq: 6 };
        let fresh = Record { stamp: stamp(2, 9), op, data_crc, result_fid, change: change.clone() };
        sample::check(&file, || fresh.encode(), record, Record::encode);
        assert_eq!(record(&sample::bytes(&file)).change, change, "{}", file.display());
    }
    let there: BTreeSet<_> =
        fs::read_dir(folder("record")).unwrap().map(|f| f.unwrap().file_name()).collect();
    assert_eq!(there, expected, "each record is of a change that the wire has");
}

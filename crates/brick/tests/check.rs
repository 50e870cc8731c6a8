//! What a check says of damaged bricks, what a repair writes again, and that the brick then heals without loss.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::common::*;
use brick::{Brick, OpenError, Options, Report, ToHeal};
use disk_format::Tag;
use disk_format::tag::XATTR;
use ids::{Epoch, Fid, Lsn, SetId};
use namespace::TreeState;
use std::path::{Path, PathBuf};
use wire::Op;

/// A closed brick: `d/f`, `d/g` (two names), `a`, an orphan.
struct Closed {
    _dir: tempfile::TempDir,
    path: PathBuf,
    f: Fid,
    d: Fid,
}

fn closed() -> Closed {
    closed_with(Options::default())
}

fn closed_with(options: Options) -> Closed {
    let t = temp();
    let path = t.path().join("b1");
    brick::format(&path, &identity(1), ids::Time::default()).unwrap();
    let mut s = Set::new(vec![Brick::open(&path, &identity(1), options).unwrap()]);
    let d = s.dir(ROOT, "d");
    let f = s.file(d, "f");
    s.write(f, 0, b"content of f");
    let g = s.file(d, "g");
    s.run(&Op::Link { fid: g, parent: ROOT, name: name("g2") }, b"").unwrap();
    s.file(ROOT, "a");
    let o = s.file(ROOT, "o");
    s.open.insert(o);
    s.run(&Op::Unlink { parent: ROOT, name: name("o") }, b"").unwrap();
    for n in 0..20 {
        s.file(d, &format!("more{n}"));
    }
    s.bricks.pop().unwrap().close().unwrap();
    assert!(brick::check(&path, false).unwrap().problems.is_empty());
    Closed { _dir: t, path, f, d }
}

fn tag(path: &Path) -> Option<Tag> {
    let mut buf = [0u8; 64];
    let n = rustix::fs::lgetxattr(path, XATTR, &mut buf[..]).ok()?;
    Some(Tag::decode(&buf[..n]).unwrap())
}

fn set_tag(path: &Path, tag: &[u8]) {
    rustix::fs::lsetxattr(path, XATTR, tag, rustix::fs::XattrFlags::empty()).unwrap();
}

fn untag(path: &Path) {
    rustix::fs::lremovexattr(path, XATTR).unwrap();
}

/// Checks without changing anything, then repairs, then checks again.
fn repair(path: &Path, wanted: &[(&str, &str)]) -> Report {
    let first = brick::check(path, false).unwrap();
    for (at, text) in wanted {
        let fits =
            |p: &brick::Problem| p.path == Path::new(at) && p.problem.contains(text) && !p.remedy.is_empty();
        assert!(first.problems.iter().any(fits), "{at}: {text}: {:#?}", first.problems);
    }
    assert_eq!(first, brick::check(path, false).unwrap(), "a check changes nothing");
    let repaired = brick::check(path, true).unwrap();
    assert_eq!(repaired.problems.len(), first.problems.len(), "{:#?}", repaired.problems);
    repaired
}

/// All was repaired, and nothing is wrong any more.
fn repair_all(path: &Path, wanted: &[(&str, &str)]) -> Report {
    let repaired = repair(path, wanted);
    assert!(repaired.is_sound(), "{:#?}", repaired.problems);
    let again = brick::check(path, false).unwrap();
    assert!(again.problems.is_empty(), "{:#?}", again.problems);
    repaired
}

fn stale_objects(path: &Path) -> (Lsn, Vec<Fid>) {
    let b = open(path, &identity(1));
    let stale_set = b.stale_set().expect("it is stale").clone();
    (stale_set.from, stale_set.objects)
}

#[test]
fn a_lost_tag_is_written_again_from_the_index() {
    let c = closed();
    let file = c.path.join("d/f");
    let before = tag(&file).unwrap();
    untag(&file);
    let report = repair_all(&c.path, &[("d/f", "it has no tag; by the index it is")]);
    assert_eq!(report.to_heal, Some(ToHeal::Objects(1)));
    let now = tag(&file).unwrap();
    assert_eq!((now.fid, now.home, now.version.lsn), (before.fid, before.home, Lsn(0)));
    let (from, objects) = stale_objects(&c.path);
    assert!(from > Lsn(0) && objects == [c.f], "only that file heals");
    // A damaged one likewise.
    set_tag(&file, b"rubbish");
    repair_all(&c.path, &[("d/f", "its tag is damaged; by the index it is")]);
    assert_eq!(tag(&file).unwrap().fid, before.fid);
}

#[test]
fn a_lost_tag_of_a_directory_hides_nothing_of_what_is_in_it() {
    let c = closed();
    untag(&c.path.join("d"));
    let report = repair_all(&c.path, &[("d", "it has no tag; by the index it is")]);
    assert_eq!((report.files, report.directories), (24, 1));
    assert_eq!(stale_objects(&c.path).1, [c.d]);
    let mut b = open(&c.path, &identity(1));
    assert_eq!(b.attr(c.f).unwrap().size, 12);
}

#[test]
fn without_an_index_a_lost_tag_is_lost() {
    let c = closed();
    untag(&c.path.join("d/f"));
    std::fs::remove_file(c.path.join(".mortar/index.redb")).unwrap();
    let report = repair(&c.path, &[("d/f", "it has no tag"), (".mortar/index.redb", "missing")]);
    let left: Vec<_> = report.problems.iter().filter(|p| !p.remedy.is_empty()).collect();
    assert!(
        left.len() == 1 && left[0].path == Path::new("d/f") && left[0].remedy.contains("move it out"),
        "{left:?}"
    );
    assert_eq!(report.to_heal, None);
}

#[test]
fn the_top_directorys_tag_is_derived_from_the_identity() {
    let c = closed();
    let good = tag(&c.path).unwrap();
    for (bad, text) in [
        (Tag { fid: c.f, ..good }.encode(), "the top directory's tag names"),
        (Tag { home: SetId(9), ..good }.encode(), "names set #9"),
    ] {
        set_tag(&c.path, &bad);
        assert!(repair_all(&c.path, &[("", text)]).to_heal.is_some());
        assert_eq!(tag(&c.path).unwrap().fid, ROOT);
    }
    untag(&c.path);
    repair_all(&c.path, &[("", "the top directory has no tag")]);
    drop(open(&c.path, &identity(1)));
}

#[test]
fn a_copy_with_the_same_fid_is_told_from_the_file() {
    for copy in ["d/0", "z"] {
        // One is met before the file, one after it.
        let c = closed();
        let text = std::process::Command::new("cp")
            .arg("-a")
            .arg(c.path.join("d/f"))
            .arg(c.path.join(copy))
            .status();
        assert!(text.unwrap().success() && tag(&c.path.join(copy)).unwrap().fid == c.f);
        let report = repair(&c.path, &[(copy, "it has the same fid")]);
        assert!(tag(&c.path.join(copy)).is_none() && tag(&c.path.join("d/f")).unwrap().fid == c.f);
        assert!(report.problems[0].remedy.contains("move it out"), "{:?}", report.problems);
        std::fs::remove_file(c.path.join(copy)).unwrap();
        assert!(brick::check(&c.path, false).unwrap().problems.is_empty());
        let mut b = open(&c.path, &identity(1));
        assert_eq!(b.attr(c.f).unwrap().nlink, 1);
    }
}

#[test]
fn files_of_other_bricks_and_of_nobody_are_named_and_left() {
    let c = closed();
    std::fs::write(c.path.join("d/stray"), "by hand").unwrap();
    std::fs::create_dir(c.path.join("dir")).unwrap();
    std::fs::write(c.path.join("dir/inside"), "by hand").unwrap();
    std::fs::write(c.path.join("foreign"), "of another volume").unwrap();
    let foreign = Fid { set: SetId(7), epoch: Epoch(1), lsn: Lsn(3) };
    set_tag(
        &c.path.join("foreign"),
        &Tag { fid: foreign, home: SetId(7), ..tag(&c.path.join("a")).unwrap() }.encode(),
    );
    let wanted = [
        ("d/stray", "it has no tag: it does not belong"),
        ("dir", "it and all in it do not belong"),
        ("foreign", "its tag is that of a file of set #7"),
    ];
    let report = repair(&c.path, &wanted);
    assert!(report.problems.len() == 3 && report.problems.iter().all(|p| p.remedy.contains("move it out")));
    assert_eq!(std::fs::read(c.path.join("d/stray")).unwrap(), b"by hand");
    assert!(tag(&c.path.join("foreign")).is_none());
    drop(open(&c.path, &identity(1)));
}

#[test]
fn a_wrong_owner_is_put_right() {
    let c = closed();
    for at in ["d/f", "d"] {
        let good = tag(&c.path.join(at)).unwrap();
        set_tag(&c.path.join(at), &Tag { home: SetId(5), ..good }.encode());
        let report = repair_all(&c.path, &[(at, "its tag says that set #5 answers for it")]);
        assert_eq!((tag(&c.path.join(at)), report.to_heal), (Some(good), Some(ToHeal::Objects(1))));
        std::fs::remove_file(c.path.join(".mortar/heal")).unwrap();
    }
}

#[test]
fn an_index_that_is_stale_either_way_is_made_anew() {
    let c = closed();
    let index = c.path.join(".mortar/index.redb");
    let old = std::fs::read(&index).unwrap();
    let mut s = Set::new(vec![open(&c.path, &identity(1))]);
    s.file(c.d, "later");
    s.run(&Op::Unlink { parent: c.d, name: name("more3") }, b"").unwrap();
    s.bricks.pop().unwrap().close().unwrap();
    std::fs::write(&index, &old).unwrap();
    let wanted = [("d/later", "the index does not know its fid"), (".mortar/index.redb", "leads nowhere")];
    let report = repair_all(&c.path, &wanted);
    assert_eq!(report.to_heal, Some(ToHeal::Everything), "as if it had been removed by hand");
    std::fs::remove_file(c.path.join(".mortar/heal")).unwrap();
    for bad in [&b""[..], b"rubbish", &old[..old.len() / 2]] {
        std::fs::write(&index, bad).unwrap();
        let found = brick::check(&c.path, true).unwrap();
        assert!(found.is_sound() && found.problems.len() == 1, "{:?}", found.problems);
        assert!(brick::check(&c.path, false).unwrap().problems.is_empty());
    }
    std::fs::remove_file(&index).unwrap();
    repair_all(&c.path, &[(".mortar/index.redb", "the index is missing")]);
    assert!(open(&c.path, &identity(1)).attr(c.f).is_ok());
}

#[test]
fn a_damaged_journal_begins_anew_beyond_everything_it_gave() {
    type Harm = fn(&[PathBuf]);
    let harms: [(&str, Harm); 5] = [
        ("damage at byte", |all| flip(&all[1], 300)),
        ("damage at byte 0", |all| flip(&all[1], 9)),
        ("the segment before it is missing", |all| std::fs::remove_file(&all[1]).unwrap()),
        ("damage at byte 0", |all| std::fs::write(&all[0], "").unwrap()),
        // Closed in order, so nothing was being written: the end was lost otherwise.
        ("damage at byte", |all| {
            let last = all.last().unwrap();
            let len = last.metadata().unwrap().len();
            std::fs::File::options().write(true).open(last).unwrap().set_len(len - 3).unwrap();
        }),
    ];
    for (n, (text, harm)) in harms.into_iter().enumerate() {
        let c = closed_with(Options { segment_size: 800, ..Options::default() });
        let dir = c.path.join(".mortar/journal");
        let mut all: Vec<PathBuf> = std::fs::read_dir(&dir).unwrap().map(|e| e.unwrap().path()).collect();
        all.sort();
        assert!(all.len() > 3);
        let last = open(&c.path, &identity(1)).last().lsn;
        open(&c.path, &identity(1)).close().unwrap();
        harm(&all);
        let report = brick::check(&c.path, false).unwrap();
        assert!(report.problems.iter().any(|p| p.problem.contains(text)), "{n}: {:?}", report.problems);
        let report = brick::check(&c.path, true).unwrap();
        assert!(report.is_sound() && report.to_heal == Some(ToHeal::Everything), "{n}: {report:?}");
        assert_eq!(brick::check(&c.path, false).unwrap().problems, [], "{n}");
        let b = open(&c.path, &identity(1));
        assert!(b.last().lsn >= last && b.durable().lsn == b.last().lsn, "{n}: {:?} {last}", b.last());
        let stale_set = b.stale_set().unwrap();
        assert!(
            stale_set.from == Lsn(0) && stale_set.objects.contains(&c.f) && stale_set.objects.contains(&ROOT),
            "{n}"
        );
    }
}

fn flip(file: &Path, at: usize) {
    let mut bytes = std::fs::read(file).unwrap();
    bytes[at] ^= 0x40;
    std::fs::write(file, bytes).unwrap();
}

#[test]
fn leftovers_in_the_bricks_own_folders() {
    let c = closed();
    let meta = c.path.join(".mortar");
    let orphan = std::fs::read_dir(meta.join("orphans")).unwrap().next().unwrap().unwrap().path();
    // An orphan is none of the check's business, unless its name or its tag is wrong.
    std::fs::rename(&orphan, meta.join("orphans/misnamed")).unwrap();
    repair_all(&c.path, &[(".mortar/orphans/misnamed", "a file without a name whose fid is")]);
    assert!(orphan.exists());
    untag(&orphan);
    std::fs::remove_file(meta.join("index.redb")).unwrap();
    let shown = format!(".mortar/orphans/{}", orphan.file_name().unwrap().to_str().unwrap());
    let report = brick::check(&c.path, true).unwrap();
    assert!(report.is_sound() && report.problems.iter().any(|p| p.path == Path::new(&shown)), "{report:?}");
    assert!(tag(&orphan).is_some());
    std::fs::remove_file(meta.join("heal")).unwrap();
    // What a healing took out of its place goes with the healing.
    std::fs::rename(c.path.join("a"), meta.join("aside").join(orphan.file_name().unwrap())).unwrap();
    let moved = format!(".mortar/aside/{}", orphan.file_name().unwrap().to_str().unwrap());
    let report = brick::check(&c.path, false).unwrap();
    assert!(report.problems.iter().any(|p| p.path == Path::new(&moved)), "{report:?}");
    brick::check(&c.path, true).unwrap();
    assert_eq!(std::fs::read_dir(meta.join("aside")).unwrap().count(), 0);
    std::fs::write(meta.join("state"), "rubbish").unwrap();
    repair_all(&c.path, &[(".mortar/state", "nothing counts as on disk for certain")]);
}

#[test]
fn hard_links_that_leave_the_brick_are_counted() {
    let c = closed();
    let outside = c.path.parent().unwrap().join("outside");
    std::fs::hard_link(c.path.join("d/g"), &outside).unwrap();
    let report = brick::check(&c.path, true).unwrap();
    let [problem] = &report.problems[..] else { panic!("{:?}", report.problems) };
    assert!(problem.problem.contains("3 hard links, 2 of them in the brick"), "{problem}");
    std::fs::remove_file(outside).unwrap();
    assert!(brick::check(&c.path, false).unwrap().problems.is_empty());
}

#[test]
fn a_lost_identity_is_written_again_by_who_knows_it() {
    let c = closed();
    let file = c.path.join(".mortar/identity");
    let good = std::fs::read(&file).unwrap();
    for bad in [Some(&b"rubbish"[..]), Some(b""), None] {
        match bad {
            Some(bytes) => std::fs::write(&file, bytes).unwrap(),
            None => std::fs::remove_file(&file).unwrap(),
        }
        let report = brick::check(&c.path, true).unwrap();
        let [problem] = &report.problems[..] else { panic!("{:?}", report.problems) };
        assert!(problem.path == Path::new(".mortar/identity") && problem.problem.contains("this is brick 1"));
        assert!(problem.remedy.contains("the server writes it again"), "{problem}");
        // Another brick does not get it, the right one does.
        assert_eq!(brick::restore_identity(&c.path, &identity(2)), Ok(false));
        assert_eq!(brick::restore_identity(&c.path, &identity(1)), Ok(true));
        assert_eq!(std::fs::read(&file).unwrap(), good);
        assert_eq!(brick::restore_identity(&c.path, &identity(1)), Ok(false), "it is there");
    }
    let empty = c.path.parent().unwrap().join("empty");
    std::fs::create_dir(&empty).unwrap();
    assert_eq!(brick::restore_identity(&empty, &identity(1)), Ok(false));
    assert!(matches!(brick::check(&empty, false), Err(OpenError::NotBrick { .. })));
}

//! Attributes in pages of directories, against a server that answers by script.
#![allow(clippy::unwrap_used, reason = "test code")]

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::fake::{Act, Fake, map};
use client::{Client, Options, Page, grant};
use ids::{Epoch, Fid, Lsn, SetId, Time};
use wire::codec::Blob;
use wire::limits::GETATTRS_MAX;
use wire::reply::DirEntry;
use wire::{Attr, Body, Errno, Name, Op, Reply};

fn fid(set: u32, lsn: u64) -> Fid {
    Fid { set: SetId(set), epoch: Epoch(1), lsn: Lsn(lsn) }
}

fn attr(fid: Fid) -> Attr {
    let (uid, gid, rdev, size, blocks) = (0, 0, 0, 4096, 8);
    let [atime, mtime, ctime] = [Time::default(); 3];
    Attr { fid, home: fid.set, mode: 0o040_755, uid, gid, nlink: 2, rdev, size, blocks, atime, mtime, ctime }
}

fn attrs(fids: &[Fid]) -> Reply {
    Reply(Ok(Body::Attrs { attrs: fids.iter().map(|fid| attr(*fid)).collect() }))
}

/// A client of a volume of three sets, whose root, on set 1, has so many entries, a third of them on each set; what it asked
/// for, by set. The page is granted for 200 ms. For a key that has servers check permissions it is that of a user who may
/// list, but not search.
struct World {
    _server: Fake,
    client: Client,
    asked: Arc<Mutex<Vec<(u32, usize)>>>,
}

impl World {
    fn new(entries: u64, answer: impl Fn(u32, &[Fid]) -> Act + Send + Sync + 'static) -> World {
        World::with(entries, None, answer)
    }

    fn with(
        entries: u64,
        key: Option<(&str, &str)>,
        answer: impl Fn(u32, &[Fid]) -> Act + Send + Sync + 'static,
    ) -> World {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (noted, is_checked) = (Arc::clone(&asked), key.is_some());
        let server = Fake::start(1, move |call, _| match &call.op {
            Op::ReadDir { plus, .. } => {
                let entry = |n: u64| {
                    let fid = fid(1 + u32::try_from(n % 3).unwrap(), n);
                    DirEntry {
                        name: Name::new(n.to_string().as_bytes()).unwrap(),
                        fid,
                        home: fid.set,
                        kind: 0o040_000,
                        cookie: n,
                        attr: (fid.set == SetId(1) && *plus && !is_checked).then(|| attr(fid)),
                    }
                };
                let entries = (1..=entries).map(entry).collect();
                Act::Grant(Reply(Ok(Body::Page { entries, end: true })), 200)
            }
            Op::GetAttrs { fids } => {
                noted.lock().unwrap().push((call.set.0, fids.len()));
                answer(call.set.0, fids)
            }
            _ => Act::Answer(Reply(Ok(Body::Done))),
        });
        let mut map = map(1, &[(1, 1, Some(1)), (2, 1, Some(1)), (3, 1, Some(1))], &[&server]);
        map.options.extend(key.map(|(option, value)| (Blob(option.into()), Blob(value.into()))));
        server.push(&map);
        let client =
            Client::connect(std::slice::from_ref(&server.address), "vol", Options::default()).unwrap();
        World { _server: server, client, asked }
    }

    /// A page, and whether it may be kept.
    fn list(&self, plus: bool) -> (Page, bool) {
        grant::begin();
        let page = self.client.read_dir(self.client.root(), 0, plus).unwrap();
        assert!(page.entries.iter().all(|e| e.attr.as_ref().is_none_or(|a| a.fid == e.fid)));
        (page, grant::until().is_some_and(|until| Instant::now() < until))
    }

    /// What was asked, set by set: they are asked at the same time.
    fn asked(&self) -> Vec<(u32, usize)> {
        let mut asked = std::mem::take(&mut *self.asked.lock().unwrap());
        asked.sort_by_key(|(set, _)| *set);
        asked
    }
}

/// How many entries of each set have their attributes.
fn with(page: &Page) -> [usize; 3] {
    [1, 2, 3].map(|set| page.entries.iter().filter(|e| e.home == SetId(set) && e.attr.is_some()).count())
}

#[test]
fn each_set_is_asked_once_about_the_entries_that_lead_to_it() {
    let w = World::new(9, |_, fids| Act::Grant(attrs(fids), 250));
    let (page, kept) = w.list(true);
    assert_eq!((with(&page), kept), ([3, 3, 3], true));
    assert_eq!(w.asked(), [(2, 3), (3, 3)]);
    let (page, _) = w.list(false);
    assert_eq!((page.entries.len(), with(&page)), (9, [0, 0, 0]));
    assert_eq!(w.asked(), [], "nobody wants attributes");
}

#[test]
fn a_set_that_tells_less_is_asked_for_the_rest_and_what_is_gone_stays_without() {
    // A gone one among them, and not more than two an answer.
    let w = World::new(15, |_, fids| {
        let there: Vec<Fid> =
            fids.iter().copied().filter(|fid| !(5..=6).contains(&fid.lsn.0)).take(2).collect();
        Act::Grant(attrs(&there), 250)
    });
    let (page, kept) = w.list(true);
    assert_eq!((with(&page), kept), ([5, 5, 4], true), "{:?}", w.asked());
    let many = World::new(3 * (GETATTRS_MAX as u64 + 1), |_, fids| Act::Grant(attrs(fids), 250));
    assert_eq!(with(&many.list(true).0), [GETATTRS_MAX + 1; 3]);
    assert_eq!(many.asked(), [(2, GETATTRS_MAX), (2, 1), (3, GETATTRS_MAX), (3, 1)]);
}

/// As servers of before refuse a question that they cannot read.
#[test]
fn a_server_that_does_not_know_the_question_leaves_pages_as_they_were() {
    let w = World::new(9, |set, fids| match set {
        2 => Act::Answer(Reply::errno(Errno::EINVAL.0)),
        _ => Act::Grant(attrs(fids), 250),
    });
    for asked in [&[(2, 3), (3, 3)][..], &[(3, 3)]] {
        let (page, kept) = w.list(true);
        assert_eq!((with(&page), kept), ([3, 0, 3], true));
        assert_eq!(w.asked(), asked);
    }
}

#[test]
fn a_set_that_does_not_answer_delays_one_page_and_no_other() {
    let w = World::new(9, |set, fids| if set == 2 { Act::Freeze } else { Act::Grant(attrs(fids), 250) });
    let begun = Instant::now();
    let (page, _) = w.list(true);
    let delay = begun.elapsed();
    assert!((Duration::from_millis(90)..Duration::from_secs(2)).contains(&delay), "{delay:?}");
    assert_eq!(with(&page), [3, 0, 3], "the others answer meanwhile");
    assert_eq!(w.asked(), [(2, 3), (3, 3)]);
    let (page, kept) = w.list(true);
    assert_eq!((with(&page), kept, w.asked()), ([3, 0, 3], true, vec![(3, 3)]));
}

#[test]
fn a_set_whose_answers_may_not_be_kept_shortens_nobodys_grant() {
    let w = World::new(9, |set, fids| Act::Grant(attrs(fids), if set == 2 { 0 } else { 250 }));
    let (page, kept) = w.list(true);
    assert_eq!((with(&page), kept), ([3, 0, 3], true));
    let refusing = World::new(9, |_, _| Act::Answer(Reply::errno(Errno::EIO.0)));
    let (page, kept) = refusing.list(true);
    assert_eq!((with(&page), kept), ([3, 0, 0], true));
}

/// Who may list a directory, but not search it, is told no attributes.
#[test]
fn a_user_whose_permissions_are_checked_is_not_shown_more_than_the_directorys_server_shows() {
    for key in [(wire::map::SQUASH, "1000:1000"), (wire::map::USERS, "0,1000")] {
        let w = World::with(9, Some(key), |_, fids| Act::Grant(attrs(fids), 250));
        assert!(w.client.squash().is_some() != w.client.users().is_some());
        assert_eq!((with(&w.list(true).0), w.asked()), ([0, 0, 0], vec![]), "{key:?}");
    }
}

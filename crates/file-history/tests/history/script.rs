//! Histories as a test writes them down.

use bytes::Bytes;
use file_history::{Answer, Excuse, Excuses, Loss, Record, Summary, Violation, check};
use ids::{Epoch, Fid, Lsn, SetId, Time};
use wire::codec::Blob;
use wire::op::{Node, SetAttr, SetTime};
use wire::reply::DirEntry;
use wire::{Attr, Body, Errno, Name, Op};

pub(crate) const SET: SetId = SetId(1);

pub(crate) fn root() -> Fid {
    Fid::root(SET)
}

/// The object that the `n`th change made.
pub(crate) fn fid(n: u64) -> Fid {
    Fid { set: SET, epoch: Epoch(1), lsn: Lsn(n) }
}

pub(crate) fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

/// Attributes of a file with this many names and bytes.
pub(crate) fn file(fid: Fid, nlink: u32, size: u64) -> Attr {
    let t = Time::default();
    Attr {
        fid,
        home: fid.set,
        mode: 0o100_644,
        uid: 0,
        gid: 0,
        nlink,
        rdev: 0,
        size,
        blocks: 0,
        atime: t,
        mtime: t,
        ctime: t,
    }
}

pub(crate) fn dir(fid: Fid) -> Attr {
    Attr { mode: 0o040_755, ..file(fid, 2, 0) }
}

/// A history in the making. Calls follow each other unless [`Script::at`] says when they are.
#[derive(Clone, Default)]
pub(crate) struct Script {
    pub(crate) records: Vec<Record>,
    pub(crate) losses: Vec<Loss>,
    pub(crate) excuses: Excuses,
    now: u64,
}

pub(crate) type Told = Answer;

pub(crate) fn done() -> Told {
    Ok((Body::Done, Bytes::new()))
}

pub(crate) fn attr(attr: Attr) -> Told {
    Ok((Body::Attr { attr }, Bytes::new()))
}

pub(crate) fn data(bytes: &[(usize, u8)]) -> Bytes {
    bytes.iter().flat_map(|(n, b)| std::iter::repeat_n(*b, *n)).collect::<Vec<u8>>().into()
}

impl Script {
    /// A call of client 0 after all others.
    pub(crate) fn call(&mut self, op: Op, told: Told) -> &mut Record {
        self.of(0, op, Bytes::new(), told)
    }

    pub(crate) fn of(&mut self, client: u32, op: Op, payload: Bytes, told: Told) -> &mut Record {
        self.now += 10;
        let answer = Some((self.now + 5, told));
        self.records.push(Record { client, op, payload, set: SET, begun: self.now, answer });
        self.records.last_mut().unwrap()
    }

    /// The last call was under way from then until then.
    pub(crate) fn at(&mut self, begun: u64, ended: u64) {
        let last = self.records.last_mut().unwrap();
        last.begun = begun;
        if let Some((at, _)) = &mut last.answer {
            *at = ended;
        }
        self.now = self.now.max(ended);
    }

    /// Nobody knows what the last call came to.
    pub(crate) fn unanswered(&mut self) {
        self.records.last_mut().unwrap().answer = None;
    }

    pub(crate) fn create(&mut self, parent: Fid, n: &str, f: u64) {
        let op = make(parent, n, Node::File);
        self.call(op, attr(file(fid(f), 1, 0)));
    }

    pub(crate) fn mkdir(&mut self, parent: Fid, n: &str, f: u64) {
        let op = make(parent, n, Node::Dir);
        self.call(op, attr(dir(fid(f))));
    }

    pub(crate) fn lookup(&mut self, parent: Fid, n: &str, told: Result<Attr, Errno>) {
        self.call(Op::Lookup { parent, name: name(n) }, told.and_then(attr));
    }

    pub(crate) fn unlink(&mut self, n: &str, told: Told) {
        self.call(Op::Unlink { parent: root(), name: name(n) }, told);
    }

    pub(crate) fn rename(&mut self, from: &str, to: &str, told: Told) {
        let (parent, to_parent) = (root(), root());
        let op = Op::Rename { parent, name: name(from), to_parent, to_name: name(to), flags: 0 };
        self.call(op, told);
    }

    pub(crate) fn write(&mut self, f: u64, offset: u64, bytes: &[(usize, u8)], size: u64) {
        let payload = data(bytes);
        let len = u32::try_from(payload.len()).unwrap();
        let op = Op::Write { fid: fid(f), offset, append: false, kill_suid: false };
        let body = Body::Written { len, attr: file(fid(f), 1, size) };
        self.of(0, op, payload, Ok((body, Bytes::new())));
    }

    pub(crate) fn append(&mut self, f: u64, bytes: &[(usize, u8)], size: u64) {
        self.write(f, 0, bytes, size);
        let Op::Write { append, .. } = &mut self.records.last_mut().unwrap().op else { return };
        *append = true;
    }

    pub(crate) fn read(&mut self, f: u64, bytes: &[(usize, u8)]) {
        let op = Op::Read { fid: fid(f), offset: 0, len: 1000 };
        self.call(op, Ok((Body::Data, data(bytes))));
    }

    pub(crate) fn list(&mut self, parent: Fid, entries: &[(&str, u64)]) {
        let entries = entries.iter().enumerate().map(|(i, (n, f))| entry(n, *f, i as u64 + 1)).collect();
        let op = Op::ReadDir { fid: parent, cookie: 0, plus: false };
        self.call(op, Ok((Body::Page { entries, end: true }, Bytes::new())));
    }

    pub(crate) fn fsync(&mut self, f: Fid, told: Told) {
        self.call(Op::Fsync { fid: f }, told);
    }

    pub(crate) fn lose(&mut self) {
        self.now += 10;
        self.losses.push(Loss { set: SET, from: self.now, until: self.now + 5 });
    }

    pub(crate) fn excuse(&mut self, errno: Errno) {
        self.excuses.errors.push(Excuse { errno, set: Some(SET), from: 0, until: u64::MAX });
    }

    pub(crate) fn check(&self) -> Result<Summary, Violation> {
        check(&self.records, &self.losses, &self.excuses, (root(), SET))
    }

    #[track_caller]
    pub(crate) fn accepted(&self) {
        let summary = self.check().unwrap_or_else(|v| panic!("{v}"));
        assert_eq!(summary.undecided, 0);
    }

    #[track_caller]
    pub(crate) fn refused(&self) {
        let text = self.check().expect_err("a violation").text;
        assert!(text.contains('#'), "it shows no record: {text}");
    }
}

pub(crate) fn make(parent: Fid, n: &str, node: Node) -> Op {
    let mode = if node == Node::File { 0o666 } else { 0o777 };
    Op::Create { parent, name: name(n), node, mode, umask: 0o022, uid: 0, gid: 0, open: false }
}

pub(crate) fn entry(n: &str, f: u64, cookie: u64) -> DirEntry {
    DirEntry { name: name(n), fid: fid(f), home: SET, kind: 0o100_000, cookie, attr: None }
}

pub(crate) fn symlink(target: &str) -> Node {
    Node::Symlink { target: Blob(target.as_bytes().to_vec()) }
}

fn set_attr(f: u64, size: Option<u64>, mtime: Option<SetTime>) -> Op {
    let set = SetAttr { mode: None, uid: None, gid: None, size, atime: None, mtime, kill_suid: false };
    Op::SetAttr { fid: fid(f), set }
}

pub(crate) fn set_size(f: u64, size: u64) -> Op {
    set_attr(f, Some(size), None)
}

pub(crate) fn set_mtime(f: u64, time: Time) -> Op {
    set_attr(f, None, Some(SetTime::At { time }))
}

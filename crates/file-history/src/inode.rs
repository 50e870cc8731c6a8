//! The model of what single objects contain: data, size, mode, owner, extended attributes.
//!
//! Most objects are checked alone; those between which data was copied are checked together.

mod step;

use crate::choice::{Choice, Shown};
use crate::content::{Content, Piece};
use linearizability::Spec;
use std::collections::BTreeMap;
use wire::Errno;

/// The attributes that an answer shows; `None`: nothing is said of it.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Seen {
    pub(crate) mode: Option<u32>,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) size: Option<u64>,
    pub(crate) mtime: ids::Time,
}

/// What a change of attributes sets.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct NewAttr {
    pub(crate) mode: Option<u32>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) size: Option<u64>,
    pub(crate) mtime: Option<ids::Time>,
    /// The time is the server's.
    pub(crate) touch: bool,
    pub(crate) kill_suid: bool,
}

/// A question about one object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Ask {
    Observe,
    SetAttr(NewAttr),
    /// `at`: `None` appends. `torn`: it failed in its midst, perhaps.
    Write {
        at: Option<u64>,
        data: Vec<Piece>,
        kill_suid: bool,
        torn: bool,
    },
    /// A part of a write to a file on several sets: the file gets no longer by it. `torn`: perhaps.
    Part {
        at: u64,
        data: Vec<Piece>,
        torn: bool,
    },
    /// The end of such a write.
    Grow {
        end: u64,
        kill_suid: bool,
    },
    Read {
        offset: u64,
        len: u64,
    },
    GetXattr(String),
    ListXattr,
    SetXattr {
        name: String,
        flags: u32,
        value: Vec<u8>,
    },
    RemoveXattr(String),
    /// `parted`: a file on several sets has no more of a hole than lies within its length, as what lies behind may belong to a write
    /// that is under way (docs/design/0029).
    Fallocate {
        mode: u32,
        offset: u64,
        len: u64,
        parted: bool,
    },
    Copy {
        from: usize,
        from_offset: u64,
        offset: u64,
        len: u64,
    },
    Seek {
        offset: u64,
        whence: u32,
    },
    Sync {
        vouches: bool,
    },
    Lose,
}

impl Ask {
    pub(crate) fn changes(&self) -> bool {
        !matches!(
            self,
            Ask::Observe
                | Ask::Read { .. }
                | Ask::GetXattr(_)
                | Ask::ListXattr
                | Ask::Seek { .. }
                | Ask::Sync { .. }
        )
    }
}

/// A question, and the objects that it is about.
#[derive(Clone)]
pub(crate) struct Call {
    pub(crate) ask: Ask,
    /// The object's position in the state.
    pub(crate) of: usize,
    /// The position of the record.
    pub(crate) record: usize,
}

impl std::fmt::Debug for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "#{} {:?}", self.record, self.ask)
    }
}

/// What was answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Told {
    Done,
    Attr(Seen),
    Data(Vec<Piece>),
    Value(Vec<u8>),
    Names(Vec<String>),
    Offset(u64),
    Not(Errno),
}

/// A size: what it is if nothing was lost, what it may be, what it was since the last sync.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
struct Size {
    now: u64,
    least: u64,
    most: u64,
    since: Option<(u64, u64)>,
}

impl Size {
    fn is_certain(self) -> bool {
        self.least == self.most
    }

    /// It is about to change: a loss may set it back.
    fn note(&mut self) {
        let (least, most) = self.since.unwrap_or((self.now, self.now));
        self.since = Some((least.min(self.least), most.max(self.most)));
    }

    /// It is perhaps as much as this.
    fn may_grow(&mut self, most: u64, tracked: bool) {
        if tracked && most > self.most {
            self.note();
        }
        self.most = self.most.max(most);
    }

    fn set(&mut self, change: impl Fn(u64) -> u64, tracked: bool) {
        if tracked {
            self.note();
        }
        (self.now, self.least, self.most) = (change(self.now), change(self.least), change(self.most));
    }

    fn lose(&mut self) {
        if let Some((least, most)) = self.since.take() {
            (self.least, self.most) = (self.least.min(least), self.most.max(most));
        }
    }
}

/// One object.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Inode {
    size: Size,
    content: Content,
    mode: Choice<u32>,
    uid: Choice<u32>,
    gid: Choice<u32>,
    xattrs: BTreeMap<String, Choice<Option<Vec<u8>>>>,
    mtime: Option<ids::Time>,
    /// Something turned out to be lost.
    lost: bool,
    /// Its data lies on several sets.
    pub(crate) parted: bool,
}

impl Inode {
    /// A new object. `None`: it is not known.
    pub(crate) fn new(mode: Option<u32>, uid: Option<u32>, gid: Option<u32>) -> Inode {
        let choice = |v: Option<u32>| v.map_or_else(Choice::anything, Choice::known);
        Inode {
            size: Size::default(),
            content: Content::default(),
            mode: choice(mode),
            uid: choice(uid),
            gid: choice(gid),
            xattrs: BTreeMap::new(),
            mtime: None,
            lost: false,
            parted: false,
        }
    }

    fn note(&mut self, shown: Shown) -> bool {
        self.lost |= shown == Shown::Lost;
        shown != Shown::Wrong
    }

    /// The size turns out to lie in this range.
    fn narrow(&mut self, least: u64, most: u64) -> bool {
        let size = &mut self.size;
        if size.most < least || size.least > most {
            return false;
        }
        if size.is_certain() {
            return true;
        }
        (size.least, size.most) = (size.least.max(least), size.most.min(most));
        let now = size.now.clamp(size.least, size.most);
        self.lost |= now != size.now;
        size.now = now;
        let most = size.most;
        if self.parted {
            self.content.hide_from(most);
        } else {
            self.content.end_at(most);
        }
        true
    }

    fn settle(&mut self) {
        self.content.settle();
        (self.size.least, self.size.most) = (self.size.now, self.size.now);
        self.mode.settle();
        self.uid.settle();
        self.gid.settle();
        self.xattrs.values_mut().for_each(Choice::settle);
    }

    fn sync(&mut self) {
        self.content.sync();
        self.size.since = None;
        self.mode.sync();
        self.uid.sync();
        self.gid.sync();
        self.xattrs.values_mut().for_each(Choice::sync);
    }

    fn lose(&mut self) {
        self.content.lose();
        self.size.lose();
        self.mode.lose();
        self.uid.lose();
        self.gid.lose();
        self.xattrs.values_mut().for_each(Choice::lose);
        self.mtime = None;
    }
}

/// The model of some objects that have to be looked at together.
pub(crate) struct Inodes {
    /// A loss may come.
    pub(crate) tracked: bool,
}

impl Spec for Inodes {
    type State = Vec<Inode>;
    type Input = Call;
    type Output = Told;

    fn step(&self, state: &Vec<Inode>, call: &Call, told: Option<&Told>) -> impl Iterator<Item = Vec<Inode>> {
        self.outcome(state, call, told).into_iter()
    }

    fn looks(&self, call: &Call, told: Option<&Told>) -> bool {
        matches!(told, Some(Told::Not(_))) || !(call.ask.changes() || matches!(call.ask, Ask::Sync { .. }))
    }

    fn conflict(&self, a: &Call, b: &Call) -> bool {
        if matches!(a.ask, Ask::Lose) || matches!(b.ask, Ask::Lose) {
            return true;
        }
        let result_fid =
            |c: &Call, of: usize| c.of == of || matches!(c.ask, Ask::Copy { from, .. } if from == of);
        let changes = |c: &Call| c.ask.changes();
        let writes = |a: &Call, b: &Call| changes(a) && result_fid(b, a.of);
        // A sync changes what a loss may take, and a vouching one says what was not lost.
        let syncs = |a: &Call, b: &Call| {
            matches!(a.ask, Ask::Sync { vouches } if vouches || changes(b)) && result_fid(b, a.of)
        };
        writes(a, b) || writes(b, a) || syncs(a, b) || syncs(b, a)
    }
}

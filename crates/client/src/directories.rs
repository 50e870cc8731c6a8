//! What is known of directories from this client's own changes to them.
//!
//! The kernel forgets a directory's attributes whenever it changes an entry, and asks for them before the next change. The
//! answer to a change brings them along while this client is the only active one (see [`crate::grant`]), so that the
//! question is answered here. Always true: what is handed out is not older than any change of this client that has ended,
//! and was granted until the time that comes with it.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use ids::Fid;
use wire::{Attr, Op, Wire};

use crate::sets::lock;

/// Directories known at a time.
const MAX: usize = 1024;
/// For longer than any grant: nothing older is believed after a change whose outcome is not known.
const INVALID_FOR: Duration = Duration::from_millis(1000);

struct Known {
    /// `None`: something changed, and how is not known.
    attr: Option<Attr>,
    until: Instant,
}

/// The attributes of some directories.
#[derive(Default)]
pub(crate) struct Directories {
    known: Mutex<HashMap<Fid, Known>>,
}

impl Directories {
    /// The attributes, if they are known, and until when they hold.
    pub(crate) fn get(&self, fid: Fid) -> Option<(Attr, Instant)> {
        let known = lock(&self.known);
        let k = known.get(&fid).filter(|k| Instant::now() < k.until)?;
        k.attr.clone().map(|attr| (attr, k.until))
    }

    fn learn(&self, attr: Attr, until: Instant) {
        let mut known = lock(&self.known);
        let now = Instant::now();
        if known.len() >= MAX {
            known.retain(|_, k| now < k.until);
            if known.len() >= MAX {
                known.clear();
            }
        }
        let newer = |k: &Known| k.attr.as_ref().is_none_or(|a| a.ctime > attr.ctime);
        if !known.get(&attr.fid).is_some_and(|k| now < k.until && newer(k)) {
            known.insert(attr.fid, Known { attr: Some(attr), until });
        }
    }

    fn invalidate(&self, fid: Fid) {
        lock(&self.known).insert(fid, Known { attr: None, until: Instant::now() + INVALID_FOR });
    }

    /// An operation begins: what it will change is not to be believed.
    pub(crate) fn begin(&self, op: &Op) {
        match op {
            Op::SetAttr { fid, .. } | Op::SetXattr { fid, .. } | Op::RemoveXattr { fid, .. }
                if self.get(*fid).is_some() =>
            {
                self.invalidate(*fid);
            }
            _ => {}
        }
    }

    /// An operation ended; `told` is what came with its answer, to be believed until then.
    pub(crate) fn end(&self, op: &Op, told: &[u8], until: Option<Instant>) {
        let dirs: &[Fid] = match op {
            Op::Create { parent, .. }
            | Op::Unlink { parent, .. }
            | Op::Rmdir { parent, .. }
            | Op::Link { parent, .. }
            | Op::LinkIn { parent, .. } => &[*parent],
            Op::Rename { parent, to_parent, .. } | Op::MoveIn { parent, to_parent, .. } => {
                &[*parent, *to_parent]
            }
            Op::SetAttr { .. } | Op::SetXattr { .. } | Op::RemoveXattr { .. } => return self.begin(op),
            _ => return,
        };
        let attrs = Vec::<Attr>::from_bytes(told).unwrap_or_default();
        for dir in dirs {
            if !attrs.iter().any(|a| a.fid == *dir) && self.get(*dir).is_some() {
                self.invalidate(*dir);
            }
        }
        if let Some(until) = until {
            for attr in attrs {
                self.learn(attr, until);
            }
        }
    }
}

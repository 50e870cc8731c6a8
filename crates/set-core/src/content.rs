//! A change as the core holds it: decoded once, shared by all who need it, its data apart.

use alloc::rc::Rc;
use alloc::vec::Vec;
use bytes::Bytes;
use ids::Fid;
use replica::ChangeBody;

use wire::Change;

/// A change and its data.
#[derive(Clone, Debug)]
pub struct Content {
    /// What changes.
    pub change: Rc<Change>,
    /// Its data.
    pub payload: Bytes,
}

impl Content {
    /// A change with its data.
    pub fn new(change: Change, payload: Bytes) -> Content {
        Content { change: Rc::new(change), payload }
    }
}

impl ChangeBody for Content {
    fn touched(&self) -> Vec<Fid> {
        self.change.touched()
    }

    fn size(&self) -> usize {
        256 + self.payload.len()
    }

    fn amount(&self) -> u64 {
        self.change.amount()
    }
}

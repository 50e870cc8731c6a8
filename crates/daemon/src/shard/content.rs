//! A change as the shards hold it: decoded once, shared by all who need it, its data apart.

use bytes::Bytes;
use ids::Fid;
use replica::Body;
use std::rc::Rc;
use wire::Change;

/// A change and its data.
#[derive(Clone, Debug)]
pub(crate) struct Content {
    pub(crate) change: Rc<Change>,
    pub(crate) payload: Bytes,
}

impl Content {
    pub(crate) fn new(change: Change, payload: Bytes) -> Content {
        Content { change: Rc::new(change), payload }
    }
}

impl Body for Content {
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

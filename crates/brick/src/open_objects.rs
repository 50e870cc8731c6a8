//! Objects that are kept open, up to a bound of descriptors.

use crate::lru::Lru;
use crate::object::OpenObject;
use ids::Fid;

/// The objects that are kept open.
pub(crate) struct OpenObjects {
    kept: Lru<Fid, OpenObject>,
    limit: usize,
}

impl OpenObjects {
    pub(crate) fn new(limit: usize) -> OpenObjects {
        OpenObjects { kept: Lru::new(), limit: limit.max(4) }
    }

    /// The object, if it is open.
    pub(crate) fn get(&mut self, fid: Fid) -> Option<&OpenObject> {
        self.kept.get(&fid).map(|o| &*o)
    }

    /// Keeps an object open, in place of the one that was used longest ago.
    pub(crate) fn keep(&mut self, fid: Fid, o: OpenObject) {
        while self.kept.len() >= self.limit {
            self.kept.pop_oldest();
        }
        self.kept.insert(fid, o);
    }

    pub(crate) fn forget(&mut self, fid: Fid) {
        self.kept.remove(&fid);
    }

    pub(crate) fn clear(&mut self) {
        while self.kept.pop_oldest().is_some() {}
    }
}

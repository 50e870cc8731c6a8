//! What an operation is for the client.

use ids::Fid;
use wire::Op;

/// What an operation is for the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// It changes nothing.
    Read,
    /// It changes something, which is noted until it is synced.
    Change,
    /// It syncs one object, or everything: it fails if something was lost before.
    Sync(Option<Fid>),
}

impl Class {
    /// The class of an operation.
    pub fn of(op: &Op) -> Class {
        match op {
            Op::Fsync { fid } => Class::Sync(Some(*fid)),
            Op::SyncFs => Class::Sync(None),
            op if op.changes() => Class::Change,
            _ => Class::Read,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ids::SetId;

    #[test]
    fn operations_have_classes() {
        let fid = Fid::root(SetId(1));
        assert_eq!(Class::of(&Op::GetAttr { fid }), Class::Read);
        assert_eq!(Class::of(&Op::Open { fid }), Class::Read);
        assert_eq!(Class::of(&Op::RemoveXattr { fid, name: wire::Name::new(b"a").unwrap() }), Class::Change);
        assert_eq!(Class::of(&Op::Fsync { fid }), Class::Sync(Some(fid)));
        assert_eq!(Class::of(&Op::SyncFs), Class::Sync(None));
    }
}

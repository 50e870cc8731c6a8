//! Which operations clients ask for, and which objects those name.

use crate::Op;
use crate::op::COPY_NAMES;
use crate::stripes::PIECE;
use ids::Fid;

/// What only the primary of a set asks for, as a pattern.
#[macro_export]
macro_rules! between_sets {
    () => {
        $crate::Op::PrepareMkdir { .. }
            | $crate::Op::PrepareRmdir { .. }
            | $crate::Op::Relocate { .. }
            | $crate::Op::CheckEntry { .. }
            | $crate::Op::CheckOutcome { .. }
            | $crate::Op::CheckMark { .. }
            | $crate::Op::CheckRight { .. }
            | $crate::Op::EndTransaction { .. }
            | $crate::Op::LockTree { .. }
            | $crate::Op::UnlockTree { .. }
            | $crate::Op::Lineage { .. }
            | $crate::Op::PathOf { .. }
            | $crate::Op::PrepareFile { .. }
            | $crate::Op::PrepareExchange { .. }
            | $crate::Op::EndFile { .. }
            | $crate::Op::Arrive
            | $crate::Op::Land { .. }
            | $crate::Op::Depart { .. }
            | $crate::Op::DepartAll { .. }
            | $crate::Op::Retarget { .. }
            | $crate::Op::PrepareLeave { .. }
            | $crate::Op::Redirect { .. }
            | $crate::Op::TakeDir { .. }
            | $crate::Op::GiveDir { .. }
            | $crate::Op::EndTaking { .. }
            | $crate::Op::CheckGiven { .. }
            | $crate::Op::CheckOwner { .. }
            | $crate::Op::CheckName { .. }
            | $crate::Op::FencePiece { .. }
            | $crate::Op::TrimPiece { .. }
            | $crate::Op::Stripe { .. }
            | $crate::Op::CheckCut { .. }
            | $crate::Op::CheckPiece { .. }
    };
}

impl Op {
    /// Whether only the primary of a set asks for it, and no client.
    pub fn is_between_sets(&self) -> bool {
        matches!(self, between_sets!())
            || matches!(self, Op::SetXattr { name, .. } if [COPY_NAMES, PIECE].map(str::as_bytes).contains(&name.as_bytes()))
    }

    /// Whether clients ask it about striped files alone (docs/design/0029).
    pub fn is_about_stripes(&self) -> bool {
        matches!(
            self,
            Op::Stripes { .. }
                | Op::ReadPiece { .. }
                | Op::PieceAttr { .. }
                | Op::WritePiece { .. }
                | Op::AllocatePiece { .. }
                | Op::Extend { .. }
                | Op::Append { .. }
        )
    }

    /// All objects that a client's operation names, for whoever has to know each of them; `None` for what only sets ask each
    /// other. What [`Op::Show`] names has to be shown, and is not known before.
    pub fn named(&self) -> Option<Vec<Fid>> {
        Some(match self {
            Op::GetAttr { fid }
            | Op::SetAttr { fid, set: _ }
            | Op::ReadLink { fid }
            | Op::Open { fid }
            | Op::Release { fid }
            | Op::Read { fid, offset: _, len: _ }
            | Op::Write { fid, offset: _, append: _, kill_suid: _ }
            | Op::Fsync { fid }
            | Op::ReadDir { fid, cookie: _, plus: _ }
            | Op::GetXattr { fid, name: _ }
            | Op::ListXattr { fid }
            | Op::SetXattr { fid, name: _, flags: _ }
            | Op::RemoveXattr { fid, name: _ }
            | Op::Fallocate { fid, mode: _, offset: _, len: _ }
            | Op::Lseek { fid, offset: _, whence: _ }
            | Op::Lookup { parent: fid, name: _ }
            | Op::Create { parent: fid, name: _, node: _, mode: _, umask: _, uid: _, gid: _, open: _ }
            | Op::Unlink { parent: fid, name: _ }
            | Op::Rmdir { parent: fid, name: _ }
            | Op::Stripes { fid }
            | Op::ReadPiece { fid, generation: _, offset: _, len: _ }
            | Op::PieceAttr { fid, generation: _ }
            | Op::WritePiece { fid, generation: _, offset: _ }
            | Op::AllocatePiece { fid, generation: _, mode: _, offset: _, len: _ }
            | Op::Extend { fid, generation: _, end: _, append: _, kill_suid: _ }
            | Op::Append { fid, ticket: _ } => vec![*fid],
            Op::Rename { parent: a, name: _, to_parent: b, to_name: _, flags: _ }
            | Op::MoveIn { from: _, parent: a, name: _, to_parent: b, to_name: _, flags: _ }
            | Op::Link { fid: a, parent: b, name: _ }
            | Op::LinkIn { fid: a, home: _, parent: b, name: _ }
            | Op::CopyRange { from: a, from_offset: _, to: b, to_offset: _, len: _ } => vec![*a, *b],
            Op::GetAttrs { fids } => fids.clone(),
            Op::Show { fid: _, dir: _, name: _, home: _, open: _ }
            | Op::StatFs
            | Op::SyncFs
            | Op::HoldLocks { term: _, claim: _ }
            | Op::DropLocks { term: _ } => Vec::new(),
            between_sets!() => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ids::{Epoch, Lsn, OpId, SetId};

    fn fid(n: u64) -> Fid {
        Fid { set: SetId(1), epoch: Epoch(1), lsn: Lsn(n) }
    }

    #[test]
    fn all_objects_of_an_operation_are_named() {
        let (a, b) = (fid(1), fid(2));
        let copy = Op::CopyRange { from: a, from_offset: 0, to: b, to_offset: 0, len: 1 };
        assert_eq!(copy.named(), Some(vec![a, b]));
        assert_eq!(Op::GetAttrs { fids: vec![b, a] }.named(), Some(vec![b, a]));
        assert_eq!(Op::Fsync { fid: a }.named(), Some(vec![a]));
        assert_eq!(Op::StatFs.named(), Some(vec![]));
        for op in [Op::Arrive, Op::LockTree { tx: OpId::default() }, Op::Lineage { fid: a }] {
            assert!(op.named().is_none() && op.is_between_sets());
        }
    }
}

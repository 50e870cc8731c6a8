//! Operations by their names, as counters and logs tell of them.

use crate::Op;
use crate::op::Node;

impl Op {
    /// The operation's name in counters and logs.
    pub fn name(&self) -> &'static str {
        COUNTED.get(self.index()).copied().unwrap_or("other")
    }

    /// Position of the operation in [`COUNTED`].
    pub fn index(&self) -> usize {
        match self {
            Op::Lookup { .. } => 0,
            Op::GetAttr { .. } => 1,
            Op::SetAttr { .. } => 2,
            Op::Create { node: Node::Dir, .. } => 3,
            Op::Create { .. } => 4,
            Op::Unlink { .. } => 5,
            Op::Rmdir { .. } => 6,
            Op::Rename { .. } => 7,
            Op::Link { .. } => 8,
            Op::ReadLink { .. } => 9,
            Op::Open { .. } => 10,
            Op::Release { .. } => 11,
            Op::Read { .. } => 12,
            Op::Write { .. } => 13,
            Op::Fsync { .. } => 14,
            Op::ReadDir { .. } => 15,
            Op::StatFs => 16,
            Op::GetXattr { .. } => 17,
            Op::ListXattr { .. } => 18,
            Op::SetXattr { .. } => 19,
            Op::RemoveXattr { .. } => 20,
            Op::Fallocate { .. } => 21,
            Op::Lseek { .. } => 22,
            Op::CopyRange { .. } => 23,
            Op::SyncFs => 24,
            Op::PrepareMkdir { .. } => 25,
            Op::PrepareRmdir { .. } => 26,
            Op::EndTransaction { .. } => 27,
            Op::Relocate { .. } => 28,
            Op::CheckEntry { .. }
            | Op::CheckOutcome { .. }
            | Op::CheckMark { .. }
            | Op::CheckGiven { .. }
            | Op::CheckOwner { .. }
            | Op::CheckName { .. }
            | Op::CheckRight { .. } => 29,
            Op::LockTree { .. } | Op::UnlockTree { .. } => 30,
            Op::Lineage { .. } | Op::PathOf { .. } => 31,
            Op::PrepareFile { .. } | Op::PrepareExchange { .. } | Op::PrepareLeave { .. } => 32,
            Op::EndFile { .. } => 33,
            Op::MoveIn { .. } => 34,
            Op::LinkIn { .. } => 35,
            Op::Arrive => 36,
            Op::Land { .. } => 37,
            Op::Depart { .. } | Op::DepartAll { .. } | Op::Retarget { .. } | Op::Redirect { .. } => 38,
            Op::HoldLocks { .. } | Op::DropLocks { .. } => 39,
            Op::GetAttrs { .. } => 40,
            Op::Show { .. } => 41,
            Op::Stripes { .. } => 42,
            Op::ReadPiece { .. } | Op::PieceAttr { .. } => 43,
            Op::WritePiece { .. } => 44,
            Op::AllocatePiece { .. } => 45,
            Op::Extend { .. } | Op::Append { .. } => 46,
            Op::Stripe { .. } => 47,
            Op::FencePiece { .. } | Op::TrimPiece { .. } => 48,
            Op::CheckCut { .. } | Op::CheckPiece { .. } => 49,
            Op::TakeDir { .. } | Op::GiveDir { .. } | Op::EndTaking { .. } => 50,
        }
    }
}

/// Names of the operations in counters, by [`Op::index`].
pub const COUNTED: [&str; 51] = [
    "lookup",
    "getattr",
    "setattr",
    "mkdir",
    "create",
    "unlink",
    "rmdir",
    "rename",
    "link",
    "readlink",
    "open",
    "release",
    "read",
    "write",
    "fsync",
    "readdir",
    "statfs",
    "getxattr",
    "listxattr",
    "setxattr",
    "removexattr",
    "fallocate",
    "lseek",
    "copy_file_range",
    "syncfs",
    "prepare_mkdir",
    "prepare_rmdir",
    "end_transaction",
    "relocate",
    "check_entry",
    "locktree",
    "lineage",
    "prepare_file",
    "end_file",
    "move_in",
    "link_in",
    "arrive",
    "land",
    "depart",
    "hold_locks",
    "getattrs",
    "show",
    "stripes",
    "read_piece",
    "write_piece",
    "allocate_piece",
    "extend",
    "stripe",
    "cut_piece",
    "check_piece",
    "hand_over",
];

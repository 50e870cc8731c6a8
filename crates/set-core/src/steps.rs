//! How far transactions between sets are: for whoever counts how often each step of them is interrupted (docs/design/0015).
//!
//! Nothing is decided by it. A transaction waits for one thing at a time: the answer of a set, which may be its own, or that its
//! change is committed.

use crate::brick::LocalBrick;
use crate::core::SetCore;
use crate::elsewhere::Asking;
use crate::hand_over;
use crate::io::ReplyTo;
use crate::joint::Joint;
use crate::joint_ends::Part;
use crate::resolve_files;
use crate::taken;
use crate::waiters::AfterReply;
use ids::OpId;
use namespace::{InExchange, Need};
use wire::Op;
use wire::op::rename_flags;

/// What a transaction between sets is about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum TransactionKind {
    /// A directory is made on another set than its parent.
    Mkdir,
    /// A directory that lives on another set than its parent is removed.
    Rmdir,
    /// It gives way to a rename within the set of its entry.
    Replace,
    /// A rename of a name that leads to another set's file, or from another set's directory.
    Rename,
    /// A link to another set's file.
    Link,
    /// A name of another set's file goes.
    Unlink,
    /// Two names change places, of which one leads to another set's file, or is in another set's directory.
    Exchange,
    /// A directory comes from another set's entries.
    MoveDirectory,
    /// A rename of a directory within a set, beneath directories of other sets.
    RenameBeneath,
    /// A file moves to another set.
    MoveFile,
    /// A directory gets another set that answers for it.
    GiveDirectory,
    /// What is marked asks how its transaction ended, or is told that it came to nothing.
    Resolve,
}

/// What a transaction waits for, in about this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Waits {
    /// The copy of a file is begun.
    Copy,
    /// It gets its data and attributes.
    Data,
    /// The set that has the entry changes it.
    Leaves,
    /// The other set takes the directory.
    Takes,
    /// That is on its disks.
    TakenToDisk,
    /// Names that a file or a directory has, or has lost, are so on disk.
    NamesToDisk,
    /// It was there by then.
    TakenStill,
    /// This set gives it.
    Gives,
    /// That is on disk.
    GivenToDisk,
    /// It is looked at what is renamed.
    Look,
    /// Whether the home of what is renamed knows the protocol.
    Knows,
    /// A home marks its object.
    Mark,
    /// The home says whether the mark is of the same transaction.
    Confirm,
    /// The set of the old entry marks what it has.
    MarkOld,
    /// The home of what gives way marks that.
    MarkOut,
    /// A mark is on disk.
    MarkToDisk,
    /// The lock on the tree's shape.
    Lock,
    /// What lies above the new entry.
    Above,
    /// The change of the entry is ordered, and not committed.
    Commit,
    /// The entry is on disk.
    EntryToDisk,
    /// A set is told the end.
    End,
    /// What the other set did then is on its disks.
    EndToDisk,
    /// The mark of a directory that has moved ends.
    Unmark,
    /// The sets of other names are told that a file has left.
    Redirect,
    /// What is marked asks for the entry.
    Ask,
    /// The answer is on disk.
    AskedToDisk,
    /// It is asked once more.
    AskAgain,
}

/// A step of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct TransactionStep {
    /// Of what kind it is.
    pub of: TransactionKind,
    /// What it waits for.
    pub waits: Waits,
}

impl TransactionKind {
    /// Of an operation about a directory on another set than its entry.
    pub(crate) fn of_pair(op: &Op) -> TransactionKind {
        match op {
            Op::Create { .. } => TransactionKind::Mkdir,
            Op::Rmdir { .. } => TransactionKind::Rmdir,
            _ => TransactionKind::Replace,
        }
    }
}

impl<R> Joint<R> {
    /// What it is about, as far as that is known.
    pub(crate) fn kind(&self) -> TransactionKind {
        match &self.op {
            Op::Rename { flags, .. } | Op::MoveIn { flags, .. } if flags & rename_flags::EXCHANGE != 0 => {
                TransactionKind::Exchange
            }
            Op::MoveIn { .. } if self.of_directory => TransactionKind::MoveDirectory,
            Op::LinkIn { .. } => TransactionKind::Link,
            Op::Unlink { .. } => TransactionKind::Unlink,
            Op::Depart { .. } | Op::DepartAll { .. } | Op::Retarget { .. } => TransactionKind::MoveFile,
            _ => TransactionKind::Rename,
        }
    }

    /// For which home's agreement it waits.
    fn marks(&self, need: &Need) -> Waits {
        match need.exchange {
            Some(InExchange::Source(_)) => Waits::MarkOld,
            _ if self.is_about_a_stub(need) => Waits::MarkOld,
            None if need.add.is_none() && matches!(self.op, Op::MoveIn { .. } | Op::Rename { .. }) => {
                Waits::MarkOut
            }
            _ => Waits::Mark,
        }
    }
}

impl<B: LocalBrick, R: ReplyTo> SetCore<B, R> {
    /// The step that waits for the answer to this question, if it is one of a transaction.
    pub fn step_of(&self, ask: u64) -> Option<TransactionStep> {
        let (of, waits) = self.waits_for(self.asks.get(ask)?)?;
        Some(TransactionStep { of, waits })
    }

    /// Transactions whose change is ordered, and not committed.
    pub fn commits(&self) -> impl Iterator<Item = (OpId, TransactionKind)> {
        let joints = self.joints.iter().map(|(tx, decided)| (*tx, decided.of));
        let pairs = self.waiters.all().filter_map(|waiter| match waiter.after {
            AfterReply::EndTransaction { tx, of, .. } => Some((tx, of)),
            _ => None,
        });
        joints.chain(pairs)
    }

    fn waits_for(&self, asking: &Asking<R>) -> Option<(TransactionKind, Waits)> {
        use TransactionKind as Kind;
        Some(match asking {
            Asking::MkdirPrepared(_) => (Kind::Mkdir, Waits::Mark),
            Asking::RmdirPrepared(pair, _) => (Kind::of_pair(&pair.op), Waits::Mark),
            Asking::TransactionEnded(_, _, of) => (*of, Waits::End),
            Asking::Locked(_) => (Kind::RenameBeneath, Waits::Lock),
            Asking::Lineage(_) => (Kind::RenameBeneath, Waits::Above),
            Asking::JointLocked(joint, _) => (joint.kind(), Waits::Lock),
            Asking::JointLineage(joint, _) => (joint.kind(), Waits::Above),
            Asking::GivesWay(joint, _) => (joint.kind(), Waits::MarkOut),
            Asking::Agreed(joint, need) => (joint.kind(), joint.marks(need)),
            Asking::AgreedOnDisk(joint) => (joint.kind(), Waits::MarkToDisk),
            Asking::StubConfirmed(mark) => (mark.kind(), Waits::Confirm),
            Asking::SourceLooked(joint) => (joint.kind(), Waits::Look),
            Asking::HomeKnows(joint, _) => (joint.kind(), Waits::Knows),
            Asking::EnteredOnDisk(_, parts) => (parts.first()?.of, Waits::EntryToDisk),
            Asking::Told(_, told, _) if told.part == Part::OnDisk => (told.of, Waits::EndToDisk),
            Asking::Told(_, told, _) => (told.of, Waits::End),
            Asking::LeftOnDisk(_) => (Kind::MoveDirectory, Waits::EndToDisk),
            Asking::LeaveEnded(_) => (Kind::MoveDirectory, Waits::Unmark),
            Asking::Departing(number) => (Kind::MoveFile, self.departures.waits_for(*number)?),
            Asking::Leaving(..) => (Kind::MoveFile, Waits::Redirect),
            Asking::HandedOver(tx) => (Kind::GiveDirectory, self.gives(*tx)?),
            Asking::HandedOverOnDisk(group) => (Kind::GiveDirectory, self.gives_on_disk(*group)?),
            Asking::TakingEnded(..) => (Kind::GiveDirectory, Waits::End),
            Asking::EntryChecked(_) => (Kind::Resolve, Waits::Ask),
            Asking::KeptOnDisk(_) => (Kind::Resolve, Waits::AskedToDisk),
            Asking::Ended(_) => (Kind::Resolve, Waits::End),
            Asking::Outcome(resolve) => (Kind::Resolve, resolve.waits_for()),
            Asking::GivenChecked(resolve) => (Kind::Resolve, resolve.waits_for()),
            Asking::FileEnded(..) => (Kind::Resolve, Waits::End),
            Asking::PlaceTold(..)
            | Asking::Beneath(_)
            | Asking::Right(_)
            | Asking::Unlocked
            | Asking::Path(_)
            | Asking::CopyOnDisk(_)
            | Asking::Piece(..)
            | Asking::Striping(_)
            | Asking::PieceChecked(_)
            | Asking::PieceGone(_)
            | Asking::Relayed(_) => return None,
        })
    }

    fn gives(&self, tx: OpId) -> Option<Waits> {
        Some(match self.hand_over.group_of(tx)?.0.stage {
            hand_over::Stage::Taking => Waits::Takes,
            hand_over::Stage::Confirming => Waits::TakenStill,
            _ => Waits::Gives,
        })
    }

    fn gives_on_disk(&self, group: u64) -> Option<Waits> {
        Some(match self.hand_over.stage_of(group)? {
            hand_over::Stage::Syncing => Waits::TakenToDisk,
            hand_over::Stage::Saving => Waits::NamesToDisk,
            _ => Waits::GivenToDisk,
        })
    }
}

impl resolve_files::FileResolve {
    fn waits_for(&self) -> Waits {
        match self.stage() {
            resolve_files::Stage::First => Waits::Ask,
            resolve_files::Stage::Sync => Waits::AskedToDisk,
            resolve_files::Stage::Second | resolve_files::Stage::Given => Waits::AskAgain,
        }
    }
}

impl taken::TakenResolve {
    fn waits_for(&self) -> Waits {
        match self.asked() {
            taken::Asked::First => Waits::Ask,
            taken::Asked::Sync => Waits::AskedToDisk,
            taken::Asked::Second => Waits::AskAgain,
        }
    }
}

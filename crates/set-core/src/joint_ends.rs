//! How a transaction about names of several sets ends: those that have agreed hear one after the other that it is done, or that
//! it will not be.

use crate::brick::LocalBrick;
use crate::core::{Cx, SetCore};
use crate::elsewhere::{Asking, Transaction};
use crate::io::ReplyTo;
use crate::joint::is_gone;
use crate::steps::TransactionKind;
use crate::waiters::{Address, Waiter};
use alloc::boxed::Box;
use alloc::vec::Vec;
use ids::{Fid, OpId, SessionId, SetId};
use wire::{Body, Fail, Op};

/// What a transaction does with what a home has marked for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    /// A file changes its names, or a copy of a directory goes.
    Names,
    /// A directory of that set has its entry moved.
    Moves,
    /// An empty directory of that set gives way.
    GivesWay,
    /// An entry of that set leads to something else; told once more, the mark ends.
    Exchanges,
    /// That set brings everything to disk.
    OnDisk,
}

/// What its home has marked for a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Participant {
    pub(crate) home: SetId,
    pub(crate) fid: Fid,
    pub(crate) tx: OpId,
    pub(crate) by: SessionId,
    pub(crate) part: Part,
    pub(crate) of: TransactionKind,
}

/// A transaction whose entry is ordered: what brings that to disk, and who has agreed.
#[derive(Debug)]
pub(crate) struct Decided {
    pub(crate) of: TransactionKind,
    pub(crate) sync: Op,
    pub(crate) parts: Vec<Participant>,
}

impl Participant {
    /// What its home is told.
    fn end(self, commit: bool) -> Op {
        let Participant { fid, tx, by, part, .. } = self;
        match part {
            Part::OnDisk => Op::SyncFs,
            Part::Names | Part::Moves | Part::Exchanges => Op::EndFile { fid, tx, commit, by },
            Part::GivesWay => Op::EndTransaction { fid, tx: Some(tx), keep: !commit },
        }
    }
}

/// Who hears of the end of an exchange of names of two sets, the last one first. The set that has not decided comes first, and has
/// what it did on disk before the homes hear of it: one of them goes by its entry. Where both files have one home the first of
/// them that hears of it has their names change places, and hears once more; directories have no names there.
pub(crate) fn ends_of_exchange(agreed: &[Participant]) -> Vec<Participant> {
    let source = agreed.iter().copied().filter(|part| part.part == Part::Exchanges);
    let homes: Vec<Participant> =
        agreed.iter().copied().filter(|part| part.part != Part::Exchanges).collect();
    let again = match homes[..] {
        [one, two] if one.home == two.home && [one.part, two.part] == [Part::Names; 2] => Some(one),
        _ => None,
    };
    let at_source = source.flat_map(|part| [part, part, Participant { part: Part::OnDisk, ..part }]);
    let mut ends: Vec<Participant> = at_source.chain(homes).chain(again).collect();
    ends.reverse();
    ends
}

impl<B: LocalBrick, R: ReplyTo> SetCore<B, R> {
    /// The transaction is out of this primary's memory: it will never commit.
    pub(crate) fn abort_joint(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        transaction: &Transaction,
        parts: &[Participant],
    ) {
        for part in parts.iter().copied() {
            let Participant { home, fid, .. } = part;
            if part.part == Part::GivesWay {
                // Whether the entry still leads to it is looked up, as for any removal that comes to nothing.
                self.abort(cx, home, fid, transaction.clone(), false);
                continue;
            }
            self.ask(cx, Asking::FileEnded(home, fid), home, part.end(false), None);
        }
    }

    /// Homes hear one after the other that it is done, the last to agree first: it may give way to the one before it. Then
    /// the client does: whatever it looks at next is as it will be.
    fn send_ends(&mut self, cx: &mut Cx<'_, B, R>, waiter: Box<Waiter<R>>, mut parts: Vec<Participant>) {
        let Some(part) = parts.pop() else {
            let Waiter { to, reply, payload, .. } = *waiter;
            return to.reply(reply, payload, cx.out);
        };
        self.ask(cx, Asking::Told(waiter, part, parts), part.home, part.end(true), None);
    }

    /// A home was told; one that was not will ask.
    pub(crate) fn on_told(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        waiter: Box<Waiter<R>>,
        told: Participant,
        mut parts: Vec<Participant>,
        answer: Result<Body, Fail>,
    ) {
        if answer.is_err() && matches!(told.part, Part::Exchanges | Part::OnDisk) {
            // The homes ask, which wait for that set.
            parts.clear();
        }
        match answer {
            Ok(_) if told.part == Part::Moves => {
                self.ask(cx, Asking::LeftOnDisk(told), told.home, Op::SyncFs, None)
            }
            Ok(_) => {}
            Err(fail) => tracing::debug!("{}: tell a home that it is done: {fail:?}", self.settings.name),
        }
        self.send_ends(cx, waiter, parts);
    }

    /// The entry is made or gone, on all bricks: it goes to disk before any home forgets.
    pub(crate) fn on_joint_committed(&mut self, cx: &mut Cx<'_, B, R>, tx: OpId, waiter: Waiter<R>) {
        let Some(Decided { sync, parts, .. }) = self.joints.remove(&tx) else {
            return waiter.refuse(Fail::Busy, cx.out);
        };
        self.ask(cx, Asking::EnteredOnDisk(Box::new(waiter), parts), self.set, sync, None);
    }

    /// Such a change was done before; homes that were not told of it ask.
    pub(crate) fn answer_when_entered(&mut self, cx: &mut Cx<'_, B, R>, to: Address<R>, sync: Op) {
        let entered = Asking::EnteredOnDisk(Box::new(Waiter::done(to)), Vec::new());
        self.ask(cx, entered, self.set, sync, None);
    }

    pub(crate) fn on_entered_on_disk(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        waiter: Box<Waiter<R>>,
        parts: Vec<Participant>,
        answer: Result<Body, Fail>,
    ) {
        match answer {
            Ok(_) => {}
            // The directory was removed meanwhile.
            Err(Fail::Errno { errno }) if is_gone(errno) => {}
            // The homes will ask.
            Err(fail) => return waiter.refuse(fail, cx.out),
        }
        self.send_ends(cx, waiter, parts);
    }
}

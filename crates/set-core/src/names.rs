//! What a step is called in a log.

use crate::brick::LocalBrick;
use crate::core::{Due, Later, Next, Purpose, SetCore};
use crate::io::{Input, ReplyTo};

impl<B: LocalBrick, R: ReplyTo> SetCore<B, R> {
    /// What [`SetCore::step`] would do with that input, for logs: the operation or the message, if it is one.
    pub fn name(&self, input: &Input<R>) -> &'static str {
        match input {
            Input::Request(request) => request.call.op.name(),
            Input::Peer(message, _) => message.body.variant(),
            Input::Settings(_) => "new settings",
            Input::Link(..) => "a link came or went",
            Input::SessionEnded(_) => "a session ended",
            Input::Tick => "tick",
            Input::Maintenance => "maintenance",
            Input::LookAtDisk => "a look at the disk",
            Input::Move(_) => "a file is to move",
            Input::Give(..) => "a directory is to go to another set",
            Input::Wake => self.timers.peek().map_or("wake", due),
            Input::Worked(id, _) => self.works.get(*id).map_or("work that is void", worked),
            Input::Answered(..) => "another set answered",
        }
    }

    /// What [`SetCore::go_on`] would do, for logs; `None` if nothing follows from the last input any more.
    pub fn next_name(&self) -> Option<&'static str> {
        match self.next.front() {
            Some(Next::Apply(entry, _)) => return Some(entry.body.change.variant()),
            Some(Next::AdoptHistory) => return Some("adopt history"),
            Some(Next::Feed(_)) => return Some("what a change led to"),
            Some(Next::Failed(..)) => return Some("work could not begin"),
            None => {}
        }
        self.later.front().map(|later| match later {
            Later::DropOrphan(_) => "drop a nameless file",
            Later::PutAtPath(_) => "bring names or a directory to their path",
            Later::TellPlace(_) => "tell where a directory is",
            Later::Announce(_) => "tell of a stale object",
            Later::AnswerOne(_) => "answer a joining brick",
            Later::Flush(_) => "write attributes",
            Later::ForgetTrash(_) => "forget the heal trash",
            Later::WriteAgain(_) => "write again what was not synced",
            Later::EndSlice(..) => "a slice was sent",
            Later::LookAtAbsent(..) => "look at what the primary does not have",
        })
    }
}

fn due<R>(due: &Due<R>) -> &'static str {
    match due {
        Due::Request(request) => request.call.op.name(),
        Due::Syncs => "begin syncs",
        Due::Answers => "answers are due",
        Due::Flush => "attributes are due",
        Due::Trash => "the heal trash is due",
        Due::WriteAgain => "what was not synced is due",
        Due::Announce => "stale objects are due",
        Due::Absent(_) => "what the primary does not have is due",
        Due::CatchUp(..) => "send what was missed",
        Due::Sums(..) => "send checksums",
        Due::Departure(_) => "send what moves",
        Due::Rebalance => "look for what may move",
        Due::HandOver => "give a directory away",
    }
}

fn worked<R>(purpose: &Purpose<R>) -> &'static str {
    match purpose {
        Purpose::Round(_) | Purpose::Periodic => "a sync ended",
        Purpose::ClearStaleSet => "what was stale is on disk",
        Purpose::EndHealing(_) => "what was healed is on disk",
        Purpose::Compare(..) => "compare checksums",
        Purpose::SendSums(..) => "checksums are known",
        Purpose::Warm(..) => "answer a joining brick, from memory",
        Purpose::Read(..) => "read, from memory",
        Purpose::List(..) | Purpose::ListPage(..) => "readdir, from memory",
        Purpose::Trash(_) => "the heal trash is listed",
        Purpose::Orphans => "nameless files are listed",
        Purpose::SendEntries(..) => "send entries, from memory",
        Purpose::Prepare(..) | Purpose::PreparePage(..) => "names are known",
        Purpose::Walk(..) | Purpose::OwnWalk(_) => "a walk ended",
        Purpose::Departing(_) => "send what moves, from memory",
        Purpose::Rebalance(_) => "look for what may move",
        Purpose::Paths => "what may lie elsewhere than at its path is listed",
    }
}

//! The primary's side of a healing: answers questions about objects.
//!
//! Questions wait in a queue and are answered in turns ([`crate::turns`]). What is under way is bounded by what the joining brick may ask for at once
//! (`replica::heal::WINDOW_BYTES`).

use crate::brick::{LocalBrick, Read};
use crate::core::{Cx, Due, Later, Purpose, SetCore};
use crate::io::{Done, ReplyTo};
use alloc::collections::VecDeque;
use bytes::Bytes;
use core::time::Duration;
use ids::{BrickId, Epoch, Fid};
use wire::Errno;
use wire::limits::{DIR_PAGE, SMALL_FILE, SUM_BYTES};
use wire::peer::{Object, PeerBody, Sent};

/// Bytes of a page of a directory, about: what both bricks look at without a break.
pub(crate) const PAGE: usize = DIR_PAGE as usize / 16;
/// Reads of data that was not in memory, before it is waited for.
const TRIES: u32 = 3;
/// Checksums are held back no longer than this: the joining brick takes silence for the end of its healing.
const LONGEST_REST: Duration = Duration::from_millis(500);

/// Questions of joining bricks.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    waiting: VecDeque<(BrickId, Epoch, PeerBody)>,
    /// A turn is under way, or its time is set.
    answering: bool,
}

impl Questions {
    /// Takes a question. True if a turn has to begin for it.
    fn push(&mut self, from: BrickId, epoch: Epoch, question: PeerBody) -> bool {
        self.waiting.push_back((from, epoch, question));
        !core::mem::replace(&mut self.answering, true)
    }

    /// The brick joins anew: what it asked before is void.
    pub(crate) fn forget(&mut self, brick: BrickId) {
        self.waiting.retain(|(from, ..)| *from != brick);
    }

    /// The next question. If nothing is asked any more the turn has ended.
    fn pop(&mut self) -> Option<(BrickId, Epoch, PeerBody)> {
        let next = self.waiting.pop_front();
        self.answering = next.is_some();
        next
    }
}

/// A question for checksums.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SumsAsked {
    fid: Fid,
    offset: u64,
    ask: u64,
    epoch: Epoch,
}

impl<B: LocalBrick, R: ReplyTo> SetCore<B, R> {
    /// A question of a joining brick.
    pub(crate) fn on_question(&mut self, cx: &mut Cx<'_, B, R>, from: BrickId, question: PeerBody) {
        if self.questions.push(from, self.replica.view().epoch, question) {
            self.timers.set(cx.at.now, Due::Answers);
        }
    }

    /// The next question, in a turn that began then.
    pub(crate) fn answer_one(&mut self, cx: &mut Cx<'_, B, R>, begun: Duration) {
        if self.is_turn_over(cx, begun, Due::Answers) {
            return;
        }
        let Some((from, epoch, question)) = self.questions.pop() else { return };
        if self.is_primary() && epoch == self.replica.view().epoch {
            self.answer_question(cx, from, question, 0);
        }
        self.later.push_back(Later::AnswerOne(begun));
    }

    /// Answers a question. `tries`: how often its data was brought into memory already.
    pub(crate) fn answer_question(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        to: BrickId,
        question: PeerBody,
        tries: u32,
    ) {
        match question {
            PeerBody::AskObject { .. } => self.send_object(cx, to, question, tries),
            PeerBody::AskEntries { fid, after } => match self.brick.begin_list(fid) {
                Some(work) if tries < TRIES => self.start(cx, Purpose::Warm(to, question, tries), Ok(work)),
                _ => self.begin_entries(cx, to, fid, after),
            },
            PeerBody::AskData { .. } => self.send_data(cx, to, question, tries),
            PeerBody::AskSums { fid, offset, len, ask } => self.begin_sums(cx, to, (fid, offset, len), ask),
            _ => {}
        }
    }

    fn send_nothing(&self, cx: &mut Cx<'_, B, R>, to: BrickId, fid: Fid) {
        let body = PeerBody::Object { fid, at: self.last().lsn, object: None, data: Sent::Nothing };
        self.say(cx, to, body, Bytes::new());
    }

    /// What an object is like, and the data of a small file with it.
    fn send_object(&mut self, cx: &mut Cx<'_, B, R>, to: BrickId, question: PeerBody, tries: u32) {
        let PeerBody::AskObject { fid, data: wanted, have } = question else { return };
        let object = match self.brick.object(fid) {
            Ok(object) => object,
            Err(e) => return tracing::warn!("{}: read object {fid} for brick {to}: {e}", self.settings.name),
        };
        let mut sent = (Sent::Nothing, Bytes::new());
        if wanted && object.as_ref().is_some_and(is_small) {
            match self.brick.read(fid, 0, SMALL_FILE) {
                Ok(Read::Data(data)) if have == Some(B::sum(&data)) => sent.0 = Sent::Same,
                Ok(Read::Data(data)) => sent = (Sent::Payload, data),
                Ok(Read::Work(work)) if tries < TRIES => {
                    return self.start(cx, Purpose::Warm(to, question, tries), Ok(work));
                }
                // It is asked for by itself.
                Ok(Read::Work(_)) | Err(_) => {}
            }
        }
        let (data, payload) = sent;
        self.say(cx, to, PeerBody::Object { fid, at: self.last().lsn, object, data }, payload);
    }

    /// What the entries lead to is brought into memory first.
    fn begin_entries(&mut self, cx: &mut Cx<'_, B, R>, to: BrickId, fid: Fid, after: u64) {
        match self.brick.begin_page(fid, after, true, PAGE) {
            Some(work) => {
                let epoch = self.replica.view().epoch;
                self.start(cx, Purpose::SendEntries(to, epoch, fid, after), Ok(work));
            }
            None => self.send_entries(cx, to, fid, after),
        }
    }

    /// What the entries lead to is in memory. The names themselves may have left it meanwhile: reading them here and now
    /// would hold everybody up.
    pub(crate) fn send_read_entries(&mut self, cx: &mut Cx<'_, B, R>, to: BrickId, fid: Fid, after: u64) {
        match self.brick.begin_list(fid) {
            Some(work) => {
                let question = PeerBody::AskEntries { fid, after };
                self.start(cx, Purpose::Warm(to, question, TRIES - 1), Ok(work));
            }
            None => self.send_entries(cx, to, fid, after),
        }
    }

    pub(crate) fn send_entries(&mut self, cx: &mut Cx<'_, B, R>, to: BrickId, fid: Fid, after: u64) {
        match self.brick.entries(fid, after, PAGE) {
            Ok((entries, targets, upto)) => {
                let at = self.last().lsn;
                let body = PeerBody::Entries { fid, at, after, upto, entries, targets };
                self.say(cx, to, body, Bytes::new());
            }
            // It has gone, or another set answers for it by now, which the object says.
            Err(Errno::ESTALE | Errno::ENOENT | Errno::ENOTDIR) => {
                self.send_object(cx, to, PeerBody::AskObject { fid, data: false, have: None }, TRIES);
            }
            Err(e) => tracing::warn!("{}: list {fid} for brick {to}: {e}", self.settings.name),
        }
    }

    /// A hole where data is asked about; true if it was told.
    fn send_hole(&mut self, cx: &mut Cx<'_, B, R>, to: BrickId, fid: Fid, offset: u64, many: u64) -> bool {
        match self.brick.hole(fid, offset, many) {
            Ok(Some((len, end))) => {
                let body = PeerBody::Hole { fid, at: self.last().lsn, offset, len, end };
                self.say(cx, to, body, Bytes::new());
                true
            }
            Ok(None) => false,
            Err(_) => {
                self.send_nothing(cx, to, fid);
                true
            }
        }
    }

    /// Data as it is at this point of the stream: what has to come from the disk is read once before, to be in memory.
    fn send_data(&mut self, cx: &mut Cx<'_, B, R>, to: BrickId, question: PeerBody, tries: u32) {
        let PeerBody::AskData { fid, offset, len } = question else { return };
        if self.send_hole(cx, to, fid, offset, B::HOLE) {
            return;
        }
        let wanted = self.brick.data_before_hole(fid, offset, len).unwrap_or(len);
        let data = match self.brick.read(fid, offset, wanted) {
            Ok(Read::Data(data)) => data,
            Ok(Read::Work(work)) if tries < TRIES => {
                return self.start(cx, Purpose::Warm(to, question, tries), Ok(work));
            }
            Ok(Read::Work(work)) => match B::run(work) {
                Ok(Done::Data(data)) => data,
                other => {
                    return tracing::warn!("{}: read {fid} for brick {to}: {other:?}", self.settings.name);
                }
            },
            Err(_) => return self.send_nothing(cx, to, fid),
        };
        let end = data.len() < wanted as usize;
        let len = u32::try_from(data.len()).unwrap_or(wanted);
        let body = PeerBody::Data { fid, at: self.last().lsn, offset, len, end };
        self.say(cx, to, body, data);
    }

    /// Checksums are worked out elsewhere, and may be older than the point of the stream where they are told: the joining
    /// brick knows what changed since it asked.
    fn begin_sums(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        to: BrickId,
        (fid, offset, len): (Fid, u64, u32),
        ask: u64,
    ) {
        if self.send_hole(cx, to, fid, offset, SUM_BYTES.into()) {
            return;
        }
        let Ok(work) = self.brick.begin_sums(fid, offset, len) else {
            return self.send_nothing(cx, to, fid);
        };
        let asked = SumsAsked { fid, offset, ask, epoch: self.replica.view().epoch };
        self.start(cx, Purpose::SendSums(to, asked, cx.at.now), Ok(work));
    }

    /// Checksums are there: clients go first, then they are told.
    pub(crate) fn on_sums(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        to: BrickId,
        asked: SumsAsked,
        begun: Duration,
        result: Result<Done, Errno>,
    ) {
        let SumsAsked { fid, offset, ask, epoch } = asked;
        let Ok(Done::Sums(s)) = result else {
            return tracing::warn!("{}: read {fid} for brick {to}: {result:?}", self.settings.name);
        };
        let body = PeerBody::Sums { fid, offset, len: s.len, ask, end: s.end, sums: s.sums };
        let spent = cx.at.now.saturating_sub(begun);
        let at = self.rested(cx, spent).min(cx.at.now + LONGEST_REST);
        self.timers.set(at, Due::Sums(to, epoch, body));
    }

    /// Tells checksums, if they are still asked for.
    pub(crate) fn send_sums(&mut self, cx: &mut Cx<'_, B, R>, to: BrickId, epoch: Epoch, body: PeerBody) {
        if self.is_primary() && self.replica.view().epoch == epoch {
            self.say(cx, to, body, Bytes::new());
        }
    }
}

/// Whether a file's data may come with its attributes: a sparse one's comes by ranges.
fn is_small(object: &Object) -> bool {
    let attr = &object.attr;
    attr.mode & 0o170_000 == 0o100_000
        && attr.size <= u64::from(SMALL_FILE)
        && attr.blocks.saturating_mul(512) >= attr.size
}

#[cfg(test)]
mod tests {
    use super::*;
    use ids::{Lsn, SetId};

    fn question(n: u64) -> PeerBody {
        let fid = Fid { set: SetId(1), epoch: Epoch(1), lsn: Lsn(n) };
        PeerBody::AskEntries { fid, after: 0 }
    }

    #[test]
    fn questions_are_answered_in_turns() {
        let (a, b, epoch) = (BrickId(1), BrickId(2), Epoch(3));
        let mut q = Questions::default();
        assert!(q.push(a, epoch, question(1)), "a turn begins");
        assert!(!q.push(b, epoch, question(2)) && !q.push(a, epoch, question(3)), "it is under way");
        assert!(q.pop().is_some_and(|(from, ..)| from == a));
        assert!(!q.push(b, epoch, question(4)), "the turn is under way");
        q.forget(b);
        assert!(q.pop().is_some_and(|(from, ..)| from == a));
        assert!(q.pop().is_none());
        assert!(q.push(b, epoch, question(5)), "a new turn");
    }
}

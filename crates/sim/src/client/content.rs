//! Calls about a file's content: as with any file, or on all sets that have parts of a striped one, as the crate `client` does it.

use super::{Caller, Client, ToClient};
use crate::trace::say;
use crate::world::World;
use bytes::Bytes;
use client_core::stripes::{
    Answer, ContentCall, Question, Step, StripedCall, Way, What, by_object, is_before_loss,
};
use ids::{Epoch, Fid, SetId};
use std::collections::VecDeque;
use wire::{Body, Errno, Op};

/// A question's answer, with its data.
type Told = Result<(Body, Bytes), Errno>;

/// A call that may concern several sets.
pub(super) struct Content {
    set: SetId,
    op: Op,
    payload: Bytes,
    way: ContentCall,
    /// The ticket of an append, else 0.
    ticket: u64,
    striped: Option<Striped>,
}

/// What goes on while it is done as on a striped file.
struct Striped {
    file: Fid,
    lost_before: Epoch,
    call: StripedCall,
    questions: Vec<Question>,
    /// What each group of questions has still to ask.
    groups: Vec<VecDeque<usize>>,
    answers: Vec<Result<Body, Errno>>,
    open: usize,
    data: Vec<u8>,
}

/// The file, if the operation is about a file's content.
fn file_of(op: &Op) -> Option<Fid> {
    match op {
        Op::Read { fid, .. } | Op::Write { fid, .. } | Op::Fallocate { fid, .. } | Op::Lseek { fid, .. } => {
            Some(*fid)
        }
        _ => None,
    }
}

impl Content {
    fn what(&self) -> Option<What> {
        Some(match self.op {
            Op::Read { offset, len, .. } => What::Read { offset, len },
            Op::Write { offset, kill_suid, .. } => {
                let len = u32::try_from(self.payload.len()).ok()?;
                What::Write { offset, len, append: self.ticket, kill_suid }
            }
            Op::Fallocate { mode, offset, len, .. } => What::Allocate { mode, offset, len },
            Op::Lseek { offset, whence, .. } => What::Seek { offset, whence },
            Op::Fsync { .. } => What::Sync,
            _ => return None,
        })
    }
}

impl Client {
    /// What a file is now, and the set that answers for it.
    fn file_now(&self, fid: Fid, home: SetId) -> (Fid, SetId) {
        let now = self.moved.now(fid);
        if now == fid { (fid, home) } else { (now, now.set) }
    }

    fn lost_before(&self, set: SetId) -> Epoch {
        self.routes.as_ref().map_or(Epoch(0), |routes| routes.lost_before(set))
    }
}

impl World {
    /// Begins a call that is in the history.
    pub(super) fn begin_content(&mut self, c: usize, record: usize, set: SetId, op: Op, payload: Bytes) {
        if file_of(&op).is_none() {
            return self.begin_task(c, Caller::Record(record), set, op, payload);
        }
        let client = &mut self.clients[c];
        let mut ticket = 0;
        if let Op::Write { append: true, .. } = op {
            client.tickets += 1;
            ticket = client.tickets;
        }
        let content = Content { set, op, payload, way: ContentCall::default(), ticket, striped: None };
        client.contents.insert(record, content);
        self.go_on(c, record);
    }

    /// The next try.
    fn go_on(&mut self, c: usize, record: usize) {
        let client = &mut self.clients[c];
        let Some(mut content) = client.contents.remove(&record) else { return };
        let file = file_of(&content.op).map(|fid| client.moved.now(fid));
        let way = content.way.way(file.is_some_and(|fid| client.striped.get(fid).is_some()));
        let (set, op, payload) = (content.set, content.op.clone(), content.payload.clone());
        client.contents.insert(record, content);
        match way {
            Way::Plain => self.begin_task(c, Caller::Record(record), set, op, payload),
            Way::Striped => self.begin_striped(c, record),
            Way::Fail(errno) => self.tell_caller(c, record, Err(errno)),
        }
    }

    /// A set has answered as for any file; whether the call goes on as one on a striped file.
    pub(super) fn turns_striped(
        &mut self,
        c: usize,
        record: usize,
        (set, op): (SetId, &Op),
        answer: &Result<Body, Errno>,
    ) -> bool {
        if let (Op::Fsync { .. }, Ok(Body::Offset { .. })) = (op, answer) {
            let (op, payload, way) = (op.clone(), Bytes::new(), ContentCall::default());
            let content = Content { set, op, payload, way, ticket: 0, striped: None };
            self.clients[c].contents.insert(record, content);
        } else if !self.clients[c].contents.contains_key(&record) || !ContentCall::is_refused(answer) {
            return false;
        }
        self.begin_striped(c, record);
        true
    }

    fn begin_striped(&mut self, c: usize, record: usize) {
        let client = &mut self.clients[c];
        let Some(mut content) = client.contents.remove(&record) else { return };
        let fid = file_of(&content.op).or(if let Op::Fsync { fid } = content.op { Some(fid) } else { None });
        let (Some(fid), Some(what)) = (fid, content.what()) else { return };
        let (file, home) = client.file_now(fid, content.set);
        let lost_before = client.lost_before(home);
        let known = client.striped.get(file);
        let (call, step) = StripedCall::begin_after((file, home), what, known, lost_before);
        let room = if let What::Read { len, .. } = what { len as usize } else { 0 };
        let (questions, groups, answers) = (Vec::new(), Vec::new(), Vec::new());
        let data = vec![0; room];
        let striped = Striped { file, lost_before, call, questions, groups, answers, open: 0, data };
        content.striped = Some(striped);
        client.contents.insert(record, content);
        self.count("call on a striped file");
        self.take_striped_step(c, record, step);
    }

    fn take_striped_step(&mut self, c: usize, record: usize, step: Step) {
        let (pause, questions) = match step {
            Step::Ask(pause, questions) => (pause, questions),
            Step::End(end) => return self.end_striped(c, record, end),
        };
        say!(self, "client {c}: {record} asks {questions:?}");
        if let (Some(Content { ticket, .. }), Some(question)) =
            (self.clients[c].contents.get(&record), questions.first())
            && let Op::WritePiece { offset, .. } = question.op
        {
            self.history.place(record, *ticket > 0, offset - question.data.start as u64);
        }
        let Some(striped) = self.striped(c, record) else { return };
        striped.answers = vec![Err(Errno::EIO); questions.len()];
        striped.groups = by_object(&questions).into_iter().map(VecDeque::from).collect();
        (striped.open, striped.questions) = (striped.groups.len(), questions);
        if pause.is_zero() {
            self.ask_parts(c, record);
        } else {
            self.count("refused by a piece or for a cut");
            self.tell_client(self.now + pause, c, ToClient::AskParts(record));
        }
    }

    fn striped(&mut self, c: usize, record: usize) -> Option<&mut Striped> {
        self.clients[c].contents.get_mut(&record)?.striped.as_mut()
    }

    /// Asks the first question of each group.
    pub(super) fn ask_parts(&mut self, c: usize, record: usize) {
        let Some(striped) = self.striped(c, record) else { return };
        let many = striped.groups.len();
        if many == 0 {
            let step = striped.call.answered(Vec::new());
            return self.take_striped_step(c, record, step);
        }
        if many > 1 {
            self.count("several sets asked at the same time");
        }
        (0..many).for_each(|group| self.ask_next_part(c, record, group));
    }

    fn ask_next_part(&mut self, c: usize, record: usize, group: usize) {
        let Some(content) = self.clients[c].contents.get_mut(&record) else { return };
        let Some(striped) = &mut content.striped else { return };
        let first = striped.groups.get_mut(group).and_then(VecDeque::pop_front);
        let Some((n, question)) = first.and_then(|n| Some((n, striped.questions.get(n)?))) else { return };
        let payload = match content.op {
            Op::Write { .. } => content.payload.slice(question.data.clone()),
            _ => Bytes::new(),
        };
        let (set, op) = (question.set, question.op.clone());
        self.begin_task(c, Caller::Part { record, group, n }, set, op, payload);
    }

    /// A set has answered a question about a part.
    pub(super) fn part_answered(
        &mut self,
        c: usize,
        (record, group, n): (usize, usize, usize),
        answer: Told,
    ) {
        if let Ok((Body::Stripes { layout, attr }, _)) = &answer {
            self.stripes.told(self.now, attr.fid, layout);
        }
        let Some(striped) = self.striped(c, record) else { return };
        let failed = answer.as_ref().err().copied();
        if let (Ok((_, payload)), Some(question)) = (&answer, striped.questions.get(n))
            && let Some(room) = striped.data.get_mut(question.data.clone())
        {
            // A piece ends where nothing was written behind.
            let bytes = payload.iter().copied().chain(std::iter::repeat(0));
            room.iter_mut().zip(bytes).for_each(|(to, byte)| *to = byte);
        }
        if let Some(place) = striped.answers.get_mut(n) {
            *place = answer.map(|(body, _)| body);
        }
        let rest = striped.groups.get_mut(group).map(std::mem::take).unwrap_or_default();
        match failed {
            Some(errno) => rest.into_iter().for_each(|n| striped.answers[n] = Err(errno)),
            None if !rest.is_empty() => {
                striped.groups[group] = rest;
                return self.ask_next_part(c, record, group);
            }
            None => {}
        }
        striped.open -= 1;
        if striped.open == 0 {
            let answers = std::mem::take(&mut striped.answers);
            let step = striped.call.answered(answers);
            self.take_striped_step(c, record, step);
        }
    }

    fn end_striped(&mut self, c: usize, record: usize, end: Result<Answer, Errno>) {
        let client = &mut self.clients[c];
        let Some(content) = client.contents.get_mut(&record) else { return };
        let (set, op) = (content.set, content.op.clone());
        let Some(Striped { file, lost_before, call, mut data, .. }) = content.striped.take() else { return };
        let home = client.file_now(file, set).1;
        if is_before_loss(&end, lost_before, client.lost_before(home)) {
            self.count("read again after a loss");
            return self.begin_striped(c, record);
        }
        let client = &mut self.clients[c];
        let answer = match client.striped.ended(file, lost_before, call, end) {
            Ok(None) if matches!(op, Op::Fsync { .. }) => Ok((Body::Done, Bytes::new())),
            Ok(None) => return self.go_on(c, record),
            Ok(Some(Answer::Read(len))) => {
                data.truncate(len as usize);
                Ok((Body::Data, Bytes::from(data)))
            }
            Ok(Some(Answer::Written(len, attr))) => Ok((Body::Written { len, attr }, Bytes::new())),
            Ok(Some(Answer::Offset(offset))) => Ok((Body::Offset { offset }, Bytes::new())),
            Ok(Some(_)) => Ok((Body::Done, Bytes::new())),
            Err(errno) => Err(errno),
        };
        self.tell_caller(c, record, answer);
    }
}

//! Files whose data lies on several sets ([`client_core::stripes`]): their sets are asked at the same time.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

use client_core::stripes::{
    Answer, ContentCall, Known, Question, Step, StripedCall, StripedFiles, Way, What, by_object,
    is_before_loss,
};
use ids::Fid;
use wire::{Attr, Body, Errno};

use crate::call::Client;
use crate::files::Object;
use crate::grant;
use crate::payload::Payload;
use crate::together::together;

/// What all threads know of striped files.
#[derive(Debug, Default)]
pub(crate) struct SharedStripes {
    /// Whether there are any: mostly there are none.
    any: AtomicBool,
    files: RwLock<StripedFiles>,
    /// Tickets of appends.
    tickets: AtomicU64,
}

impl SharedStripes {
    fn get(&self, fid: Fid) -> Option<Known> {
        let any = self.any.load(Ordering::Acquire);
        any.then(|| self.files.read().unwrap_or_else(PoisonError::into_inner).get(fid).cloned()).flatten()
    }

    fn change<T>(&self, change: impl FnOnce(&mut StripedFiles) -> T) -> T {
        let mut files = self.files.write().unwrap_or_else(PoisonError::into_inner);
        let changed = change(&mut files);
        self.any.store(!files.are_none(), Ordering::Release);
        changed
    }

    pub(crate) fn forget(&self, fid: Fid) {
        if self.any.load(Ordering::Acquire) {
            self.change(|files| files.forget(fid));
        }
    }
}

/// The data of an operation.
pub(crate) enum Data<'a> {
    /// Goes to the sets.
    Out(&'a [u8]),
    /// Comes from them.
    In(&'a mut [u8]),
}

/// The part of it that is one question's.
enum Slice<'a> {
    Out(&'a [u8]),
    In(&'a mut [u8]),
}

type Asked<'a> = (usize, &'a Question, Slice<'a>);

impl Client {
    /// Whether the file is known to be striped.
    pub fn is_striped(&self, object: Object) -> bool {
        self.core.striped.any.load(Ordering::Acquire) && self.core.striped.get(self.now(object).fid).is_some()
    }

    /// Of a striped file: attributes, and a number that is another one if, with the same size and modification time, the data is another. The
    /// attributes of a striped file alone don't tell: who writes has the pieces changed first. All of it holds as long as all
    /// sets grant. 0: it turns out not to be striped.
    ///
    /// # Errors
    /// As [`Client::getattr`].
    pub fn getattr_with_data(&self, object: Object) -> Result<(Attr, u64), Errno> {
        let attr = self.getattr(object)?;
        let mut hasher = DefaultHasher::new();
        match self.striped(self.now(object), What::Look, &mut Data::Out(&[]))? {
            None => return Ok((attr, 0)),
            Some(Answer::Looked(generation, pieces)) => {
                generation.hash(&mut hasher);
                for piece in pieces {
                    let times = [piece.mtime, piece.ctime].map(|time| (time.sec, time.nsec));
                    (piece.fid, piece.size, times).hash(&mut hasher);
                }
            }
            Some(_) => return Err(Errno::EIO),
        }
        Ok((attr, hasher.finish().max(1)))
    }

    /// Does something with a file's content: as with any file, or, if the file is striped, as `what` with `data`.
    pub(crate) fn on_content<T>(
        &self,
        object: Object,
        mut plain: impl FnMut() -> Result<T, Errno>,
        mut striped: impl FnMut(Object) -> Result<Option<T>, Errno>,
    ) -> Result<T, Errno> {
        let mut call = ContentCall::default();
        loop {
            match call.way(self.is_striped(object)) {
                Way::Plain => {
                    let answer = plain();
                    if !ContentCall::is_refused(&answer) {
                        return answer;
                    }
                }
                Way::Striped => {}
                Way::Fail(errno) => return Err(errno),
            }
            if let Some(done) = striped(self.now(object))? {
                return Ok(done);
            }
        }
    }

    /// An append's ticket.
    pub(crate) fn ticket(&self) -> u64 {
        self.core.striped.tickets.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Does something with a striped file. `None`: it is not striped.
    pub(crate) fn striped(
        &self,
        object: Object,
        what: What,
        data: &mut Data<'_>,
    ) -> Result<Option<Answer>, Errno> {
        let Object { fid, home } = object;
        loop {
            let lost_before = self.core.current().by_map.lost_before(home);
            let known = self.core.striped.get(fid);
            let (mut call, mut step) =
                StripedCall::begin_after((fid, home), what, known.as_ref(), lost_before);
            let end = loop {
                match step {
                    Step::Ask(pause, questions) => {
                        if !pause.is_zero() {
                            self.pause(pause)?;
                        }
                        step = call.answered(self.ask_all(&questions, data)?);
                    }
                    Step::End(end) => break end,
                }
            };
            if !is_before_loss(&end, lost_before, self.core.current().by_map.lost_before(home)) {
                return self.core.striped.change(|files| files.ended(fid, lost_before, call, end));
            }
        }
    }

    /// Asks all of it: each group of questions at the same time.
    fn ask_all(
        &self,
        questions: &[Question],
        data: &mut Data<'_>,
    ) -> Result<Vec<Result<Body, Errno>>, Errno> {
        let parts = questions.iter().zip(slices(questions, data)?).enumerate();
        let mut parts: Vec<_> = parts.map(|(n, (question, slice))| Some((n, question, slice))).collect();
        let mut group = |which: Vec<usize>| -> Vec<Asked<'_>> {
            which.into_iter().filter_map(|n| parts.get_mut(n)?.take()).collect()
        };
        let mut groups = by_object(questions).into_iter();
        let Some(own) = groups.next() else { return Ok(Vec::new()) };
        let (own, others) = (group(own), groups.map(&mut group).collect::<Vec<_>>());
        let ask = |group| self.ask_one_by_one(group);
        let (mut told, others) = together(own, others, &ask)?;
        for (answers, until) in others {
            told.extend(answers);
            until.into_iter().for_each(grant::note_until);
        }
        told.sort_unstable_by_key(|(n, _)| *n);
        Ok(told.into_iter().map(|(_, answer)| answer).collect())
    }

    fn ask_one_by_one(&self, group: Vec<Asked<'_>>) -> Vec<(usize, Result<Body, Errno>)> {
        let mut failed = None;
        let mut answers = Vec::with_capacity(group.len());
        for (n, question, slice) in group {
            let answer = match failed {
                Some(errno) => Err(errno),
                None => self.ask_part(question, slice),
            };
            failed = answer.as_ref().err().copied();
            answers.push((n, answer));
        }
        answers
    }

    fn ask_part(&self, question: &Question, slice: Slice<'_>) -> Result<Body, Errno> {
        let op = question.op.clone();
        match slice {
            Slice::Out(data) => self.call(question.set, op, data, &mut Payload::new()),
            Slice::In(room) => {
                let mut into = Payload::lent(&mut *room);
                let answer = self.call(question.set, op, &[], &mut into)?;
                let len = into.len();
                // A piece ends where nothing was written behind.
                room.iter_mut().skip(len).for_each(|byte| *byte = 0);
                Ok(answer)
            }
        }
    }

    /// [`Client::read`] of a striped file.
    pub(crate) fn read_striped(
        &self,
        object: Object,
        (offset, len): (u64, u32),
        into: &mut Payload<'_>,
    ) -> Result<Option<()>, Errno> {
        into.reserve(len as usize).map_err(|_| Errno::EINVAL)?;
        let mut data = Data::In(into.room());
        match self.striped(object, What::Read { offset, len }, &mut data)? {
            None => Ok(None),
            Some(Answer::Read(read)) => {
                into.set_len(read as usize);
                Ok(Some(()))
            }
            Some(_) => Err(Errno::EIO),
        }
    }

    /// [`Client::write`] to a striped file.
    pub(crate) fn write_striped(
        &self,
        object: Object,
        what: What,
        data: &[u8],
    ) -> Result<Option<(u32, Attr)>, Errno> {
        match self.striped(object, what, &mut Data::Out(data))? {
            None => Ok(None),
            Some(Answer::Written(len, mut attr)) => {
                attr.fid = self.core.first(attr.fid);
                Ok(Some((len, attr)))
            }
            Some(_) => Err(Errno::EIO),
        }
    }

    /// Has the pieces of a striped file on disk.
    pub(crate) fn sync_pieces(&self, object: Object) -> Result<(), Errno> {
        self.striped(self.now(object), What::Sync, &mut Data::Out(&[])).map(drop)
    }
}

/// The parts of the data, in the order of the questions.
fn slices<'a>(questions: &[Question], data: &'a mut Data<'_>) -> Result<Vec<Slice<'a>>, Errno> {
    let mut slices = Vec::with_capacity(questions.len());
    match data {
        Data::Out(bytes) => {
            for question in questions {
                slices.push(Slice::Out(bytes.get(question.data.clone()).ok_or(Errno::EIO)?));
            }
        }
        Data::In(room) => {
            let mut rest = &mut **room;
            for question in questions {
                let (own, after) = rest.split_at_mut_checked(question.data.len()).ok_or(Errno::EIO)?;
                slices.push(Slice::In(own));
                rest = after;
            }
        }
    }
    Ok(slices)
}

//! What a client keeps of striped files, and which way an operation on a file's content goes.

use super::{Answer, Known, Question, Step, StripedCall, What};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use ids::{Epoch, Fid, SetId};
use wire::Errno;

/// An operation is tried so often as one on a striped file and as one on any other.
const TRIES: u32 = 3;

/// All striped files that are known.
#[derive(Debug, Default)]
pub struct StripedFiles {
    files: BTreeMap<Fid, Known>,
}

impl StripedFiles {
    /// Whether none is known: mostly there are none.
    pub fn are_none(&self) -> bool {
        self.files.is_empty()
    }

    /// What is known of one.
    pub fn get(&self, fid: Fid) -> Option<&Known> {
        self.files.get(&fid)
    }

    /// Nothing is known of it any more.
    pub fn forget(&mut self, fid: Fid) {
        self.files.remove(&fid);
    }

    fn learn(&mut self, fid: Fid, new: Known) {
        match self.files.get_mut(&fid) {
            Some(old) if old.layout.generation > new.layout.generation => {}
            Some(old) if old.layout == new.layout && old.lost_before == new.lost_before => {
                old.size = old.size.max(new.size);
            }
            _ => drop(self.files.insert(fid, new)),
        }
    }

    /// An operation ended: what was learnt is kept, and its result told. `None`: the file is not striped.
    ///
    /// # Errors
    /// Those of the operation.
    pub fn ended(
        &mut self,
        fid: Fid,
        lost_before: Epoch,
        call: StripedCall,
        end: Result<Answer, Errno>,
    ) -> Result<Option<Answer>, Errno> {
        if end == Ok(Answer::Plain) {
            self.forget(fid);
            return Ok(None);
        }
        if let Some((layout, size)) = call.learnt() {
            self.learn(fid, Known { layout, size, lost_before });
        }
        end.map(Some)
    }
}

/// Whether the end of a call may mix a length from before a loss with data from after it, as the file's set has lost changes
/// since the call began: then it has to begin again.
pub fn is_before_loss(end: &Result<Answer, Errno>, began: Epoch, now: Epoch) -> bool {
    began != now && matches!(end, Ok(Answer::Read(_)))
}

impl StripedCall {
    /// Begins on a file of set `home`, which has lost no changes since that epoch, with what is known of the file. Nothing of
    /// what was told before such a loss counts.
    pub fn begin_after(
        (fid, home): (Fid, SetId),
        what: What,
        known: Option<&Known>,
        lost_before: Epoch,
    ) -> (StripedCall, Step) {
        StripedCall::begin((fid, home), what, known.filter(|known| known.lost_before == lost_before))
    }
}

/// How an operation on a file's content is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// As with any file.
    Plain,
    /// As with a striped one.
    Striped,
    /// Not at all: it fails with this.
    Fail(Errno),
}

/// One operation on a file's content: as with any file, unless the file is known to be striped or that turns out.
#[derive(Debug, Default)]
pub struct ContentCall {
    tries: u32,
}

impl ContentCall {
    /// The way at first, and after it turned out that the file is not striped.
    pub fn way(&mut self, is_known: bool) -> Way {
        self.tries += 1;
        match self.tries {
            n if n > TRIES => Way::Fail(Errno::EOPNOTSUPP),
            _ if is_known => Way::Striped,
            _ => Way::Plain,
        }
    }

    /// Whether an answer to it as to any file says that the file is, perhaps, striped.
    pub fn is_refused<T>(answer: &Result<T, Errno>) -> bool {
        matches!(answer, Err(Errno::EOPNOTSUPP))
    }
}

/// The questions that are asked at the same time, each group by its positions in their order: those of a group are about one
/// object (or are syncs of one set), and are asked one after the other until one fails, whose error is that of the rest too.
pub fn by_object(questions: &[Question]) -> Vec<Vec<usize>> {
    let mut groups: BTreeMap<(SetId, Option<Fid>), Vec<usize>> = BTreeMap::new();
    for (n, question) in questions.iter().enumerate() {
        groups.entry((question.set, question.op.object())).or_default().push(n);
    }
    groups.into_values().collect()
}

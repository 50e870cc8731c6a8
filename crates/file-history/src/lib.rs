//! Whether recorded file operations of concurrent clients are those of a correct file system.
//!
//! Owns: a model of POSIX as `docs/semantics.md` promises it, made without a look at the product's own rules. A history is
//! taken apart by objects (linearizability is local): all names together, and each file's content and attributes alone.
//! Each part is explained by an order of its operations (crate `linearizability`), or it is a violation.
//!
//! A power cut of all bricks of a set ([`Loss`]) is an operation of the history. What was not synced before it may then have
//! any value that it had since its last sync, each byte and each entry for itself; what was synced is there.
//!
//! Of files that move to other sets it is not known when they did: a loss of any set on which they ever lay may take what was
//! not synced. Where anything has moved and anything was lost, names are not checked, and who syncs may be told of a loss.
//!
//! Assumed: the volume is empty at the beginning. An open file is held once by a client, however often it is opened.
//! Not checked: times that the server chooses, numbers of links of directories, ACLs, and attributes with names that begin
//! neither with `user.` nor with `trusted.`.
//!
//! Tests use it. Nothing of the product does.

mod choice;
mod content;
mod emit;
mod inode;
mod listing;
mod makers;
mod marks;
mod names;
mod parted;
mod split;
mod syncs;

pub use parted::Parted;

use bytes::Bytes;
use ids::{Fid, SetId};
use linearizability::{Counterexample, Outcome, explain};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use wire::{Body, Errno, Op};

/// One operation of a client.
#[derive(Clone, Debug)]
pub struct Record {
    /// The client. It has a file open once, however often it opened it.
    pub client: u32,
    /// What it asked.
    pub op: Op,
    /// The data that went with the question.
    pub payload: Bytes,
    /// The set that was asked.
    pub set: SetId,
    /// When, in nanoseconds of true time.
    pub begun: u64,
    /// When it was answered, and what; with the data of the answer. `None` if nobody knows: the client died, the call was
    /// interrupted or is still open.
    pub answer: Option<(u64, Answer)>,
}

/// What a client is told: an answer with its data, or an error.
pub type Answer = Result<(Body, Bytes), Errno>;

/// A power cut of all in-sync data bricks of a set, after which the set went on with what was left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Loss {
    /// The set.
    pub set: SetId,
    /// When the first of them lost power.
    pub from: u64,
    /// When the set went on.
    pub until: u64,
}

/// A set went on with a brick that had lost its memory, and nothing was lost that anybody was told. A call that was under way
/// may have been done there without a record of it: it is done once more when it is sent again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unrecorded {
    /// The set.
    pub set: SetId,
    /// When the brick lost its memory.
    pub from: u64,
    /// When the set went on.
    pub until: u64,
}

/// An error that a fault explains.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Excuse {
    /// The error: `EROFS` below quorum, `ENOSPC` on a full disk, `EIO` on a broken one.
    pub errno: Errno,
    /// The set; `None`: any.
    pub set: Option<SetId>,
    /// Calls that were under way between these moments are excused.
    pub from: u64,
    /// See `from`.
    pub until: u64,
}

/// A process that ended in the midst of a change to a set, or a brick of it that failed in one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CutShort {
    /// The set.
    pub set: SetId,
    /// When.
    pub at: u64,
}

/// Why some answers need no other explanation. An operation that changes something and failed with an excused error was
/// done or not; a write perhaps in part.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Excuses {
    /// Errors.
    pub errors: Vec<Excuse>,
    /// Clients that died, and when: what they had open is closed at some time after that.
    pub dead: Vec<(u32, u64)>,
    /// Changes that were cut short. A brick that was alone then gives the file of a write the time of it at once, and its
    /// data when it is sent again.
    pub cut_short: Vec<CutShort>,
    /// Calls that may have been done without a record.
    pub unrecorded: Vec<Unrecorded>,
    /// Files that have parts on several sets.
    pub parted: BTreeMap<Fid, Parted>,
    /// Where writes to such files were tried, each try, by the positions of their records.
    pub placed: BTreeMap<usize, Vec<u64>>,
    /// Objects that have lain on other sets than the one that made them, and these.
    pub moved: BTreeMap<Fid, BTreeSet<SetId>>,
}

impl Excuses {
    /// Whether some of a file's data is, perhaps, that set's.
    fn lies_on(&self, fid: Fid, set: SetId) -> bool {
        fid.set == set
            || self.parted.get(&fid).is_some_and(|parted| parted.sets.contains_key(&set))
            || self.was_on(fid, set)
    }

    /// Whether an object has lain on a set that did not make it.
    fn was_on(&self, fid: Fid, set: SetId) -> bool {
        self.moved.get(&fid).is_some_and(|sets| sets.contains(&set))
    }

    /// Whether a loss may take something of a file. A set has nothing of it before it has a part.
    fn may_take(&self, fid: Fid, loss: &Loss) -> bool {
        let parted = self.parted.get(&fid).and_then(|parted| parted.sets.get(&loss.set));
        fid.set == loss.set || parted.is_some_and(|since| *since <= loss.until) || self.was_on(fid, loss.set)
    }

    /// The sets that may have something of a file.
    fn sets_of(&self, fid: Fid) -> impl Iterator<Item = SetId> {
        let others = self.parted.get(&fid).into_iter().flat_map(|parted| parted.sets.keys().copied());
        let moved = self.moved.get(&fid).into_iter().flatten().copied();
        std::iter::once(fid.set).chain(others.chain(moved).filter(move |set| *set != fid.set))
    }
}

/// What was checked.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Summary {
    /// Records.
    pub records: usize,
    /// Parts of the history that were explained, each by an order of its own.
    pub objects: usize,
    /// Steps of all searches.
    pub steps: u64,
    /// Errors that were excused.
    pub excused: usize,
    /// Operations whose outcome nobody knows.
    pub unanswered: usize,
    /// Parts for which the search was given up. They may hide a violation.
    pub undecided: usize,
}

/// What no correct file system does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// What is wrong, with the records that show it.
    pub text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Violation {}

/// Steps of one search until it is given up.
const LIMIT: u64 = 100_000;

/// Checks a history.
///
/// # Errors
/// What cannot be explained.
pub fn check(
    records: &[Record],
    losses: &[Loss],
    excuses: &Excuses,
    root: (Fid, SetId),
) -> Result<Summary, Violation> {
    let vouches = syncs::judge(records, losses, excuses)?;
    let histories = split::split(records, losses, excuses, root, &vouches)?;
    let mut summary = Summary { records: records.len(), ..Summary::default() };
    (summary.excused, summary.unanswered) = (histories.excused, histories.unanswered);
    let mut note = |outcome: Outcome, of: &dyn Fn() -> String| match outcome {
        Outcome::Explained { steps } => {
            summary.objects += 1;
            summary.steps += steps;
            Ok(())
        }
        Outcome::Undecided => {
            summary.undecided += 1;
            Ok(())
        }
        Outcome::Refuted(wrong) => Err(refuted(records, &of(), &wrong)),
    };
    let names = &histories.names;
    // Where entries lay that a loss may have taken is known of nothing that has moved.
    let are_names_known = losses.is_empty() || excuses.moved.is_empty();
    if are_names_known {
        note(explain(&names.model, &names::State::default(), &names.calls, LIMIT), &|| histories.legend())?;
    }
    for part in &histories.parts {
        note(explain(&part.model, &part.initial, &part.calls, LIMIT), &|| part.legend())?;
    }
    Ok(summary)
}

fn refuted(records: &[Record], of: &str, wrong: &Counterexample) -> Violation {
    let mut text = format!("{of}\n{wrong}the records:\n");
    let mut shown: Vec<usize> = wrong
        .text
        .split('#')
        .skip(1)
        .filter_map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok())
        .collect();
    shown.sort_unstable();
    shown.dedup();
    for n in shown {
        text.push_str(&line(records, n));
    }
    Violation { text }
}

/// A record, as a line.
fn line(records: &[Record], n: usize) -> String {
    /// Characters of a question or an answer.
    const SHOWN: usize = 300;
    let Some(r) = records.get(n) else { return String::new() };
    let cut = |text: String| text.chars().take(SHOWN).collect::<String>();
    let (until, told) = match &r.answer {
        Some((at, Ok((body, data)))) => (at.to_string(), format!("{body:?} and {} bytes", data.len())),
        Some((at, Err(e))) => (at.to_string(), e.to_string()),
        None => ("never".to_owned(), "?".to_owned()),
    };
    let op = cut(format!("{:?}", r.op));
    format!(
        "  #{n} client {} set {} {} to {until}: {op} with {} bytes -> {}\n",
        r.client,
        r.set,
        r.begun,
        r.payload.len(),
        cut(told)
    )
}

/// Something is wrong with single records.
fn wrong(records: &[Record], shown: &[usize], what: &str) -> Violation {
    let lines: Vec<String> = shown.iter().map(|n| line(records, *n)).collect();
    Violation { text: format!("{what}:\n{}", lines.concat()) }
}

//! Recorded calls, and which of them have their place in the order.

/// One recorded call of a specification. Times are on one clock that never goes back, in any unit.
#[derive(Clone, Debug)]
pub struct Call<Input, Output> {
    /// What was asked.
    pub input: Input,
    /// When it was begun.
    pub begun: u64,
    /// What was answered, and when; `None` if nobody knows.
    pub answer: Option<(Output, u64)>,
    /// The position of a call that comes earlier in the order, whatever the times say. It has to have an answer if this
    /// one has.
    pub after: Option<usize>,
}

/// The place before the first event.
const HEAD: usize = 0;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    Head,
    Begin,
    Answer,
}

/// An event of the history, in a list from which operations are lifted when they got their place.
struct Event {
    what: What,
    op: usize,
    before: usize,
    after: Option<usize>,
}

/// All events in the order of time, without those of operations that have their place.
pub(crate) struct Timeline {
    list: Vec<Event>,
    /// Each operation's two events.
    of: Vec<(usize, Option<usize>)>,
    /// Answers that are still in the list.
    open: usize,
    /// The operation that has to come earlier.
    after: Vec<Option<usize>>,
    placed: Vec<bool>,
    /// Of each operation those that may come before or after it and conflict, sorted.
    rivals: Vec<Vec<usize>>,
    done: u128,
}

impl Timeline {
    pub(crate) fn new<I, O>(calls: &[Call<I, O>], conflict: impl Fn(usize, usize) -> bool) -> Timeline {
        let mut moments = Vec::with_capacity(calls.len() * 2);
        for (i, call) in calls.iter().enumerate() {
            // What is begun at the moment of an answer overlaps with it.
            moments.push((call.begun, 0, i));
            moments.extend(call.answer.as_ref().map(|(_, at)| (*at.max(&call.begun), 1, i)));
        }
        moments.sort_unstable();
        let mut list = vec![Event { what: What::Head, op: 0, before: HEAD, after: None }];
        let mut of = vec![(HEAD, None); calls.len()];
        let mut rivals = vec![Vec::new(); calls.len()];
        let mut under_way: Vec<usize> = Vec::new();
        for (_, answers, op) in moments {
            let at = list.len();
            let what = if answers == 1 { What::Answer } else { What::Begin };
            list[at - 1].after = Some(at);
            list.push(Event { what, op, before: at - 1, after: None });
            if answers == 1 {
                of[op].1 = Some(at);
                under_way.retain(|other| *other != op);
                continue;
            }
            of[op].0 = at;
            for other in under_way.iter().copied().filter(|other| conflict(*other, op)) {
                rivals[op].push(other);
                rivals[other].push(op);
            }
            under_way.push(op);
        }
        rivals.iter_mut().for_each(|r| r.sort_unstable());
        let open = calls.iter().filter(|c| c.answer.is_some()).count();
        let after = calls.iter().map(|c| c.after).collect();
        Timeline { list, of, open, after, placed: vec![false; calls.len()], rivals, done: 0 }
    }

    /// Whether all that was answered has its place.
    pub(crate) fn is_complete(&self) -> bool {
        self.open == 0
    }

    /// How many answers have no place yet.
    pub(crate) fn left(&self) -> usize {
        self.open
    }

    /// A number that stands for the set of operations that have their places.
    pub(crate) fn done(&self) -> u128 {
        self.done
    }

    /// The operations that may be next as far as the times say, and the one whose answer comes first.
    pub(crate) fn open(&self) -> (Vec<usize>, usize) {
        let mut open = Vec::new();
        let mut at = self.list[HEAD].after;
        while let Some(here) = at {
            let Event { what, op, after, .. } = self.list[here];
            if what == What::Answer {
                return (open, op);
            }
            open.push(op);
            at = after;
        }
        unreachable!("an open answer is behind its beginning")
    }

    /// Whether the operation that it has to come after has its place.
    pub(crate) fn is_free(&self, op: usize) -> bool {
        self.after[op].is_none_or(|first| self.placed[first])
    }

    /// The operations that conflict with `urgent`, directly or through others, or have to come before one that does.
    pub(crate) fn group(&self, urgent: usize, open: &[usize]) -> Vec<usize> {
        let mut group = vec![urgent];
        let mut next = 0;
        while let Some(op) = group.get(next).copied() {
            next += 1;
            let first = self.after[op].filter(|first| !self.placed[*first]);
            let rivals = open.iter().copied().filter(|other| self.conflicts(op, *other));
            for other in rivals.chain(first) {
                if !group.contains(&other) {
                    group.push(other);
                }
            }
        }
        group
    }

    /// Whether the order of two operations matters.
    pub(crate) fn conflicts(&self, a: usize, b: usize) -> bool {
        self.rivals[a].binary_search(&b).is_ok()
    }

    fn remove(&mut self, at: usize) {
        let (before, after) = (self.list[at].before, self.list[at].after);
        self.list[before].after = after;
        if let Some(after) = after {
            self.list[after].before = before;
        }
    }

    fn restore(&mut self, at: usize) {
        let (before, after) = (self.list[at].before, self.list[at].after);
        self.list[before].after = Some(at);
        if let Some(after) = after {
            self.list[after].before = at;
        }
    }

    /// The operation gets its place.
    pub(crate) fn lift(&mut self, op: usize) {
        let (begin, answer) = self.of[op];
        self.remove(begin);
        if let Some(answer) = answer {
            self.remove(answer);
            self.open -= 1;
        }
        self.placed[op] = true;
        self.done ^= mark(op);
    }

    /// The operation that got its place last loses it.
    pub(crate) fn unlift(&mut self, op: usize) {
        self.done ^= mark(op);
        self.placed[op] = false;
        let (begin, answer) = self.of[op];
        if let Some(answer) = answer {
            self.restore(answer);
            self.open += 1;
        }
        self.restore(begin);
    }
}

/// A number of its own for each operation: the sums of two different sets are equal by chance only, once in 2^128.
fn mark(op: usize) -> u128 {
    let mix = |seed: u64| {
        let mut x = seed.wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x ^= x >> 30;
        x = x.wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    };
    let op = op as u64;
    (u128::from(mix(op.wrapping_mul(2) + 1)) << 64) | u128::from(mix(mix(op.wrapping_mul(2) + 2)))
}

//! What happened in a run: a hash of all events, on demand their words, and how often the product said each of its lines.
//!
//! The product's own log lines (crate `tracing`) are taken in by [`Ears`]: they are the words of a trace, and each line that
//! was said counts as a place that was reached.

use core::cell::RefCell;
use core::fmt::{self, Write as _};
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};

/// Lines of a trace that are kept.
const KEPT: usize = 400_000;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    hash: u64,
    events: u64,
    words: bool,
}

#[derive(Default)]
struct Heard {
    now: Duration,
    place: &'static str,
    machine: usize,
    words: bool,
    lines: VecDeque<String>,
    counts: BTreeMap<(&'static str, u32), u64>,
}

thread_local! {
    static HEARD: RefCell<Heard> = RefCell::default();
}

impl Trace {
    pub(crate) fn new(words: bool) -> Trace {
        let _first = tracing::subscriber::set_global_default(Ears);
        HEARD.with_borrow_mut(|h| *h = Heard { words, ..Heard::default() });
        Trace { hash: 0, events: 0, words }
    }

    /// Whether words are wanted.
    pub(crate) fn is_on(&self) -> bool {
        self.words
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn events(&self) -> u64 {
        self.events
    }

    /// An event happens: it goes into the hash.
    pub(crate) fn event(&mut self, now: Duration, kind: u64, result_fid: u64) {
        self.events += 1;
        HEARD.with_borrow_mut(|h| h.now = now);
        for x in [u64::try_from(now.as_nanos()).unwrap_or(0), kind, result_fid] {
            self.hash = (self.hash ^ x).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
        }
    }

    /// What the product says from now on, it says on that machine.
    pub(crate) fn speaker(place: &'static str, machine: usize) {
        HEARD.with_borrow_mut(|h| (h.place, h.machine) = (place, machine));
    }

    /// Keeps the words of an event.
    pub(crate) fn say(words: fmt::Arguments<'_>) {
        HEARD.with_borrow_mut(|h| h.keep(words.to_string()));
    }

    /// The lines that were kept.
    pub(crate) fn lines() -> Vec<String> {
        HEARD.with_borrow(|h| h.lines.iter().cloned().collect())
    }

    /// How often each line of the product's log was said: file, line, count.
    pub(crate) fn said() -> BTreeMap<(&'static str, u32), u64> {
        HEARD.with_borrow(|h| h.counts.clone())
    }
}

impl Heard {
    fn keep(&mut self, line: String) {
        if self.lines.len() >= KEPT {
            self.lines.pop_front();
        }
        self.lines.push_back(format!("{:>11.6} {line}", self.now.as_secs_f64()));
    }
}

/// Takes in what the product logs.
struct Ears;

struct Words(String);

impl Visit for Words {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string does not fail.
        let _written = match field.name() {
            "message" => write!(self.0, "{value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}

impl Subscriber for Ears {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if *metadata.level() <= Level::DEBUG { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::DEBUG
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let m = event.metadata();
        HEARD.with_borrow_mut(|h| {
            *h.counts.entry((m.file().unwrap_or(""), m.line().unwrap_or(0))).or_default() += 1;
            if h.words {
                let mut words = Words(format!("  {} {} {}: ", h.place, h.machine, m.level()));
                event.record(&mut words);
                h.keep(words.0);
            }
        });
    }
}

/// Words for the trace, made only if somebody wants them.
macro_rules! say {
    ($world:expr, $($words:tt)*) => {
        if $world.trace.is_on() {
            crate::trace::Trace::say(format_args!($($words)*));
        }
    };
}
pub(crate) use say;

//! The events of a run: a hash of all of them, and on demand their words.

use core::fmt;
use core::time::Duration;
use std::collections::VecDeque;

const KEPT: usize = 200_000;

/// See the module's words.
#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) hash: u64,
    pub(crate) events: u64,
    pub(crate) words: bool,
    pub(crate) lines: VecDeque<String>,
}

impl Log {
    /// Counts an event into the hash.
    pub(crate) fn note(&mut self, now: Duration, a: u64, b: u64) {
        self.events += 1;
        for x in [u64::try_from(now.as_nanos()).unwrap_or(0), a, b] {
            self.hash = (self.hash ^ x).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
        }
    }

    /// Keeps the words of an event.
    pub(crate) fn say(&mut self, now: Duration, words: fmt::Arguments<'_>) {
        if self.lines.len() >= KEPT {
            self.lines.pop_front();
        }
        self.lines.push_back(format!("{:>11.6} {words}", now.as_secs_f64()));
    }

    pub(crate) fn tail(&self) -> Vec<String> {
        self.lines.iter().cloned().collect()
    }
}

/// Words for the log, made only if somebody wants them.
macro_rules! say {
    ($world:expr, $($words:tt)*) => {
        if $world.log.words {
            let now = $world.now;
            $world.log.say(now, format_args!($($words)*));
        }
    };
}
pub(crate) use say;

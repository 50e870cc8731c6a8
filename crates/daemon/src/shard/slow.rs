//! Which steps of a set held its thread up: everybody else on that thread waited for them.

use std::cell::Cell;
use std::time::Duration;

/// A step that takes longer is one to know about.
const LONG: Duration = Duration::from_millis(10);
/// No client is to wait longer for what other clients and bricks do.
const PROMISED: Duration = Duration::from_millis(50);
/// A step that takes longer is one that people notice.
const VERY_LONG: Duration = Duration::from_secs(1);

/// Long steps since they were last told.
#[derive(Debug, Default)]
pub(super) struct SlowSteps {
    many: Cell<u32>,
    longest: Cell<(Duration, &'static str)>,
}

impl SlowSteps {
    /// A step took that long; whether that is long.
    pub(super) fn note(&self, name: &'static str, took: Duration) -> bool {
        if took < LONG {
            return false;
        }
        self.many.set(self.many.get().saturating_add(1));
        if took > self.longest.get().0 {
            self.longest.set((took, name));
        }
        true
    }

    /// Once a second: one line at most, about the longest of them.
    pub(super) fn tell(&self, set: &str) {
        let Some((many, took, name)) = self.take() else { return };
        if took < PROMISED {
            tracing::debug!("{set}: {many} long steps, the longest {took:?}: {name}");
        } else if took < VERY_LONG {
            tracing::info!("{set}: {many} long steps, the longest {took:?}: {name}");
        } else {
            tracing::warn!("{set}: nobody was served for {took:?}: {name}; {many} long steps in all");
        }
    }

    fn take(&self) -> Option<(u32, Duration, &'static str)> {
        let (took, name) = self.longest.take();
        Some((self.many.take(), took, name)).filter(|(many, ..)| *many > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_step_is_told_once() {
        let slow = SlowSteps::default();
        assert!(!slow.note("Tick", LONG / 2));
        assert_eq!(slow.take(), None, "it was not long");
        for (name, took) in [("Tick", LONG), ("Entries", LONG * 3), ("Apply", LONG * 2)] {
            assert!(slow.note(name, took));
        }
        assert_eq!(slow.take(), Some((3, LONG * 3, "Entries")));
        assert_eq!(slow.take(), None);
    }
}

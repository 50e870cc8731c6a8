//! A value that a power cut may have set back.

/// A value, what it may be instead after a loss, and what a loss would leave. `None` stands for any value.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct Choice<V> {
    /// The value if nothing of it was lost.
    now: Option<V>,
    /// What it may be instead, since a loss.
    maybe: Vec<Option<V>>,
    /// What it was since the last sync.
    since: Vec<Option<V>>,
}

/// What an answer that shows a value says of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shown {
    /// It is what it has to be.
    Kept,
    /// Something of it was lost.
    Lost,
    /// It can't be that.
    Wrong,
}

impl<V: Clone + Ord> Choice<V> {
    pub(crate) fn known(value: V) -> Choice<V> {
        Choice { now: Some(value), maybe: Vec::new(), since: Vec::new() }
    }

    pub(crate) fn anything() -> Choice<V> {
        Choice { now: None, maybe: Vec::new(), since: Vec::new() }
    }

    /// The value if nothing was lost.
    pub(crate) fn kept(&self) -> Option<&V> {
        self.now.as_ref()
    }

    pub(crate) fn is_certain(&self) -> bool {
        self.maybe.is_empty()
    }

    /// All that it may be.
    pub(crate) fn values(&self) -> impl Iterator<Item = Option<&V>> {
        std::iter::once(self.now.as_ref()).chain(self.maybe.iter().map(Option::as_ref))
    }

    pub(crate) fn may_be(&self, value: &V) -> bool {
        self.values().any(|v| v.is_none_or(|v| v == value))
    }

    /// Sets it; `tracked` if a loss may come.
    pub(crate) fn set(&mut self, value: Option<V>, tracked: bool) {
        self.become_one_of(value, Vec::new(), tracked);
    }

    fn become_one_of(&mut self, now: Option<V>, maybe: Vec<Option<V>>, tracked: bool) {
        let was = std::mem::replace(&mut self.now, now);
        let others = std::mem::replace(&mut self.maybe, maybe);
        if tracked {
            self.since.push(was);
            self.since.extend(others);
            self.since.sort();
            self.since.dedup();
            // Where it may be something else a loss may still bring this one back.
            if self.maybe.is_empty() {
                let now = &self.now;
                self.since.retain(|v| v != now);
            }
        }
    }

    /// Changes all that it may be in the same way.
    pub(crate) fn map(&mut self, tracked: bool, change: impl Fn(&V) -> V) {
        let maybe: Vec<Option<V>> = self.maybe.iter().map(|v| v.as_ref().map(&change)).collect();
        let now = self.now.as_ref().map(change);
        if self.now != now || self.maybe != maybe {
            self.become_one_of(now, maybe, tracked);
            self.tidy();
        }
    }

    /// It is changed to one of these, or is not. A loss then leaves what it was before.
    pub(crate) fn change_perhaps(&mut self, to: impl IntoIterator<Item = Option<V>>, tracked: bool) {
        if tracked {
            self.since.push(self.now.clone());
            self.since.extend(self.maybe.iter().cloned());
            self.since.sort();
            self.since.dedup();
        }
        self.widen(to);
    }

    /// It may be one of these as well.
    pub(crate) fn widen(&mut self, others: impl IntoIterator<Item = Option<V>>) {
        self.maybe.extend(others);
        self.tidy();
    }

    fn tidy(&mut self) {
        self.maybe.sort();
        self.maybe.dedup();
        let now = &self.now;
        self.maybe.retain(|v| v != now);
    }

    /// What a loss would leave instead, as far as it is known.
    pub(crate) fn since(&self) -> impl Iterator<Item = &V> {
        self.since.iter().flatten()
    }

    pub(crate) fn sync(&mut self) {
        self.since.clear();
    }

    pub(crate) fn lose(&mut self) {
        let since = std::mem::take(&mut self.since);
        self.widen(since);
    }

    /// Nothing of it was lost.
    pub(crate) fn settle(&mut self) {
        self.maybe.clear();
    }

    /// It is not that.
    pub(crate) fn rule_out(&mut self, value: &V) -> Shown {
        self.maybe.retain(|v| v.as_ref() != Some(value));
        if self.now.as_ref() != Some(value) {
            return Shown::Kept;
        }
        let Some(other) = self.maybe.pop() else { return Shown::Wrong };
        self.now = other;
        Shown::Lost
    }

    pub(crate) fn show(&mut self, value: &V) -> Shown {
        if self.now.as_ref() == Some(value) {
            self.maybe.clear();
            return Shown::Kept;
        }
        if self.now.is_none() {
            return Shown::Kept;
        }
        if !self.may_be(value) {
            return Shown::Wrong;
        }
        self.now = Some(value.clone());
        self.maybe.clear();
        Shown::Lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_sets_back_to_what_was_since_the_last_sync() {
        let mut c = Choice::known(1);
        c.set(Some(2), true);
        c.sync();
        c.set(Some(3), true);
        c.set(Some(4), true);
        c.lose();
        assert!(!c.may_be(&1) && c.may_be(&2) && c.may_be(&3) && c.may_be(&4) && !c.may_be(&5));
        assert_eq!(c.clone().show(&1), Shown::Wrong);
        assert_eq!(c.clone().show(&4), Shown::Kept);
        assert_eq!(c.show(&2), Shown::Lost);
        assert_eq!(c.show(&3), Shown::Wrong, "it was seen what it is");
    }

    #[test]
    fn what_a_loss_leaves_is_known_though_it_was_perhaps_the_same_before() {
        let mut c = Choice::known(1);
        c.sync();
        c.change_perhaps([Some(4)], false);
        c.map(true, |v| (v - 1) / 3 + 1);
        assert_eq!(c.values().collect::<Vec<_>>(), [Some(&1), Some(&2)]);
        assert_eq!(c.show(&2), Shown::Lost);
        c.lose();
        assert!(c.may_be(&2) && c.may_be(&1));
    }

    #[test]
    fn a_loss_takes_a_change_that_was_perhaps_made() {
        let mut c = Choice::known(1);
        c.change_perhaps([Some(2)], true);
        assert_eq!(c.show(&2), Shown::Lost);
        c.lose();
        assert_eq!(c.clone().show(&1), Shown::Lost);
        assert_eq!(c.clone().show(&2), Shown::Kept);
        assert_eq!(c.show(&3), Shown::Wrong);
    }

    #[test]
    fn what_is_not_known_may_be_anything() {
        let mut c = Choice::anything();
        assert_eq!((c.show(&1), c.show(&2)), (Shown::Kept, Shown::Kept));
        c.set(Some(3), true);
        c.lose();
        assert!(c.may_be(&9));
    }
}

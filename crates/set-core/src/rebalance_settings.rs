//! What a volume's options say of files that move to other sets ([`crate::rebalance`]).

use crate::departures::TOGETHER;

/// Whether files move from this set to emptier ones, and how.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RebalanceSettings {
    /// Whether they move.
    pub state: RebalanceState,
    /// How eagerly.
    pub throttle: RebalanceThrottle,
    /// All files are to leave this set, and no new ones come.
    pub drains: bool,
}

impl RebalanceSettings {
    /// Whether files move from it.
    pub(crate) fn moves(&self) -> bool {
        self.state == RebalanceState::On || self.drains && self.state != RebalanceState::Paused
    }
}

/// Whether files move from fuller sets to emptier ones.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum RebalanceState {
    /// They stay.
    #[default]
    Off,
    /// They move.
    On,
    /// They stay for now; what has moved is counted on.
    Paused,
}

/// How eagerly files move while clients are active.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum RebalanceThrottle {
    /// One file at a time, and after each piece a rest three times as long as it took.
    #[default]
    Gentle,
    /// A few files at a time, and a rest as long as each piece took.
    Normal,
    /// No rest, and more files at a time.
    Fast,
}

impl RebalanceThrottle {
    /// How many times as long as a piece took passes before the next one.
    pub(crate) fn rest(self) -> u32 {
        match self {
            RebalanceThrottle::Gentle => 3,
            RebalanceThrottle::Normal => 1,
            RebalanceThrottle::Fast => 0,
        }
    }

    /// Files that are copied at the same time, while clients are active or not.
    pub(crate) fn together(self, active: bool) -> usize {
        match self {
            RebalanceThrottle::Gentle if active => 1,
            RebalanceThrottle::Normal if active => 4,
            RebalanceThrottle::Gentle | RebalanceThrottle::Normal => TOGETHER / 2,
            RebalanceThrottle::Fast => TOGETHER,
        }
    }
}

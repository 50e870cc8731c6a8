//! How far a healing is, for people.

/// How far a healing is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Progress {
    /// Objects healed.
    pub done: u64,
    /// Objects known to be stale still.
    pub left: u64,
    /// Bytes of data copied.
    pub bytes: u64,
    /// Bytes of data compared and found right.
    pub same: u64,
    /// Everything is compared: more objects may be met.
    pub full: bool,
    /// All changes that were missed are known.
    pub caught_up: bool,
}

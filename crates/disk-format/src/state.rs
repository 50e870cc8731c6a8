//! The state of a brick (its durable position, and how it was closed): the sealed file `.mortar/state`, of one size,
//! rewritten in place.

use crate::sealed::{self, SealError};
use ids::Lsn;
use wire::Wire;
use wire::peer::Stamp;

/// The kind of the sealed file.
pub const KIND: sealed::Kind = *b"stat";
/// The newest version of the format.
pub const VERSION: u32 = 1;

wire::wire_struct! {
    /// The state of a brick.
    pub struct State {
        /// The boot id of the page cache in which it was last open: 6 bytes of the machine's boot id, 4 of the number of
        /// the mount namespace, 6 of the mount's unique number (0 where the kernel gives none).
        pub boot: [u8; 16],
        /// Everything up to here is on disk.
        pub durable: Stamp,
        /// The tags of all objects are written (to the page cache at least) up to here.
        pub flushed: Lsn,
        /// It was closed in order, after the last change.
        pub clean: bool,
    }
}

impl State {
    /// The position before the first change.
    pub fn nothing() -> Stamp {
        Stamp { epoch: ids::Epoch(0), lsn: Lsn(0) }
    }

    /// The bytes of the state file.
    pub fn encode(&self) -> Vec<u8> {
        sealed::seal(KIND, VERSION, &self.to_bytes())
    }

    /// Reads a state file.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(bytes: &[u8]) -> Result<State, SealError> {
        let (_, body) = sealed::open(KIND, VERSION, bytes)?;
        State::from_bytes(body).map_err(SealError::Content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ids::Epoch;
    use proptest::prelude::*;

    #[test]
    fn frozen_bytes() {
        let s = State {
            boot: [7; 16],
            durable: Stamp { epoch: Epoch(2), lsn: Lsn(99) },
            flushed: Lsn(101),
            clean: true,
        };
        let frozen = include_bytes!("../testdata/state.v1.bin");
        assert_eq!(s.encode(), frozen);
        assert_eq!(State::decode(frozen), Ok(s));
    }

    proptest! {
        #[test]
        fn any_bytes(bytes: Vec<u8>) {
            let _ = State::decode(&bytes);
            let _ = State::decode(&sealed::seal(KIND, VERSION, &bytes));
        }
    }
}

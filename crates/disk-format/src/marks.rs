//! The files whose names may wait for the end of a transaction: the sealed file `.mortar/marks`.

use crate::sealed::{self, SealError};
use ids::Fid;
use wire::Wire;

/// The kind of the sealed file.
pub const KIND: sealed::Kind = *b"mark";
/// The newest version of the format.
pub const VERSION: u32 = 1;

wire::wire_struct! {
    /// Files whose names may wait for the end of a transaction, of which the journal may not tell.
    pub struct Marks {
        /// The files.
        pub files: Vec<Fid>,
    }
}

impl Marks {
    /// The bytes of the file.
    pub fn encode(&self) -> Vec<u8> {
        sealed::seal(KIND, VERSION, &self.to_bytes())
    }

    /// Reads the file.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(bytes: &[u8]) -> Result<Marks, SealError> {
        let (_, body) = sealed::open(KIND, VERSION, bytes)?;
        Marks::from_bytes(body).map_err(SealError::Content)
    }
}

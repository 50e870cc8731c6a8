//! Owner and permission bits of a brick's top directory as the volume has them. On disk the directory itself is root's and
//! closed to all others (docs/design/0028): a byte 1, the version, then what [`Top`] says.

use wire::{DecodeError, Wire};

/// The attribute of the top directory: a [`Top`].
pub const TOP: &str = "trusted.mortar.top";

/// Bytes of the attribute's value.
pub const SIZE: usize = 13;

const VERSION: u8 = 1;
const MODE_BITS: u32 = 0o7777;

wire::wire_struct! {
    /// What users see of the top directory.
    #[derive(Copy)]
    pub struct Top {
        /// Permission bits, without those of the type.
        pub mode: u32,
        /// Owner.
        pub uid: u32,
        /// Group.
        pub gid: u32,
    }
}

impl Top {
    /// The attribute's value.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        self.put(&mut out);
        out
    }

    /// Reads the attribute's value.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(bytes: &[u8]) -> Result<Top, DecodeError> {
        let top: Top = match bytes.split_first() {
            Some((&VERSION, rest)) => Wire::from_bytes(rest)?,
            Some((v, _)) => return Err(DecodeError::Unknown("version", (*v).into())),
            None => return Err(DecodeError::Short),
        };
        if top.mode & !MODE_BITS != 0 {
            return Err(DecodeError::Unknown("permission bits", top.mode));
        }
        Ok(top)
    }
}

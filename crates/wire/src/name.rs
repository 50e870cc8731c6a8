//! A name in a directory: 1 to 255 bytes, no slash, no NUL, not "." or "..".

use crate::codec::{DecodeError, Reader, Wire};
use crate::limits::NAME_MAX;
use core::fmt;

/// A checked name. Holding one means that it can be given to the kernel as one path component.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Box<[u8]>);

/// The folder on each brick that belongs to Mortar; no user may have this name in a volume's root.
pub const RESERVED: &[u8] = b".mortar";

impl Name {
    /// Checks `bytes` and takes a copy.
    pub fn new(bytes: &[u8]) -> Result<Name, DecodeError> {
        let bad = bytes.is_empty()
            || bytes.len() > NAME_MAX
            || bytes == b"."
            || bytes == b".."
            || bytes.iter().any(|&b| b == b'/' || b == 0);
        if bad { Err(DecodeError::Bounds("name")) } else { Ok(Name(bytes.into())) }
    }

    /// The bytes of the name.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.0))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", String::from_utf8_lossy(&self.0))
    }
}

impl Wire for Name {
    fn put(&self, out: &mut Vec<u8>) {
        u32::try_from(self.0.len()).unwrap_or(0).put(out);
        out.extend_from_slice(&self.0);
    }
    fn get(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Name::new(r.bytes(NAME_MAX, "name")?)
    }
}

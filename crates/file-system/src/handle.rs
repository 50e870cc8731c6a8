//! File handles: they name an inode for ever, whatever its path.

/// The longest handle kept, in bytes; ext4 needs 8, XFS 12, btrfs 20.
pub const HANDLE_MAX: usize = 40;

/// A file handle as the file system gives it. Opening it answers `ESTALE` when the inode is gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Handle {
    kind: i32,
    len: u8,
    bytes: [u8; HANDLE_MAX],
}

impl Handle {
    /// A handle of these bytes; `None` if they are too many.
    pub fn new(kind: i32, bytes: &[u8]) -> Option<Handle> {
        let mut h = Handle { kind, len: u8::try_from(bytes.len()).ok()?, bytes: [0; HANDLE_MAX] };
        h.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(h)
    }

    /// The kind of handle, as the file system numbers them.
    pub fn kind(&self) -> i32 {
        self.kind
    }

    /// What the file system gave.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// Appends the handle's bytes, as an index keeps them: kind (4 bytes, little-endian), then what the file system gave.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.kind.to_le_bytes());
        out.extend_from_slice(self.bytes());
    }

    /// The reverse of [`Handle::encode`]; `None` for what no handle encodes to.
    pub fn decode(bytes: &[u8]) -> Option<Handle> {
        let (kind, rest) = bytes.split_first_chunk::<4>()?;
        Handle::new(i32::from_le_bytes(*kind), rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoding_and_back() {
        let h = Handle::new(7, &[1, 2, 3]).unwrap();
        let mut out = Vec::new();
        h.encode(&mut out);
        assert_eq!(out, [7, 0, 0, 0, 1, 2, 3]);
        assert_eq!(Handle::decode(&out), Some(h));
        assert_eq!(Handle::decode(&out[..3]), None);
        assert_eq!(Handle::decode(&[0; HANDLE_MAX + 5]), None);
        assert_eq!(Handle::new(1, &[0; HANDLE_MAX + 1]), None);
    }
}

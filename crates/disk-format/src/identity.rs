//! Whose a brick is: the sealed file `.mortar/identity`.

use crate::sealed::{self, SealError};
use ids::{BrickId, Fid, SetId, VolumeId};
use wire::codec::Blob;
use wire::{DecodeError, Reader, Wire};

/// The kind of the sealed file.
pub const KIND: sealed::Kind = *b"brik";
/// The newest version of the format.
pub const VERSION: u32 = 1;

/// A brick's identity. Written once, when the brick is made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The pool.
    pub pool: [u8; 16],
    /// The volume.
    pub volume: VolumeId,
    /// The set that the brick is one of.
    pub set: SetId,
    /// The brick itself.
    pub brick: BrickId,
    /// Whether it holds no file data.
    pub arbiter: bool,
    /// The volume's name when the brick was made, for people.
    pub volume_name: String,
    /// The volume's root directory.
    pub root: Fid,
    /// The set that answers for the root; if it is another, the brick's top is a copy of it.
    pub root_home: SetId,
}

impl Wire for Identity {
    fn put(&self, out: &mut Vec<u8>) {
        self.pool.put(out);
        self.volume.put(out);
        self.set.put(out);
        self.brick.put(out);
        self.arbiter.put(out);
        Blob(self.volume_name.clone().into_bytes()).put(out);
        self.root.put(out);
        self.root_home.put(out);
    }
    fn get(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Identity {
            pool: Wire::get(r)?,
            volume: Wire::get(r)?,
            set: Wire::get(r)?,
            brick: Wire::get(r)?,
            arbiter: Wire::get(r)?,
            volume_name: String::from_utf8(Blob::get(r)?.0)
                .map_err(|_| DecodeError::Bounds("volume name"))?,
            root: Wire::get(r)?,
            root_home: Wire::get(r)?,
        })
    }
}

impl Identity {
    /// The bytes of the identity file.
    pub fn encode(&self) -> Vec<u8> {
        sealed::seal(KIND, VERSION, &self.to_bytes())
    }

    /// Reads an identity file.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(bytes: &[u8]) -> Result<Identity, SealError> {
        let (_, body) = sealed::open(KIND, VERSION, bytes)?;
        Identity::from_bytes(body).map_err(SealError::Content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> Identity {
        Identity {
            pool: *b"0123456789abcdef",
            volume: VolumeId(1),
            set: SetId(2),
            brick: BrickId(3),
            arbiter: false,
            volume_name: "home".into(),
            root: Fid::root(SetId(2)),
            root_home: SetId(2),
        }
    }

    #[test]
    fn frozen_bytes() {
        let frozen = include_bytes!("../testdata/identity.v1.bin");
        assert_eq!(sample().encode(), frozen);
        assert_eq!(Identity::decode(frozen), Ok(sample()));
    }

    proptest! {
        #[test]
        fn round_trip(pool: [u8; 16], v: u32, s: u32, b: u32, arbiter: bool, volume_name: String, root: [u8; 16]) {
            let i = Identity {
                pool, volume: VolumeId(v), set: SetId(s), brick: BrickId(b), arbiter, volume_name,
                root: Fid::from_bytes(root), root_home: SetId(v),
            };
            prop_assert_eq!(Identity::decode(&i.encode()), Ok(i));
        }

        #[test]
        fn any_bytes(bytes: Vec<u8>) {
            let _ = Identity::decode(&bytes);
            let _ = Identity::decode(&sealed::seal(KIND, VERSION, &bytes));
        }
    }
}

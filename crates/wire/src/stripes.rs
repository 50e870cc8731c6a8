//! Files whose data lies on several sets (docs/design/0029): where which range is, and what is kept of that beside objects.

use crate::codec::{DecodeError, Wire};
use crate::limits::STRIPES_MAX;
use crate::op::SetAttr;
use crate::wire_struct;
use ids::{Fid, OpId};

/// The attribute beside a striped file that says where its data lies, for Mortar alone.
pub const STRIPES: &str = "trusted.mortar.stripes";
/// The attribute beside a piece that says whose it is.
pub const PIECE: &str = "trusted.mortar.piece";

const VERSION: u8 = 1;

wire_struct! {
    /// Where the data of a striped file lies: what is before `base` in the file itself, and from there on unit n of `unit`
    /// bytes, counted from the beginning of the file, in piece n modulo their number, at the same offset.
    pub struct Layout {
        /// Grows with each cut of the pieces. Never given twice for a file, whatever its set has lost.
        pub generation: u64,
        /// A multiple of `unit`.
        pub base: u64,
        /// Bytes of a unit.
        pub unit: u64,
        /// The pieces, each on the set that gave its fid.
        pub pieces: Vec<Fid>,
    }
}

impl Layout {
    /// Whether it says of each byte where it lies.
    pub fn is_sound(&self) -> bool {
        let units = self.unit > 0 && self.base.is_multiple_of(self.unit);
        units && (1..=STRIPES_MAX).contains(&self.pieces.len())
    }
}

wire_struct! {
    /// A cut that has begun: nothing of the file is read or changed until all pieces have confirmed it.
    pub struct Cut {
        /// The generation that the layout has afterwards.
        pub generation: u64,
        /// Pieces lose what they have from here on.
        pub end: u64,
        /// The request that is carried out then.
        pub then: Option<CutBy>,
    }
}

wire_struct! {
    /// The request that a cut is for.
    pub struct CutBy {
        /// Its name.
        pub op: OpId,
        /// The attributes that it sets, the length among them.
        pub set: SetAttr,
    }
}

wire_struct! {
    /// What is kept beside a striped file.
    pub struct Stripes {
        /// Where its data lies.
        pub layout: Layout,
        /// A cut that is under way.
        pub cut: Option<Cut>,
    }
}

wire_struct! {
    /// What is kept beside a piece.
    pub struct PieceOf {
        /// The file, on the set that gave its fid.
        pub file: Fid,
        /// That of the layout by which it is read and written.
        pub generation: u64,
    }
}

impl Stripes {
    /// The value of [`STRIPES`]: a version, and this.
    pub fn encode(&self) -> Vec<u8> {
        versioned(self)
    }

    /// Reads the value of [`STRIPES`].
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(bytes: &[u8]) -> Result<Stripes, DecodeError> {
        let stripes: Stripes = of_version(bytes)?;
        if stripes.layout.is_sound() { Ok(stripes) } else { Err(DecodeError::Bounds("layout")) }
    }
}

impl PieceOf {
    /// The value of [`PIECE`]: a version, and this.
    pub fn encode(&self) -> Vec<u8> {
        versioned(self)
    }

    /// Reads the value of [`PIECE`].
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(bytes: &[u8]) -> Result<PieceOf, DecodeError> {
        of_version(bytes)
    }
}

fn versioned(value: &impl Wire) -> Vec<u8> {
    let mut out = vec![VERSION];
    value.put(&mut out);
    out
}

fn of_version<T: Wire>(bytes: &[u8]) -> Result<T, DecodeError> {
    match bytes.split_first() {
        Some((&VERSION, rest)) => Wire::from_bytes(rest),
        Some((v, _)) => Err(DecodeError::Unknown("version", (*v).into())),
        None => Err(DecodeError::Short),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ids::{Epoch, Lsn, SessionId, SetId};

    fn fid(set: u32) -> Fid {
        Fid { set: SetId(set), epoch: Epoch(2), lsn: Lsn(9) }
    }

    fn layout(pieces: usize) -> Layout {
        let pieces = (1..).take(pieces).map(fid).collect();
        Layout { generation: 7 << 32, base: 1 << 20, unit: 1 << 18, pieces }
    }

    #[test]
    fn what_is_kept_beside_objects_is_frozen() {
        let piece = PieceOf { file: fid(3), generation: 5 }.encode();
        assert_eq!(piece, [1, 3, 0, 0, 0, 2, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0]);
        let set = SetAttr {
            size: Some(4),
            mode: None,
            uid: None,
            gid: None,
            atime: None,
            mtime: None,
            kill_suid: false,
        };
        let then = Some(CutBy { op: OpId { session: SessionId(1), seq: 2 }, set });
        let stripes = Stripes { layout: layout(1), cut: Some(Cut { generation: 8, end: 4, then }) };
        let bytes = stripes.encode();
        let mut frozen =
            vec![1, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 1, 0, 0, 0];
        frozen.extend([
            1, 0, 0, 0, 2, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 1, 8, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0,
        ]);
        frozen.extend([
            1, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        ]);
        assert_eq!(bytes, frozen);
        assert_eq!(Stripes::decode(&bytes), Ok(stripes));
        assert_eq!(PieceOf::decode(&piece), Ok(PieceOf { file: fid(3), generation: 5 }));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let encode = |layout: Layout| Stripes { layout, cut: None }.encode();
        assert!(Stripes::decode(&encode(layout(STRIPES_MAX))).is_ok());
        let odd = [
            layout(0),
            layout(STRIPES_MAX + 1),
            Layout { unit: 0, ..layout(2) },
            Layout { base: 5, ..layout(2) },
        ];
        for layout in odd {
            assert_eq!(Stripes::decode(&encode(layout)), Err(DecodeError::Bounds("layout")));
        }
        for bytes in [&[][..], &[1], &[2, 0, 0], &[1, 0, 0, 0]] {
            assert!(Stripes::decode(bytes).is_err() && PieceOf::decode(bytes).is_err());
        }
    }
}

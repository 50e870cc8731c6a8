//! How users know a set.
//!
//! Always true: what people read names a set by [`SetName`], or by its id with a `#`; the two cannot be mixed up.

use crate::SetId;
use core::fmt;

/// A set as users know it: by its number among the sets that its volume has had, which is written here. The id is what
/// programs, bricks and journals know it by.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SetName {
    /// Unique in the pool.
    #[cfg_attr(feature = "serde", serde(rename = "set"))]
    pub id: SetId,
    /// From 1 on in each volume; 0: a program of before has told only the id.
    #[cfg_attr(feature = "serde", serde(default, rename = "set_number"))]
    pub number: u32,
}

impl From<SetId> for SetName {
    /// The set whose number is not known here.
    fn from(id: SetId) -> SetName {
        SetName { id, number: 0 }
    }
}

impl fmt::Display for SetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.number {
            0 => self.id.fmt(f),
            number => number.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn a_number_and_an_id_look_different() {
        let id = SetId(7);
        assert_eq!((id.to_string(), SetName::from(id).to_string()), ("#7".into(), "#7".into()));
        assert_eq!(SetName { id, number: 2 }.to_string(), "2");
    }
}

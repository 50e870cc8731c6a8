//! 128-bit names as 32 lower-case hex digits: pool ids, server identities, command ids.
//! As a `#[serde(with = "hex")]` module it keeps `u128` out of JSON numbers.

use serde::{Deserialize, Deserializer, Serializer, de::Error};

/// The 32 digits of `n`.
pub fn encode(n: u128) -> String {
    format!("{n:032x}")
}

/// The reverse of [`encode`]; anything but 32 lower-case hex digits is `None`.
pub fn decode(s: &str) -> Option<u128> {
    let plain = s.len() == 32 && s.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if plain { u128::from_str_radix(s, 16).ok() } else { None }
}

/// For serde.
pub fn serialize<S: Serializer>(n: &u128, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_str(&encode(*n))
}

/// For serde.
pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<u128, D::Error> {
    let s = String::deserialize(d)?;
    decode(&s).ok_or_else(|| D::Error::custom("expected 32 lower-case hex digits"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_and_strangers() {
        for n in [0, 1, u128::MAX, 0xdead_beef] {
            assert_eq!(decode(&encode(n)), Some(n));
        }
        for s in ["", "12", "+0000000000000000000000000000001", "ABCDEF00000000000000000000000000"] {
            assert_eq!(decode(s), None, "{s}");
        }
    }
}

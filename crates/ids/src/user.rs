//! A user of a client's key, as numbers and as text.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

/// A user who may ask with a key, as whoever made the key resolved him. As text he is `UID:GID[+GID...]`.
#[derive(Clone, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct KeyUser {
    /// The user's number.
    pub uid: u32,
    /// The number of his first group.
    pub gid: u32,
    /// The numbers of his other groups.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Vec::is_empty"))]
    pub groups: Vec<u32>,
    /// What he is called on the machine where his groups were looked up; `None`: numbers were written. It is no part of the text.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub name: Option<String>,
}

impl KeyUser {
    /// What servers count by: the user, his first group and the others.
    pub fn numbers(&self) -> (u32, u32, &[u32]) {
        (self.uid, self.gid, &self.groups)
    }
}

/// The text is not `UID:GID[+GID...]`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoKeyUser;

impl FromStr for KeyUser {
    type Err = NoKeyUser;

    fn from_str(text: &str) -> Result<KeyUser, NoKeyUser> {
        let (uid, groups) = text.split_once(':').ok_or(NoKeyUser)?;
        let mut groups = groups.split('+').map(number);
        let gid = groups.next().ok_or(NoKeyUser)??;
        Ok(KeyUser { uid: number(uid)?, gid, groups: groups.collect::<Result<_, _>>()?, name: None })
    }
}

/// Digits only: numbers in Rust may begin with a plus sign, which stands between groups here.
fn number(text: &str) -> Result<u32, NoKeyUser> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    if digits { text.parse().map_err(|_| NoKeyUser) } else { Err(NoKeyUser) }
}

impl fmt::Display for KeyUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.uid, self.gid)?;
        self.groups.iter().try_for_each(|gid| write!(f, "+{gid}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn text_is_read_as_it_is_written() {
        for (text, uid, gid, groups) in [
            ("1000:100", 1000, 100, &[][..]),
            ("1000:100+27+4", 1000, 100, &[27, 4]),
            ("0:4294967295", 0, u32::MAX, &[]),
        ] {
            let user = KeyUser { uid, gid, groups: groups.to_vec(), name: None };
            assert_eq!((text.parse(), user.to_string().as_str()), (Ok(user.clone()), text));
        }
    }

    #[test]
    fn other_text_is_no_user() {
        for bad in [
            "",
            ":",
            "1000",
            "1000:",
            ":1",
            "1000:1+",
            "1000:+1",
            "1000:1++2",
            "1000:1+x",
            "1000:1:2",
            "+1000:1",
            "-1:1",
            "1000: 1",
            "1000:1 ",
            "4294967296:1",
            "1:4294967296",
            "ann:1",
            "1000:staff",
        ] {
            assert_eq!(bad.parse::<KeyUser>(), Err(NoKeyUser), "{bad:?}");
        }
    }
}

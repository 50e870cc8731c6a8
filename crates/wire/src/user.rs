//! What the permission bits and the access list of an object allow a user, as Linux decides it.

use crate::Attr;
use core::fmt;
use core::str::FromStr;
use ids::KeyUser;
use std::sync::Arc;

/// Execute or search.
pub const EXECUTE: u32 = 1;
/// Write.
pub const WRITE: u32 = 2;
/// Read.
pub const READ: u32 = 4;

/// The extended attribute with an object's access list.
pub const ACCESS_LIST: &str = "system.posix_acl_access";

/// A user with his groups, without rights of root.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct User {
    /// The number of the user.
    pub uid: u32,
    /// The number of his first group.
    pub gid: u32,
    /// The numbers of his other groups, if he has any.
    pub groups: Option<Arc<[u32]>>,
}

impl User {
    /// One who has this group and no other.
    pub const fn of_one_group(uid: u32, gid: u32) -> User {
        User { uid, gid, groups: None }
    }

    /// Whether a group is one of his.
    pub fn is_in(&self, group: u32) -> bool {
        self.gid == group || self.groups.as_ref().is_some_and(|groups| groups.contains(&group))
    }
}

impl fmt::Display for User {
    /// `UID:GID`, without the other groups.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.uid, self.gid)
    }
}

impl FromStr for User {
    type Err = ();

    /// Of `UID:GID`.
    fn from_str(text: &str) -> Result<User, ()> {
        let user: KeyUser = text.parse().map_err(|ids::NoKeyUser| ())?;
        user.groups.is_empty().then_some(User::of_one_group(user.uid, user.gid)).ok_or(())
    }
}

const VERSION: u32 = 2;
const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// One entry of an access list.
struct AclEntry {
    tag: u16,
    bits: u32,
    id: u32,
}

impl User {
    /// Whether the object is the user's.
    pub fn owns(&self, attr: &Attr) -> bool {
        self.uid == attr.uid
    }

    /// Whether the object's access list has to be known for [`User::may`]. Linux does not read it either where the bits of the
    /// group, which are the list's mask, allow nothing.
    pub fn needs_access_list(&self, attr: &Attr) -> bool {
        const SYMLINK: u32 = 0o120_000;
        !self.owns(attr) && attr.mode & 0o070 != 0 && attr.mode & 0o170_000 != SYMLINK
    }

    /// [`User::may`], with the access list that `read` gets. It is asked only where the list has to be known.
    ///
    /// # Errors
    /// What `read` gives.
    pub fn may_by_what_is_read<E>(
        &self,
        attr: &Attr,
        want: u32,
        read: impl FnOnce() -> Result<Option<Vec<u8>>, E>,
    ) -> Result<bool, E> {
        let list = if self.needs_access_list(attr) { read()? } else { None };
        Ok(self.may(attr, list.as_deref(), want))
    }

    /// Whether the user may do all of `want` ([`READ`], [`WRITE`], [`EXECUTE`]). `list`: the value of [`ACCESS_LIST`]; what is
    /// none allows nothing.
    pub fn may(&self, attr: &Attr, list: Option<&[u8]>, want: u32) -> bool {
        let class = match list.filter(|_| self.needs_access_list(attr)) {
            Some(list) => return self.may_by_list(attr, list, want),
            None if self.owns(attr) => attr.mode >> 6,
            None if self.is_in(attr.gid) => attr.mode >> 3,
            None => attr.mode,
        };
        class & want == want
    }

    fn may_by_list(&self, attr: &Attr, list: &[u8], want: u32) -> bool {
        let Some(entries) = entries(list) else { return false };
        let mask = entries.clone().find(|e| e.tag == MASK).map_or(0o7, |e| e.bits);
        let (mut in_group, mut other) = (false, 0);
        for AclEntry { tag, bits, id } in entries {
            match tag {
                USER if id == self.uid => return bits & mask & want == want,
                GROUP_OBJ | GROUP => {
                    let group = if tag == GROUP_OBJ { attr.gid } else { id };
                    let is_his = self.is_in(group);
                    in_group |= is_his;
                    if is_his && bits & mask & want == want {
                        return true;
                    }
                }
                OTHER => other = bits,
                _ => {}
            }
        }
        !in_group && other & want == want
    }
}

/// The entries of an access list, if it is one.
fn entries(list: &[u8]) -> Option<impl Iterator<Item = AclEntry> + Clone + '_> {
    const ENTRY: usize = 8;
    let (version, rest) = list.split_first_chunk::<4>()?;
    let entry = |bytes: &[u8]| match bytes {
        &[t0, t1, b0, b1, i0, i1, i2, i3] => Some(AclEntry {
            tag: u16::from_le_bytes([t0, t1]),
            bits: u16::from_le_bytes([b0, b1]).into(),
            id: u32::from_le_bytes([i0, i1, i2, i3]),
        }),
        _ => None,
    };
    let is_known = |e: AclEntry| matches!(e.tag, USER_OBJ | USER | GROUP_OBJ | GROUP | MASK | OTHER);
    let is_list = u32::from_le_bytes(*version) == VERSION
        && rest.chunks(ENTRY).all(|bytes| entry(bytes).is_some_and(is_known));
    is_list.then(|| rest.chunks(ENTRY).filter_map(entry))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ids::{Epoch, Fid, Lsn, SetId, Time};

    const ANN: User = User::of_one_group(1000, 100);

    fn file(mode: u32, uid: u32, gid: u32) -> Attr {
        let (time, set) = (Time::default(), SetId(1));
        let fid = Fid { set, epoch: Epoch(1), lsn: Lsn(1) };
        let mode = 0o100_000 | mode;
        let (nlink, rdev, size, blocks) = (1, 0, 0, 0);
        Attr {
            fid,
            home: set,
            mode,
            uid,
            gid,
            nlink,
            rdev,
            size,
            blocks,
            atime: time,
            mtime: time,
            ctime: time,
        }
    }

    fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut out = VERSION.to_le_bytes().to_vec();
        for (tag, bits, id) in entries {
            out.extend_from_slice(&tag.to_le_bytes());
            out.extend_from_slice(&bits.to_le_bytes());
            out.extend_from_slice(&id.to_le_bytes());
        }
        out
    }

    #[test]
    fn the_first_class_that_fits_decides() {
        for (mode, uid, gid, allowed) in [
            (0o700, 1000, 100, 7),
            (0o077, 1000, 100, 0),
            (0o070, 1, 100, 7),
            (0o707, 1, 100, 0),
            (0o007, 1, 1, 7),
            (0o640, 1, 100, 4),
            (0o751, 1, 1, 1),
        ] {
            for want in 1..8 {
                let may = ANN.may(&file(mode, uid, gid), None, want);
                assert_eq!(may, want & allowed == want, "{mode:o} of {uid}:{gid}, {want}");
            }
        }
    }

    #[test]
    fn an_access_list_decides_where_there_is_one() {
        let named = list(&[
            (USER_OBJ, 6, u32::MAX),
            (USER, 6, 1000),
            (GROUP_OBJ, 0, u32::MAX),
            (MASK, 4, u32::MAX),
            (OTHER, 7, u32::MAX),
        ]);
        let of_root = file(0o647, 0, 0);
        assert!(ANN.may(&of_root, Some(&named), READ), "named");
        assert!(!ANN.may(&of_root, Some(&named), WRITE), "the mask takes it away, though others may");
        let bob = User::of_one_group(2, 2);
        assert!(bob.may(&of_root, Some(&named), READ | WRITE | EXECUTE), "one of the others");
        let groups =
            list(&[(USER_OBJ, 7, 0), (GROUP_OBJ, 1, 0), (GROUP, 6, 100), (MASK, 7, 0), (OTHER, 7, 0)]);
        assert!(ANN.may(&file(0o677, 0, 5), Some(&groups), READ | WRITE));
        assert!(
            !ANN.may(&file(0o677, 0, 5), Some(&groups), EXECUTE),
            "who is in a group is none of the others"
        );
        assert!(ANN.may(&file(0o677, 0, 100), Some(&groups), EXECUTE), "any of the groups will do");
        assert!(
            !ANN.may(&file(0o677, 0, 100), Some(&groups), READ | EXECUTE),
            "but one for all that is wanted"
        );
        assert!(!ANN.may(&file(0o077, 1000, 100), Some(&groups), READ), "the owner's bits are the owner's");
        assert!(ANN.may(&file(0o604, 0, 0), Some(&named), READ), "without a mask the list is not looked at");
    }

    #[test]
    fn a_user_is_written_as_two_numbers() {
        assert_eq!("1000:100".parse(), Ok(ANN));
        assert_eq!(ANN.to_string(), "1000:100");
        for bad in ["", "1000", "1000:", ":1", "ann:users", "1:2:3", "1:2+3", "-1:1", "4294967296:1", "1: 1"]
        {
            assert!(bad.parse::<User>().is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_no_list_allows_nothing() {
        let good = list(&[(USER, 7, 1000), (MASK, 7, 0)]);
        assert!(ANN.may(&file(0o077, 0, 0), Some(&good), READ));
        let unknown = list(&[(USER, 7, 1000), (0x40, 7, 0)]);
        let short = good.get(..good.len() - 1).unwrap();
        for bad in [short, &[2, 0, 0], &[], &[1, 0, 0, 0], &unknown] {
            assert!(!ANN.may(&file(0o077, 0, 0), Some(bad), READ), "{bad:?}");
        }
    }
}

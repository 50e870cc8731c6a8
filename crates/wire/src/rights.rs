//! What one set asks another about a client that is not trusted to have looked: whether it may do that set's part of a rename
//! or of a link between the two (docs/design/0021).

use crate::limits::GROUPS_MAX;
use crate::name::Name;
use crate::{Errno, User, wire_enum, wire_struct};
use ids::{Fid, SessionId};
use std::sync::Arc;

wire_struct! {
    /// A user, as one set tells another of him.
    pub struct Person {
        /// The number of the user.
        pub uid: u32,
        /// The number of his first group.
        pub gid: u32,
        /// His other groups, [`GROUPS_MAX`] at most.
        pub groups: Vec<u32>,
    }
}

impl From<&User> for Person {
    fn from(user: &User) -> Person {
        let groups = user.groups.as_deref().unwrap_or_default().to_vec();
        Person { uid: user.uid, gid: user.gid, groups }
    }
}

impl TryFrom<Person> for User {
    type Error = Errno;

    /// `EINVAL` of one with too many groups: without some of them he might be allowed more.
    fn try_from(Person { uid, gid, groups }: Person) -> Result<User, Errno> {
        if groups.len() > GROUPS_MAX {
            return Err(Errno::EINVAL);
        }
        Ok(User { uid, gid, groups: (!groups.is_empty()).then(|| Arc::from(groups)) })
    }
}

wire_struct! {
    /// A session whose key is for what lies beneath a directory.
    pub struct Within {
        /// The directory.
        pub root: Fid,
        /// The session.
        pub session: SessionId,
    }
}

wire_enum! {
    /// A part of a rename or of a link between sets.
    pub enum Right {
        /// What this name leads to leaves the directory for one of another set.
        1 Leave { dir: Fid, name: Name },
        /// The directory comes into another one.
        2 Move { fid: Fid },
        /// The file gets a name in a directory of another set.
        3 Link { fid: Fid },
        /// The object is his own.
        4 Own { fid: Fid },
    }
}

/// In the kind that the answer to [`Right::Leave`] tells, as in a mode: only the owner may take it, whom its home knows.
pub const STICKY: u32 = 0o1000;

impl Right {
    /// The object that the set which is asked has to answer for.
    pub fn object(&self) -> Fid {
        match self {
            Right::Leave { dir: fid, .. }
            | Right::Move { fid }
            | Right::Link { fid }
            | Right::Own { fid } => *fid,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_comes_back_and_one_of_too_many_groups_does_not() {
        let user = |groups: u32| User {
            groups: (groups > 0).then(|| (0..groups).collect()),
            ..User::of_one_group(1000, 100)
        };
        let most = u32::try_from(GROUPS_MAX).unwrap();
        for groups in [0, 1, most] {
            assert_eq!(User::try_from(Person::from(&user(groups))), Ok(user(groups)), "{groups}");
        }
        assert_eq!(User::try_from(Person::from(&user(most + 1))), Err(Errno::EINVAL));
    }
}

//! What a client's key allows: its volume, whether it changes something, and as whom its requests count.
//!
//! Always true: a request that its key does not allow reaches no set. What the user may do, and what lies beneath the key's
//! directory, is the set's to decide (`set-core`).

use cluster::{ClientKey, KeyUser};
use ids::{Fid, SessionId, SetId, VolumeId};
use std::collections::BTreeMap;
use std::sync::Arc;
use wire::{Call, Errno, Op, User};

/// What a client's key is for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The only volume.
    pub volume: VolumeId,
    /// It changes nothing.
    pub read_only: bool,
    /// Each request is taken as this user's.
    pub squash: Option<User>,
    /// Each request is one of these users', who are here by their numbers; `None`: anybody's.
    pub users: Option<Arc<BTreeMap<u32, User>>>,
    /// Only what lies beneath this directory may be asked for, for which that set answers; `None`: anything.
    pub beneath: Option<(Fid, SetId)>,
}

/// What a client does by itself, for no certain user: it tells nothing of a file and changes none. `Open` is how a client tells
/// a new primary what is held open: a file that is held stays when its last name goes.
fn is_nobodys(op: &Op) -> bool {
    matches!(
        op,
        Op::Open { .. }
            | Op::Show { .. }
            | Op::Release { .. }
            | Op::Fsync { .. }
            | Op::SyncFs
            | Op::StatFs
            | Op::HoldLocks { .. }
            | Op::DropLocks { .. }
    )
}

fn listed(users: &[KeyUser]) -> BTreeMap<u32, User> {
    let user = |u: &KeyUser| User { uid: u.uid, gid: u.gid, groups: Some(u.groups.clone().into()) };
    users.iter().map(|u| (u.uid, user(u))).collect()
}

impl Limits {
    /// Those of a key.
    pub fn of(key: &ClientKey) -> Limits {
        Limits {
            volume: key.volume,
            read_only: key.read_only,
            squash: key.squash.map(|to| User::of_one_group(to.uid, to.gid)),
            users: (!key.users.is_empty()).then(|| Arc::new(listed(&key.users))),
            beneath: key.subdir.as_ref().map(|subdir| (subdir.fid(), subdir.home)),
        }
    }

    /// Of a key that is none any more: no volume has this number.
    pub fn nothing() -> Limits {
        Limits { volume: VolumeId(0), read_only: true, squash: None, users: None, beneath: None }
    }

    /// Whether a session's request of a set of that volume is within them.
    ///
    /// # Errors
    /// What to answer.
    pub fn permit(&self, volume: VolumeId, session: SessionId, call: &Call) -> Result<(), Errno> {
        let op = &call.op;
        // What is done under another session's name would count as done for that one.
        if op.changes() && call.id.session != session {
            return Err(Errno::EPERM);
        }
        if volume != self.volume {
            Err(Errno::EACCES)
        } else if op.is_between_sets() {
            Err(Errno::EPERM)
        } else if self.read_only && op.changes() {
            Err(Errno::EROFS)
        } else {
            Ok(())
        }
    }

    /// The user whose permissions count for an operation, if it names this one (0: nobody); `None`: the client has checked
    /// them, or nobody's count.
    ///
    /// # Errors
    /// `EACCES`: the key is for others.
    pub fn user(&self, named: u32, op: &Op) -> Result<Option<User>, Errno> {
        let Some(users) = &self.users else { return Ok(self.squash.clone()) };
        match users.get(&named) {
            Some(user) => Ok(Some(user.clone())),
            None if named == 0 && is_nobodys(op) => Ok(None),
            None => Err(Errno::EACCES),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ids::{Epoch, OpId};

    /// Who is named has to be on the list, and has the groups that stand there.
    #[test]
    fn a_client_names_users_of_its_keys_list() {
        let of = |uid, groups: &[u32]| KeyUser { uid, gid: 100, groups: groups.to_vec(), name: None };
        let users = Some(Arc::new(listed(&[of(7, &[27]), of(8, &[])])));
        let limits = Limits { volume: VolumeId(5), read_only: false, squash: None, users, beneath: None };
        let fid = Fid::default();
        let (read, opens) = (Op::GetAttr { fid }, Op::Open { fid });
        let user = limits.user(7, &read).unwrap().unwrap();
        assert_eq!([7, 27, 100, 0].map(|group| user.is_in(group)), [false, true, true, false]);
        assert!(!limits.user(8, &read).unwrap().unwrap().is_in(27));
        for named in [0, 9, u32::MAX] {
            assert_eq!(limits.user(named, &read), Err(Errno::EACCES), "{named}");
        }
        assert_eq!(limits.user(9, &opens), Err(Errno::EACCES));
        // What the client does for nobody.
        let own = [&opens, &Op::Release { fid }, &Op::SyncFs, &Op::StatFs, &Op::DropLocks { term: 1 }];
        assert!(own.into_iter().all(|op| limits.user(0, op) == Ok(None)));
        let squash = Some(User::of_one_group(7, 8));
        let limits = Limits {
            volume: VolumeId(5),
            read_only: false,
            squash: squash.clone(),
            users: None,
            beneath: None,
        };
        assert_eq!([0, 9].map(|named| limits.user(named, &read)), [Ok(squash.clone()), Ok(squash)]);
    }

    #[test]
    fn a_client_asks_for_what_clients_ask_for_in_its_volume_alone() {
        let (own, other, fid) = (VolumeId(5), VolumeId(6), Fid::default());
        let [writes, reads] = [false, true].map(|read_only| Limits {
            volume: own,
            read_only,
            squash: None,
            users: None,
            beneath: None,
        });
        let (read, write) =
            (Op::GetAttr { fid }, Op::RemoveXattr { fid, name: wire::Name::new(b"user.a").unwrap() });
        let names_of_copies = wire::Name::new(wire::op::COPY_NAMES.as_bytes()).unwrap();
        for (limits, volume, op, answer) in [
            (&writes, own, &read, Ok(())),
            (&writes, own, &write, Ok(())),
            (&writes, other, &read, Err(Errno::EACCES)),
            (&reads, own, &read, Ok(())),
            (&reads, own, &write, Err(Errno::EROFS)),
            (&reads, other, &write, Err(Errno::EACCES)),
            // Who only reads may lock what he reads.
            (&reads, own, &Op::DropLocks { term: 1 }, Ok(())),
            // Nobody renames directories while the tree is locked.
            (&reads, own, &Op::LockTree { tx: OpId::default() }, Err(Errno::EPERM)),
            // An entry would lead to whatever the client names.
            (&writes, own, &Op::Arrive, Err(Errno::EPERM)),
            (&writes, own, &Op::EndTransaction { fid, tx: None, keep: false }, Err(Errno::EPERM)),
            // A copy that another set makes would get names that no entry has.
            (&writes, own, &Op::SetXattr { fid, name: names_of_copies, flags: 0 }, Err(Errno::EPERM)),
        ] {
            let call = |session| {
                let id = OpId { session, seq: 1 };
                Call { set: SetId(1), epoch: Epoch(1), id, finished: 0, op: op.clone() }
            };
            let (me, another) = (SessionId(1), SessionId(2));
            assert_eq!(limits.permit(volume, me, &call(me)), answer, "{limits:?} {op:?}");
            let under_another_name = if op.changes() { Err(Errno::EPERM) } else { answer };
            assert_eq!(limits.permit(volume, me, &call(another)), under_another_name, "{limits:?} {op:?}");
        }
    }
}

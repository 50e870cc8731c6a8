//! Who may become a server of the pool, take the place of one, or leave it: decided from the pool's state and what the
//! server in question says of itself.

use crate::{Server, State};
use ids::ServerId;
use thiserror::Error;

/// What a server says of itself when it is asked into a pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// Its identity, 32 hex digits.
    pub identity: String,
    /// The pool that it is in: one of its own, if nobody else has taken it in.
    pub pool: String,
    /// The servers of that pool.
    pub servers: u32,
    /// Its volumes.
    pub volumes: u32,
}

impl Candidate {
    /// It is added, unless it has a pool that would be lost.
    fn come_in(&self) -> Result<Admission, MembershipError> {
        if self.servers > 1 || self.volumes > 0 {
            return Err(MembershipError::OtherPool { servers: self.servers, volumes: self.volumes });
        }
        Ok(Admission::Add)
    }
}

/// What is to be done about a candidate that may come in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admission {
    /// It is a server of the pool already.
    Member(ServerId),
    /// It has this number, but was not told: the invitation got lost.
    Invite(ServerId),
    /// It gets a number first.
    Add,
}

/// Why a server does not come in or go.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[allow(missing_docs, reason = "the message beside each variant is its documentation")]
pub enum MembershipError {
    #[error(
        "the pool knows server {host} as another one, which lost its state folder or is gone: give this one its place with mortar \
         peer replace {host}"
    )]
    Another { host: String },
    #[error(
        "{host} is server {id} of the pool, at {known}: give a second server on one machine an address or a name of its own; if \
         server {id} is gone for good and this one takes its place, mortar peer replace {host} --by {address}"
    )]
    Namesake { host: String, id: ServerId, known: String, address: String },
    #[error(
        "it belongs to another pool (servers: {servers}, volumes: {volumes}): detach it there first, or start it with an \
         empty state folder"
    )]
    OtherPool { servers: u32, volumes: u32 },
    #[error("the server at {address} is server {id} of this pool: one with an empty state folder is needed")]
    IsMember { address: String, id: ServerId },
    #[error("{address} is to be server {id} already")]
    IsInvited { address: String, id: ServerId },
    #[error("this server is it: ask another server of the pool (--server HOST)")]
    Itself,
    #[error("it is the only server of the pool")]
    Last,
    #[error("the invitation is for another server")]
    NotInvited,
    #[error("it has a pool of its own")]
    HasPool,
}

impl State {
    /// May the candidate, found at `address` and to be called `host`, become a server of the pool?
    ///
    /// # Errors
    /// Another one has that name or address, or it would lose a pool.
    pub fn admit(
        &self,
        host: &str,
        address: &str,
        candidate: &Candidate,
    ) -> Result<Admission, MembershipError> {
        let named = self.server_by_host(host).or_else(|| self.server_by_host(address));
        if let Some(named) = named.filter(|s| s.identity != candidate.identity) {
            let host = ids::bracketed(&named.host);
            if named.address == address {
                return Err(MembershipError::Another { host });
            }
            let (id, known, address) = (named.id, named.address.clone(), address.to_owned());
            return Err(MembershipError::Namesake { host, id, known, address });
        }
        match self.server_by_identity(&candidate.identity) {
            Some(known) if candidate.pool == self.pool => Ok(Admission::Member(known.id)),
            Some(known) => Ok(Admission::Invite(known.id)),
            None => candidate.come_in(),
        }
    }

    /// May the candidate take the place of server `old`?
    ///
    /// # Errors
    /// It is a server of this pool, or would lose one of its own.
    pub fn admit_in_place_of(
        &self,
        old: ServerId,
        address: &str,
        candidate: &Candidate,
    ) -> Result<Admission, MembershipError> {
        let address = || address.to_owned();
        match self.server_by_identity(&candidate.identity) {
            Some(known) if candidate.pool == self.pool => {
                Err(MembershipError::IsMember { address: address(), id: known.id })
            }
            Some(known) if known.id == old => Ok(Admission::Invite(old)),
            Some(known) => Err(MembershipError::IsInvited { address: address(), id: known.id }),
            None => candidate.come_in(),
        }
    }

    /// May server `me` be asked to let `server` go?
    ///
    /// # Errors
    /// It is the last one, or the one that is asked.
    pub fn check_detach(&self, server: &Server, me: ServerId) -> Result<(), MembershipError> {
        match self.servers.len() {
            0 | 1 => Err(MembershipError::Last),
            _ if server.id == me => Err(MembershipError::Itself),
            _ => Ok(()),
        }
    }

    /// May the server of this identity, which knows this pool, follow an invitation into another one?
    ///
    /// # Errors
    /// The invitation is for another one, or a pool would be lost.
    pub fn check_join(&self, identity: &str, invited: &str) -> Result<(), MembershipError> {
        if identity != invited {
            return Err(MembershipError::NotInvited);
        }
        if self.servers.len() > 1 || !self.volumes.is_empty() {
            return Err(MembershipError::HasPool);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hex;
    use crate::testing::{pool, server};

    /// A server alone in a pool of its own.
    fn fresh(n: u64) -> Candidate {
        Candidate { identity: server(n).identity, pool: hex::encode(99), servers: 1, volumes: 0 }
    }

    #[test]
    fn a_fresh_server_is_added_and_one_that_missed_its_invitation_gets_another() {
        let state = pool(2);
        assert_eq!(state.admit("h3", "127.0.0.3:24240", &fresh(3)), Ok(Admission::Add));
        assert_eq!(state.admit("h2", "127.0.0.2:24240", &fresh(2)), Ok(Admission::Invite(ServerId(2))));
        let member = Candidate { pool: state.pool.clone(), servers: 2, ..fresh(2) };
        assert_eq!(state.admit("h2", "127.0.0.2:24240", &member), Ok(Admission::Member(ServerId(2))));
        // By another name than before.
        assert_eq!(state.admit("alias", "127.0.0.9:24240", &member), Ok(Admission::Member(ServerId(2))));
    }

    #[test]
    fn a_name_or_an_address_belongs_to_one_server() {
        let state = pool(2);
        let another = MembershipError::Another { host: "h2".into() };
        assert_eq!(state.admit("h3", "127.0.0.2:24240", &fresh(3)), Err(another));
        // The one of that name may be alive.
        let namesake = state.admit("h2", "127.0.0.2:25000", &fresh(3)).unwrap_err().to_string();
        let begin =
            "h2 is server 2 of the pool, at 127.0.0.2:24240: give a second server on one machine an address";
        assert!(namesake.starts_with(begin), "{namesake}");
        assert!(namesake.ends_with("mortar peer replace h2 --by 127.0.0.2:25000"), "{namesake}");
    }

    #[test]
    fn nobody_loses_a_pool_by_coming_in() {
        let state = pool(2);
        for (servers, volumes) in [(2, 0), (1, 1)] {
            let candidate = Candidate { servers, volumes, ..fresh(3) };
            let refused = Err(MembershipError::OtherPool { servers, volumes });
            assert_eq!(state.admit("h3", "127.0.0.3:24240", &candidate), refused);
            assert_eq!(state.admit_in_place_of(ServerId(2), "127.0.0.3:24240", &candidate), refused);
        }
        assert_eq!(pool(2).check_join("a", "a"), Err(MembershipError::HasPool));
        assert_eq!(pool(1).check_join("a", "a"), Ok(()));
        assert_eq!(pool(1).check_join("a", "b"), Err(MembershipError::NotInvited));
    }

    #[test]
    fn only_a_stranger_takes_a_place() {
        let (state, at) = (pool(3), "127.0.0.9:24240");
        assert_eq!(state.admit_in_place_of(ServerId(2), at, &fresh(4)), Ok(Admission::Add));
        assert_eq!(state.admit_in_place_of(ServerId(2), at, &fresh(2)), Ok(Admission::Invite(ServerId(2))));
        let invited = MembershipError::IsInvited { address: at.into(), id: ServerId(3) };
        assert_eq!(state.admit_in_place_of(ServerId(2), at, &fresh(3)), Err(invited));
        let member = Candidate { pool: state.pool.clone(), servers: 3, ..fresh(3) };
        let is_member = MembershipError::IsMember { address: at.into(), id: ServerId(3) };
        assert_eq!(state.admit_in_place_of(ServerId(2), at, &member), Err(is_member));
    }

    #[test]
    fn neither_the_last_server_leaves_nor_the_one_that_is_asked() {
        let state = pool(2);
        let second = &state.servers[&ServerId(2)];
        assert_eq!(state.check_detach(second, ServerId(1)), Ok(()));
        assert_eq!(state.check_detach(second, ServerId(2)), Err(MembershipError::Itself));
        let one = pool(1);
        assert_eq!(one.check_detach(&one.servers[&ServerId(1)], ServerId(1)), Err(MembershipError::Last));
    }
}

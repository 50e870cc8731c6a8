//! Who is connected, to whom this server has connected, and what each may use of it: connections, and memory for requests and
//! their answers.
//!
//! Always true: each open connection, whoever made it, is here with whoever speaks on it, from before it is looked at whether
//! he may stay. So whoever loses his right is ended.
//!
//! An account stands for an address (for a network of IPv6, of which one machine has as many addresses as it likes), and for a
//! server apart from the clients of its machine: questions of servers to each other must not wait for those. Who uses up an
//! account waits, or is not let in; nobody else notices. All accounts but those of servers share a memory, too.
//! Those without a key have accounts of their own, small ones, and few places in all: there the oldest gives way.

use crate::attempts::network_of;
use crate::limits::{
    FRAME_WAIT, GUEST_CONNECTIONS, GUEST_MEMORY, HANDSHAKES, HANDSHAKES_OF_ALL, KEYLESS_CONNECTIONS,
    KEYLESS_MEMORY, KEYLESS_OF_ALL, LEAST_MEMORY_OF_ALL, MEMORY_FOR_NEWCOMERS,
};
use crate::shared::lock;
use crate::speaker::Speaker;
use ids::{KeyId, ServerId};
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;
use transport::{Account as Memory, Bounds, Common};

/// Whose account it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Whose {
    /// Clients and administrators at an address, or a server there.
    Known(IpAddr, ServerId),
    /// Those at an address who have shown no key to a pool that has keys.
    Keyless(IpAddr),
}

impl Whose {
    fn connections(self) -> usize {
        match self {
            Whose::Known(..) => GUEST_CONNECTIONS,
            Whose::Keyless(_) => KEYLESS_CONNECTIONS,
        }
    }

    /// A server's memory is there in any case: there are few of them, and sets of clients wait for what they say.
    fn memory(self, common: &Arc<Common>) -> Memory {
        match self {
            Whose::Known(_, ServerId(0)) => Memory::new(GUEST_MEMORY, Some(common.clone())),
            Whose::Known(..) => Memory::new(GUEST_MEMORY, None),
            Whose::Keyless(_) => Memory::new(KEYLESS_MEMORY, Some(common.clone())),
        }
    }
}

#[derive(Debug)]
struct Account {
    connections: usize,
    memory: Memory,
}

/// Somebody who is connected, and how the connection is told to end.
#[derive(Debug)]
struct Present {
    who: Speaker,
    /// The server that he is, or says that he is; or 0.
    server: ServerId,
    end: Arc<Notify>,
    /// He came, and counts in an account.
    came: bool,
}

#[derive(Debug, Default)]
struct All {
    accounts: HashMap<Whose, Account>,
    /// Connections whose handshake has not ended, by address.
    knocking: HashMap<IpAddr, usize>,
    /// The same, the oldest first, unless they were told to end.
    knocks: BTreeMap<u64, Arc<Notify>>,
    /// Those without a key who were let in, the oldest first, unless they were told to end.
    keyless: BTreeMap<u64, Arc<Notify>>,
    /// Connections of all together, those whose handshake has not ended too.
    connections: usize,
    /// Those that were let in, and those whom this server has connected to.
    present: HashMap<u64, Present>,
    next: u64,
}

/// All that are connected.
#[derive(Debug)]
pub(crate) struct Guests {
    all: Mutex<All>,
    /// Connections of all together.
    most: usize,
    /// Memory of all but servers together.
    memory: Arc<Common>,
}

/// A connection whose handshake is under way; it counts while this lives.
#[derive(Debug)]
pub(crate) struct Knock {
    guests: Arc<Guests>,
    from: IpAddr,
    number: u64,
    end: Arc<Notify>,
}

/// A connection that was let in; it counts while this lives.
#[derive(Debug)]
pub(crate) struct Guest {
    place: Place,
    whose: Whose,
    memory: Memory,
}

/// A connection that this server made, to another one.
#[derive(Debug)]
pub(crate) struct Visit(Place);

/// An open connection among all others.
#[derive(Debug)]
struct Place {
    guests: Arc<Guests>,
    number: u64,
    end: Arc<Notify>,
}

/// Connections of all clients and servers together: half of the descriptors that this process may have.
pub(crate) fn most_connections() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    usize::try_from(limit.unwrap_or(u64::MAX) / 2).unwrap_or(usize::MAX)
}

/// Bytes of requests and answers of all clients together, unless somebody says otherwise: a quarter of the machine's memory, or
/// of what this process is allowed of it.
pub(crate) fn memory_of_all() -> usize {
    let all = rustix::system::sysinfo();
    let machine = all.totalram.saturating_mul(all.mem_unit.into());
    let group = std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let allowed = group.and_then(|text| text.trim().parse().ok()).unwrap_or(machine);
    usize::try_from(machine.min(allowed) / 4).unwrap_or(usize::MAX).max(LEAST_MEMORY_OF_ALL)
}

/// Makes room for one more among `most`.
fn give_way(all: &mut BTreeMap<u64, Arc<Notify>>, most: usize) {
    if all.len() >= most
        && let Some((_, oldest)) = all.pop_first()
    {
        oldest.notify_one();
    }
}

impl Guests {
    /// Room for so many connections of all together, and so many bytes.
    pub(crate) fn new(most: usize, memory: usize) -> Arc<Guests> {
        Arc::new(Guests { all: Mutex::default(), most, memory: Common::new(memory, MEMORY_FOR_NEWCOMERS) })
    }

    /// Somebody connects; `None`: too many do, or are.
    pub(crate) fn knock(self: &Arc<Self>, from: IpAddr) -> Option<Knock> {
        let from = network_of(from);
        let mut all = lock(&self.all);
        let own = all.knocking.get(&from).copied().unwrap_or_default();
        if own >= HANDSHAKES || all.connections >= self.most {
            return None;
        }
        *all.knocking.entry(from).or_default() += 1;
        all.connections += 1;
        let (number, end) = (all.next, Arc::<Notify>::default());
        all.next += 1;
        give_way(&mut all.knocks, HANDSHAKES_OF_ALL);
        all.knocks.insert(number, end.clone());
        Some(Knock { guests: self.clone(), from, number, end })
    }

    /// Lets somebody in whose handshake is over.
    ///
    /// # Errors
    /// Words for him: he has too many connections.
    pub(crate) fn enter(
        self: &Arc<Self>,
        from: IpAddr,
        server: ServerId,
        who: &Speaker,
    ) -> Result<Guest, String> {
        let mut all = lock(&self.all);
        let all = &mut *all;
        let keyless = *who == Speaker::Nobody;
        let network = network_of(from);
        let whose = if keyless { Whose::Keyless(network) } else { Whose::Known(network, server) };
        let most = whose.connections();
        let account = all
            .accounts
            .entry(whose)
            .or_insert_with(|| Account { connections: 0, memory: whose.memory(&self.memory) });
        if account.connections >= most {
            let from = ids::bracketed(&from.to_string());
            return Err(match whose {
                Whose::Known(..) => {
                    format!("{from} has {most} connections to this server already: close some, or unmount")
                }
                Whose::Keyless(_) => {
                    format!(
                        "{from} has {most} connections without a key to this server already: wait for their end"
                    )
                }
            });
        }
        account.connections += 1;
        let memory = account.memory.clone();
        all.connections += 1;
        let place = self.place(all, (who, server), true);
        if keyless {
            give_way(&mut all.keyless, KEYLESS_OF_ALL);
            all.keyless.insert(place.number, place.end.clone());
        }
        Ok(Guest { place, whose, memory })
    }

    /// This server has connected to that one.
    pub(crate) fn visit(self: &Arc<Self>, server: ServerId, who: &Speaker) -> Visit {
        Visit(self.place(&mut lock(&self.all), (who, server), false))
    }

    fn place(self: &Arc<Self>, all: &mut All, (who, server): (&Speaker, ServerId), came: bool) -> Place {
        let (number, end) = (all.next, Arc::<Notify>::default());
        all.next += 1;
        all.present.insert(number, Present { who: who.clone(), server, end: end.clone(), came });
        Place { guests: self.clone(), number, end }
    }

    /// Ends the connections of those who may not stay: whoever they are, as that server.
    pub(crate) fn review(&self, may_stay: impl Fn(&Speaker, ServerId) -> bool) {
        for present in lock(&self.all).present.values() {
            if !may_stay(&present.who, present.server) {
                present.end.notify_one();
            }
        }
    }
}

/// How many are connected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Crowd {
    pub(crate) connections: usize,
    pub(crate) handshakes: usize,
    pub(crate) addresses: usize,
}

impl Guests {
    /// How many are connected now.
    pub(crate) fn crowd(&self) -> Crowd {
        let all = lock(&self.all);
        let handshakes = all.knocking.values().sum();
        Crowd { connections: all.connections, handshakes, addresses: all.accounts.len() }
    }

    /// How many connections came with each key.
    pub(crate) fn by_key(&self) -> HashMap<KeyId, usize> {
        let mut counts = HashMap::new();
        let all = lock(&self.all);
        for key in all.present.values().filter(|p| p.came).filter_map(|present| present.who.key()) {
            *counts.entry(key).or_default() += 1;
        }
        counts
    }
}

impl Knock {
    /// Returns when the handshake has to give way to others.
    pub(crate) async fn ended(&self) {
        self.end.notified().await;
    }
}

impl Visit {
    /// Returns when the connection has to end.
    pub(crate) async fn ended(&self) {
        self.0.end.notified().await;
    }
}

impl Guest {
    /// Returns when the connection has to end.
    pub(crate) async fn ended(&self) {
        self.place.end.notified().await;
    }

    /// What may come on the connection: bodies and payloads of so many bytes.
    pub(crate) fn bounds(&self, body: u32, payload: u32) -> Bounds {
        let (body, payload) = (body as usize, payload as usize);
        Bounds { body, payload, wait: FRAME_WAIT, memory: self.memory.clone() }
    }
}

impl Drop for Knock {
    fn drop(&mut self) {
        let mut all = lock(&self.guests.all);
        all.connections -= 1;
        all.knocks.remove(&self.number);
        if let Some(n) = all.knocking.get_mut(&self.from) {
            *n -= 1;
            if *n == 0 {
                all.knocking.remove(&self.from);
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        lock(&self.guests.all).present.remove(&self.number);
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let mut all = lock(&self.place.guests.all);
        all.connections -= 1;
        all.keyless.remove(&self.place.number);
        if let Some(account) = all.accounts.get_mut(&self.whose) {
            account.connections -= 1;
            if account.connections == 0 {
                all.accounts.remove(&self.whose);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOBODY: ServerId = ServerId(0);
    const MEMORY: usize = 1 << 30;

    fn address(n: u8) -> IpAddr {
        [10, 0, 0, n].into()
    }

    #[test]
    fn one_address_cannot_take_the_connections_of_others() {
        let guests = Guests::new(100_000, MEMORY);
        let all: Vec<Guest> = (0..GUEST_CONNECTIONS)
            .map(|_| guests.enter(address(1), NOBODY, &Speaker::Anybody).unwrap())
            .collect();
        let refused = guests.enter(address(1), NOBODY, &Speaker::Anybody).unwrap_err();
        assert!(refused.starts_with("10.0.0.1 has 2048 connections"), "{refused}");
        guests.enter(address(1), ServerId(3), &Speaker::Anybody).expect("a server on the same machine");
        guests.enter(address(2), NOBODY, &Speaker::Anybody).expect("another client");
        drop(all);
        guests.enter(address(1), NOBODY, &Speaker::Anybody).expect("room again");
        assert!(lock(&guests.all).accounts.is_empty(), "nothing is kept of those who left");
    }

    #[tokio::test]
    async fn who_may_not_stay_is_ended() {
        let guests = Guests::new(10, MEMORY);
        let (root, anybody) = (
            guests.enter(address(1), NOBODY, &Speaker::Root).unwrap(),
            guests.enter(address(1), NOBODY, &Speaker::Anybody).unwrap(),
        );
        guests.review(|who, _| *who == Speaker::Root);
        anybody.ended().await;
        let soon = std::time::Duration::from_millis(20);
        assert!(tokio::time::timeout(soon, root.ended()).await.is_err(), "he stays");
        drop((root, anybody));
        assert!(lock(&guests.all).present.is_empty());
    }

    /// Also one that this server made itself.
    #[tokio::test]
    async fn a_connection_to_a_server_that_may_not_stay_is_ended() {
        let guests = Guests::new(1, MEMORY);
        let visits = [3, 4].map(|server| guests.visit(ServerId(server), &Speaker::Anybody));
        assert_eq!(guests.crowd().connections, 0, "it takes nobody's room");
        guests.review(|_, server| server == ServerId(4));
        visits[0].ended().await;
        let soon = std::time::Duration::from_millis(20);
        assert!(tokio::time::timeout(soon, visits[1].ended()).await.is_err(), "it stays");
        drop(visits);
        assert!(lock(&guests.all).present.is_empty());
    }

    #[test]
    fn unfinished_handshakes_are_counted_by_address() {
        let guests = Guests::new(100_000, MEMORY);
        let all: Vec<Knock> = (0..HANDSHAKES).map(|_| guests.knock(address(1)).unwrap()).collect();
        assert!(guests.knock(address(1)).is_none());
        assert!(guests.knock(address(2)).is_some());
        drop(all);
        assert!(guests.knock(address(1)).is_some());
        assert!(lock(&guests.all).knocking.is_empty());
    }

    /// An attacker with many addresses holds up nobody who has a key, and others without one only as long as he is quick.
    #[tokio::test]
    async fn those_without_a_key_have_few_places_and_the_oldest_gives_way() {
        let guests = Guests::new(100_000, MEMORY);
        let enter = |n| guests.enter(address(n), NOBODY, &Speaker::Nobody);
        let first: Vec<Guest> = (0..KEYLESS_CONNECTIONS).map(|_| enter(1).unwrap()).collect();
        let refused = enter(1).unwrap_err();
        assert!(refused.contains("16 connections without a key"), "{refused}");
        guests.enter(address(1), NOBODY, &Speaker::Root).expect("somebody with a key at the same address");
        let of_all = u8::try_from(KEYLESS_OF_ALL).unwrap();
        let others: Vec<Guest> = (16..of_all).map(|n| enter(n).unwrap()).collect();
        let one_more = enter(200).unwrap();
        first[0].ended().await;
        let soon = std::time::Duration::from_millis(20);
        for stays in [&first[1], &others[0], &one_more] {
            assert!(tokio::time::timeout(soon, stays.ended()).await.is_err());
        }
        assert_eq!(one_more.bounds(1, 1).memory.left(), KEYLESS_MEMORY);
        drop((first, others, one_more));
        assert!(lock(&guests.all).keyless.is_empty());
    }

    #[tokio::test]
    async fn the_oldest_of_too_many_handshakes_gives_way() {
        let guests = Guests::new(100_000, MEMORY);
        let from = |n: usize| IpAddr::from([10, 0, (n / 250) as u8, (n % 250) as u8]);
        let all: Vec<Knock> = (0..=HANDSHAKES_OF_ALL).map(|n| guests.knock(from(n)).unwrap()).collect();
        all[0].ended().await;
        let soon = std::time::Duration::from_millis(20);
        assert!(tokio::time::timeout(soon, all[1].ended()).await.is_err(), "it stays");
        drop(all);
        assert!(lock(&guests.all).knocks.is_empty());
    }

    #[test]
    fn all_together_have_a_bound() {
        let guests = Guests::new(2, MEMORY);
        let first = guests.enter(address(1), NOBODY, &Speaker::Anybody).unwrap();
        let _second = guests.knock(address(2)).unwrap();
        assert!(guests.knock(address(3)).is_none());
        drop(first);
        assert!(guests.knock(address(3)).is_some());
    }

    #[tokio::test]
    async fn connections_of_one_address_share_its_memory() {
        let guests = Guests::new(10, MEMORY);
        let (one, two) = (
            guests.enter(address(1), NOBODY, &Speaker::Anybody).unwrap(),
            guests.enter(address(1), NOBODY, &Speaker::Anybody).unwrap(),
        );
        let _held = one.bounds(1, 1).memory.reserve(100).await.unwrap();
        assert_eq!(two.bounds(1, 1).memory.left(), GUEST_MEMORY - 100);
        let other = guests.enter(address(2), NOBODY, &Speaker::Anybody).unwrap();
        assert_eq!(other.bounds(1, 1).memory.left(), GUEST_MEMORY);
    }

    /// One machine has as many addresses as it likes.
    #[test]
    fn a_network_of_ipv6_is_one_account() {
        let guests = Guests::new(100_000, MEMORY);
        let from = |n: u128| IpAddr::from(std::net::Ipv6Addr::from_bits((0x2001_0db8 << 96) + n));
        let all: Vec<Guest> = (0..GUEST_CONNECTIONS)
            .map(|n| guests.enter(from(n as u128), NOBODY, &Speaker::Anybody).unwrap())
            .collect();
        assert!(guests.enter(from(1 << 50), NOBODY, &Speaker::Anybody).is_err());
        guests.enter(from(1 << 64), NOBODY, &Speaker::Anybody).expect("another network");
        let knocks: Vec<Knock> = (0..HANDSHAKES).map(|n| guests.knock(from(n as u128)).unwrap()).collect();
        assert!(guests.knock(from(1 << 50)).is_none());
        drop((all, knocks));
        assert!(lock(&guests.all).knocking.is_empty());
    }

    /// Clients of many addresses use up what is for all, and neither a server nor who comes then waits for them.
    #[tokio::test]
    async fn memory_of_all_together_has_a_bound() {
        let guests = Guests::new(100, 3 * GUEST_MEMORY + MEMORY_FOR_NEWCOMERS);
        let soon = std::time::Duration::from_millis(20);
        let reserve = async |guest: &Guest, bytes| {
            let memory = guest.bounds(1, 1).memory;
            tokio::time::timeout(soon, memory.reserve(bytes)).await.ok()?.ok()
        };
        let enter = |n, server| guests.enter(address(n), server, &Speaker::Anybody).unwrap();
        let mut held = Vec::new();
        for n in 1..=3 {
            held.push(reserve(&enter(n, NOBODY), GUEST_MEMORY).await.unwrap());
        }
        let late = enter(4, NOBODY);
        held.push(reserve(&late, 5 << 20).await.expect("he has nothing yet"));
        assert!(reserve(&late, 1 << 20).await.is_none(), "there is no more");
        reserve(&enter(1, ServerId(2)), GUEST_MEMORY).await.expect("a server");
        drop(held);
        reserve(&late, GUEST_MEMORY).await.expect("room again");
    }
}

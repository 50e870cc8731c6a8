//! How often somebody without a key may try to come in, before anything of what he says is looked at; and how often the log
//! tells of those who are refused.
//!
//! Each address has a bucket, and all together have one. Those whose own is empty take nothing out of the common one.
//! Memory is bounded by that: an address is remembered for as long as its bucket is not full again.

use crate::limits::{ATTEMPTS, ATTEMPTS_OF_ALL, REFUSALS_TOLD, REFUSALS_TOLD_OF_ALL};
use crate::shared::lock;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Mutex;
use std::time::Duration;

/// Tries of one after the other: since when the bucket would be full if it had been filled without a pause.
type Filled = Duration;

#[derive(Debug, Default)]
struct Buckets {
    of_all: Filled,
    of_each: HashMap<IpAddr, Filled>,
}

/// So many at once, and one more after each pause.
type Rate = (u32, Duration);

/// All tries.
#[derive(Debug)]
pub(crate) struct Attempts {
    each: Rate,
    all: Rate,
    buckets: Mutex<Buckets>,
}

/// Whom an address stands for: those of a network of IPv6, of which one machine may have as many as it likes, or itself.
pub(crate) fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) if v6.is_loopback() => address,
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX)).into(),
        v4 => v4,
    }
}

/// The bucket with one try less.
fn taken(filled: Filled, (burst, pause): Rate, now: Duration) -> Result<Filled, Duration> {
    let after = filled.max(now) + pause;
    match after.checked_sub(now + pause * burst) {
        None | Some(Duration::ZERO) => Ok(after),
        Some(wait) => Err(wait),
    }
}

impl Attempts {
    /// Of those who want to join.
    pub(crate) fn to_join() -> Attempts {
        Attempts { each: ATTEMPTS, all: ATTEMPTS_OF_ALL, buckets: Mutex::default() }
    }

    /// Of whatever is refused: how often a line tells of it.
    pub(crate) fn refused() -> Attempts {
        Attempts { each: REFUSALS_TOLD, all: REFUSALS_TOLD_OF_ALL, buckets: Mutex::default() }
    }

    /// Somebody at that address tries, at `now` on a clock that goes on.
    ///
    /// # Errors
    /// How long he has to wait.
    pub(crate) fn begin(&self, from: IpAddr, now: Duration) -> Result<(), Duration> {
        let from = network_of(from);
        let mut buckets = lock(&self.buckets);
        buckets.of_each.retain(|_, filled| *filled > now);
        let own = taken(buckets.of_each.get(&from).copied().unwrap_or_default(), self.each, now)?;
        buckets.of_all = taken(buckets.of_all, self.all, now)?;
        buckets.of_each.insert(from, own);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Duration = Duration::from_secs(1_000_000);

    fn address(n: u32) -> IpAddr {
        std::net::Ipv4Addr::from_bits(0x0a00_0000 + n).into()
    }

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn one_address_has_its_tries_and_then_one_after_each_pause() {
        let attempts = Attempts::to_join();
        let many = |at: Duration| (0..100).filter(|_| attempts.begin(address(1), at).is_ok()).count();
        assert_eq!(many(START), 10);
        assert_eq!(attempts.begin(address(1), START), Err(seconds(2)));
        assert_eq!(attempts.begin(address(2), START), Ok(()), "somebody else");
        assert_eq!(many(START + seconds(1)), 0);
        assert_eq!(many(START + seconds(2)), 1);
        assert_eq!(many(START + seconds(6)), 2);
        assert_eq!(many(START + seconds(1000)), 10);
    }

    #[test]
    fn all_together_have_a_rate_and_are_forgotten() {
        let attempts = Attempts::to_join();
        let many = |at: Duration| (0..1000).filter(|n| attempts.begin(address(*n), at).is_ok()).count();
        assert_eq!(many(START), 50);
        assert_eq!(many(START + seconds(1)), 5);
        let most = (2..60).map(|s| {
            many(START + seconds(s));
            lock(&attempts.buckets).of_each.len()
        });
        assert!(most.max().unwrap() <= 55);
        // Who has no tries left takes none of others.
        let at = START + seconds(1000);
        assert!((0..1000).filter(|_| attempts.begin(address(1), at).is_ok()).count() == 10);
        assert_eq!((2..1000).filter(|n| attempts.begin(address(*n), at).is_ok()).count(), 40);
    }

    /// Somebody who fills the log does not hide others.
    #[test]
    fn the_log_tells_of_each_who_is_refused() {
        let told = Attempts::refused();
        let many =
            |from: u32, at: Duration| (0..100).filter(|_| told.begin(address(from), at).is_ok()).count();
        assert_eq!(many(1, START), 10);
        assert_eq!(many(2, START), 10);
        let hour = (1..=3600).map(|s| many(1, START + seconds(s))).sum::<usize>();
        assert_eq!(hour, 120);
    }

    #[test]
    fn a_network_of_ipv6_is_one_and_addresses_of_ipv4_are_each_their_own() {
        let of = |text: &str| network_of(text.parse().unwrap()).to_string();
        assert_eq!(of("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
        assert_eq!(of("::ffff:10.0.0.1"), "10.0.0.1");
        assert_eq!(of("10.0.0.1"), "10.0.0.1");
        assert_eq!(of("::1"), "::1", "it is not that of local sockets");
    }
}

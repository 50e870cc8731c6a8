//! Which addresses may use a volume: `auth.allow` and `auth.reject`.

use crate::hosts::host;
use crate::{State, Volume};
use std::net::IpAddr;

/// One word of a list: `*`, an address, or a network like `10.0.0.0/8` or `10.*`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rule {
    All,
    Net { bits: u128, prefix: u32 },
}

/// The rules of a volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Access {
    allow: Vec<Rule>,
    reject: Vec<Rule>,
}

/// IPv4 addresses live in the upper end of the mapped range, so that one comparison serves both kinds.
fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().to_bits(),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

impl Rule {
    fn parse(word: &str) -> Option<Rule> {
        if word == "*" {
            return Some(Rule::All);
        }
        if let Some(start) = word.strip_suffix(".*") {
            return Rule::beginning_with(start.trim_end_matches(".*"));
        }
        let (address, length) = word.split_once('/').map_or((word, None), |(a, l)| (a, Some(l)));
        let address: IpAddr = address.parse().ok()?;
        let (width, offset) = if address.is_ipv4() { (32, 96) } else { (128, 0) };
        let length: u32 = length.map_or(Some(width), |l| l.parse().ok().filter(|l| *l <= width))?;
        Some(Rule::Net { bits: bits(address), prefix: length + offset })
    }

    /// IPv4 addresses by their first one to three numbers.
    fn beginning_with(start: &str) -> Option<Rule> {
        let mut octets = [0; 4];
        let mut known = 0;
        for (octet, text) in octets.iter_mut().take(3).zip(start.split('.')) {
            *octet = text.parse().ok().filter(|n: &u8| n.to_string() == text)?;
            known += 8;
        }
        let whole = usize::try_from(known / 8).is_ok_and(|n| start.split('.').count() == n);
        whole.then(|| Rule::Net { bits: bits(IpAddr::from(octets)), prefix: 96 + known })
    }

    fn covers(self, address: u128) -> bool {
        match self {
            Rule::All => true,
            Rule::Net { bits, prefix } => {
                let differing = (bits ^ address).leading_zeros();
                differing >= prefix
            }
        }
    }
}

/// Whether a word of a list is understood: a rule, or the name of a host.
pub(crate) fn is_rule(word: &str) -> bool {
    Rule::parse(word).is_some() || host(word).is_some()
}

/// What a word of a list says; a host stands for the addresses that are known of it.
fn rules_of(state: &State, word: &str) -> Vec<Rule> {
    if let Some(rule) = Rule::parse(word) {
        return vec![rule];
    }
    let known = host(word).and_then(|host| state.hosts.get(&host)).into_iter().flatten();
    known.map(|address| Rule::Net { bits: bits(*address), prefix: 128 }).collect()
}

impl Access {
    /// The rules that a volume's options give. A word that cannot be read, which an older version took, and a host of which no
    /// address is known, allow nobody and reject nobody.
    pub fn of(state: &State, volume: &Volume) -> Access {
        let options = volume.typed_options();
        let rules = |words: &[String]| words.iter().flat_map(|word| rules_of(state, word)).collect();
        Access { allow: rules(&options.auth_allow), reject: rules(&options.auth_reject) }
    }

    /// Whether an address may use the volume. Rejection is stronger.
    pub fn permits(&self, address: IpAddr) -> bool {
        let address = bits(address);
        self.allow.iter().any(|r| r.covers(address)) && !self.reject.iter().any(|r| r.covers(address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permits(allow: &str, reject: &str, address: &str) -> bool {
        let rules = |t: &str| t.split(',').filter_map(Rule::parse).collect();
        Access { allow: rules(allow), reject: rules(reject) }.permits(address.parse().unwrap())
    }

    #[test]
    fn networks_addresses_and_the_stronger_no() {
        assert!(permits("*", "", "10.1.2.3") && permits("*", "", "fe80::1"));
        assert!(permits("10.0.0.0/8", "", "10.1.2.3") && !permits("10.0.0.0/8", "", "11.1.2.3"));
        assert!(!permits("10.0.0.0/8", "10.1.0.0/16", "10.1.2.3") && permits("*", "10.1.2.4", "10.1.2.3"));
        assert!(permits("fd00::/8", "", "fd12::1") && !permits("fd00::/8", "", "10.1.2.3"));
        assert!(!permits("", "", "10.1.2.3"));
        assert!(permits("10.1.*", "", "10.1.2.3") && !permits("10.1.*", "", "10.2.2.3"));
        assert!(permits("127.*.*.*", "", "127.0.0.1") && !permits("127.*.*.*", "", "128.0.0.1"));
        for none in
            ["10.0.0.0/33", "localhost", "10.*.1", "1.2.3.4.*", "300.*", ".*", "+1.*", "fd00::*", "10.*/8"]
        {
            assert_eq!(Rule::parse(none), None, "{none}");
        }
    }
}

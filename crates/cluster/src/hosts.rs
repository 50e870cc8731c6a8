//! Hosts that `auth.allow` and `auth.reject` name, and the addresses that their names stood for when they were last looked up.
//!
//! The addresses are part of the pool's state, so that all servers let the same clients in, also just after a start, and where
//! one of them cannot look a name up. Whoever proposes a command looks names up; nothing here does.

use crate::{Command, HOSTS_BY_NAME, OptionChange, Outcome, Refusal, State, limits, options};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Addresses by the names of their hosts, which are in small letters.
pub type Hosts = BTreeMap<String, BTreeSet<IpAddr>>;

/// The host that a word of a list names: labels of letters, digits, '-' and '_', the last of which begins with a letter, so
/// that an address gone wrong is no host.
pub(crate) fn host(word: &str) -> Option<String> {
    let is_label = |label: &str| {
        let inner = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
        (1..=63).contains(&label.len())
            && label.bytes().all(inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let last = word.rsplit('.').next().unwrap_or_default();
    let named = last.starts_with(|c: char| c.is_ascii_alphabetic());
    let whole = word.len() <= limits::ADDRESS && word.split('.').all(is_label);
    (named && whole).then(|| word.to_ascii_lowercase())
}

/// The hosts that a value of this option names.
fn named_by<'a>(key: &str, value: &'a str) -> impl Iterator<Item = String> + 'a {
    let lists_clients = options::lists_clients(key);
    value.split(',').filter(move |_| lists_clients).filter_map(|word| host(word.trim()))
}

impl Command {
    /// The hosts that it names for the options of volumes.
    pub fn named_hosts(&self) -> BTreeSet<String> {
        let in_all = |options: &BTreeMap<String, String>| {
            options.iter().flat_map(|(key, value)| named_by(key, value)).collect::<Vec<_>>()
        };
        match self {
            Command::SetOptions { changes } => changes
                .iter()
                .flat_map(|OptionChange { key, value, .. }| named_by(key, value.as_deref().unwrap_or("")))
                .collect(),
            Command::ApplyConfig { volumes, .. } => volumes.iter().flat_map(|v| in_all(&v.options)).collect(),
            _ => BTreeSet::new(),
        }
    }
}

impl State {
    /// The hosts that options of volumes name, also of deleted volumes: those may come back.
    pub fn named_hosts(&self) -> BTreeSet<String> {
        let retired = self.retired.values().map(|retired| &retired.volume);
        let options = self.volumes.values().chain(retired).flat_map(|volume| &volume.options);
        options.flat_map(|(key, value)| named_by(key, value)).collect()
    }

    /// What is to be noted of these addresses that were found: all that are others than before, and those that no option names
    /// yet; nothing of hosts that were not found. `None`: the state has them, and no others.
    pub fn hosts_to_note(&self, found: &Hosts) -> Option<Hosts> {
        let named = self.named_hosts();
        let differs = |host: &str, at: &BTreeSet<IpAddr>| self.hosts.get(host) != Some(at);
        let found = found.iter().filter(|(_, at)| !at.is_empty());
        let new: Hosts = found
            .filter(|(host, at)| differs(host, at) || !named.contains(*host))
            .map(|(host, at)| (host.clone(), at.clone()))
            .collect();
        let surplus = self.hosts.keys().any(|host| !named.contains(host) && !new.contains_key(host));
        (surplus || new.iter().any(|(host, at)| differs(host, at))).then_some(new)
    }

    /// The addresses of hosts are these from now on, as far as there is room. Hosts that neither this names nor an option are
    /// forgotten.
    pub(crate) fn note_hosts(&mut self, found: &Hosts) -> Outcome {
        let named = self.named_hosts();
        self.hosts.retain(|host, _| named.contains(host));
        for (name, addresses) in found {
            let room = self.hosts.len() < limits::HOSTS || self.hosts.contains_key(name);
            if room && host(name).as_ref() == Some(name) {
                let first = addresses.iter().copied().take(limits::HOST_ADDRESSES);
                self.hosts.insert(name.clone(), first.collect());
            }
        }
        Outcome::Done
    }

    /// Refuses a value that names hosts before all servers understand them, or hosts whose addresses are not known.
    pub(crate) fn check_hosts(&self, volume: &str, key: &str, value: &str) -> Result<(), Refusal> {
        let mut named = named_by(key, value);
        let expected = if self.level < HOSTS_BY_NAME {
            named.next().map(|_| {
                "addresses and networks until all servers have this version (mortar peer status): those of before know no \
                 hosts"
                    .to_string()
            })
        } else {
            named.find(|host| !self.hosts.contains_key(host)).map(|host| {
                format!(
                    "hosts that have addresses, {} at most in the pool: none is known of '{host}'",
                    limits::HOSTS
                )
            })
        };
        let (volume, key, value) = (volume.to_string(), key.to_string(), value.to_string());
        expected.map_or(Ok(()), |expected| Err(Refusal::OptionValue { volume, key, value, expected }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Access;
    use crate::testing::pool;

    fn at(addresses: &[&str]) -> BTreeSet<IpAddr> {
        addresses.iter().map(|a| a.parse().unwrap()).collect()
    }

    fn set(key: &str, value: Option<&str>) -> Command {
        let (key, value) = (key.to_string(), value.map(str::to_string));
        Command::SetOptions { changes: vec![OptionChange { volume: "v".to_string(), key, value }] }
    }

    fn note(hosts: &[(&str, &[&str])]) -> Command {
        Command::NoteHosts { hosts: hosts.iter().map(|(h, a)| (h.to_string(), at(a))).collect() }
    }

    /// Three servers of the newest program, and volume v.
    fn with_volume() -> State {
        let mut state = pool(3);
        state.apply(&Command::RaiseLevel { level: HOSTS_BY_NAME }).unwrap();
        crate::testing::create(&mut state, "v", 1, 0, 1);
        state
    }

    fn permits(state: &State, address: &str) -> bool {
        Access::of(state, state.volume("v").unwrap()).permits(address.parse().unwrap())
    }

    #[test]
    fn what_is_a_host() {
        for good in ["localhost", "nas7.example.org", "a", "1st.example", "x-1.b2", "_k._tcp.x"] {
            assert_eq!(host(good), Some(good.to_string()), "{good}");
        }
        assert_eq!(host("NAS7.Example.ORG"), Some("nas7.example.org".to_string()));
        let (label, name) = ("x".repeat(64), "x.".repeat(150));
        for bad in [
            "",
            ".",
            "a.",
            ".a",
            "a..b",
            "-a",
            "a-",
            "1",
            "10.0.0.300",
            "1.2.3",
            "10.*",
            "a/24",
            "fd00::zz",
            "a b",
            "a\n",
            "\u{e4}",
            "x.0x7f",
            &label,
            &name,
        ] {
            assert_eq!(host(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_host_counts_by_the_addresses_that_were_noted() {
        let mut state = with_volume();
        let allow = set("auth.allow", Some("Desk.example, 10.0.0.0/8"));
        assert_eq!(allow.named_hosts(), BTreeSet::from(["desk.example".to_string()]));
        let why = state.apply(&allow).unwrap_err().to_string();
        assert!(why.contains("desk.example") && why.contains("auth.allow"), "{why}");

        state.apply(&note(&[("desk.example", &["192.0.2.7", "fd00::7"])])).unwrap();
        state.apply(&allow).unwrap();
        assert!(permits(&state, "192.0.2.7") && permits(&state, "fd00::7") && permits(&state, "10.1.1.1"));
        assert!(!permits(&state, "192.0.2.8"));

        state.apply(&note(&[("desk.example", &["192.0.2.8"])])).unwrap();
        assert!(permits(&state, "192.0.2.8") && !permits(&state, "192.0.2.7"));
        state.apply(&set("auth.reject", Some("desk.example"))).unwrap();
        assert!(!permits(&state, "192.0.2.8") && permits(&state, "10.1.1.1"));
    }

    #[test]
    fn what_nobody_names_is_forgotten_with_the_next_note() {
        let mut state = with_volume();
        state.apply(&note(&[("a", &["10.0.0.1"]), ("b", &["10.0.0.2"])])).unwrap();
        state.apply(&set("auth.reject", Some("a,b"))).unwrap();
        let found = Hosts::from([("a".to_string(), at(&["10.0.0.1"])), ("b".to_string(), at(&[]))]);
        assert_eq!(state.hosts_to_note(&found), None, "b was not found, so it is where it was");
        assert_eq!(state.hosts_to_note(&Hosts::new()), None);

        let moved = Hosts::from([("a".to_string(), at(&["10.0.0.9"])), ("b".to_string(), at(&["10.0.0.2"]))]);
        let new = state.hosts_to_note(&moved).unwrap();
        assert_eq!(new, Hosts::from([("a".to_string(), at(&["10.0.0.9"]))]));

        state.apply(&set("auth.reject", Some("a"))).unwrap();
        assert_eq!(state.hosts_to_note(&Hosts::new()), Some(Hosts::new()));
        state.apply(&note(&[])).unwrap();
        assert_eq!(state.hosts.keys().collect::<Vec<_>>(), ["a"]);
    }

    /// A deleted volume that comes back lets the same clients in at once.
    #[test]
    fn hosts_of_deleted_volumes_are_kept() {
        let mut state = with_volume();
        state.apply(&note(&[("a", &["10.0.0.1"])])).unwrap();
        state.apply(&set("auth.allow", Some("a"))).unwrap();
        state.apply(&Command::RetireVolume { name: "v".to_string() }).unwrap();
        assert_eq!(state.hosts_to_note(&Hosts::new()), None);
        state.apply(&note(&[])).unwrap();
        assert!(state.hosts.contains_key("a"));
        let volume = *state.retired.keys().next().unwrap();
        let present = state.retired[&volume].sets.iter().flat_map(|s| &s.bricks).map(|b| b.id).collect();
        state.apply(&Command::ImportVolume { volume, present }).unwrap();
        assert!(permits(&state, "10.0.0.1") && !permits(&state, "10.0.0.2"));
        state.apply(&Command::DeleteVolume { name: "v".to_string() }).unwrap();
        assert_eq!(state.hosts_to_note(&Hosts::new()), Some(Hosts::new()), "it is gone for good");
    }

    /// An option that is about to name a host again needs it.
    #[test]
    fn what_a_command_will_name_is_kept() {
        let mut state = with_volume();
        state.apply(&note(&[("a", &["10.0.0.1"]), ("b", &["10.0.0.2"])])).unwrap();
        let a = Hosts::from([("a".to_string(), at(&["10.0.0.1"]))]);
        assert_eq!(state.hosts_to_note(&a), Some(a.clone()), "b goes");
        state.apply(&Command::NoteHosts { hosts: a.clone() }).unwrap();
        assert_eq!((&state.hosts, state.hosts_to_note(&a)), (&a, None));
        state.apply(&set("auth.reject", Some("A"))).unwrap();
    }

    #[test]
    fn notes_are_bounded_and_not_for_older_programs() {
        let mut state = with_volume();
        let many: Hosts = (0..=limits::HOSTS).map(|n| (format!("h{n}"), at(&["10.0.0.1"]))).collect();
        state.apply(&Command::NoteHosts { hosts: many }).unwrap();
        assert_eq!(state.hosts.len(), limits::HOSTS);
        let wide = (0..=u8::MAX).map(|n| IpAddr::from([10, 0, 0, n])).collect();
        let hosts = Hosts::from([("h".to_string(), wide), ("A".to_string(), at(&["10.0.0.1"]))]);
        state.apply(&Command::NoteHosts { hosts }).unwrap();
        assert_eq!(state.hosts.keys().collect::<Vec<_>>(), ["h"]);
        assert_eq!(state.hosts["h"].len(), limits::HOST_ADDRESSES);

        let mut old = pool(3);
        crate::testing::create(&mut old, "v", 1, 0, 1);
        assert!(old.level < HOSTS_BY_NAME);
        let why = old.apply(&set("auth.allow", Some("a"))).unwrap_err().to_string();
        assert!(why.contains("until all servers have this version"), "{why}");
    }
}

//! The table itself. Keys are never renamed: users have them in scripts.

use super::value::{self, Value, show_duration, show_size};
use ids::SetId;
use std::collections::BTreeMap;
use std::time::Duration;

/// One option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OptionInfo {
    /// What users write.
    pub key: &'static str,
    /// What it may be.
    pub kind: Kind,
    /// When nobody sets it.
    pub default: &'static str,
    /// One line: what it does.
    pub help: &'static str,
}

/// A type of values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// on or off.
    Bool,
    /// A whole number, bounds included.
    Int {
        /// Least.
        min: u64,
        /// Most.
        max: u64,
    },
    /// Bytes with an optional unit of 1024: 64MB.
    Size {
        /// Least bytes.
        min: u64,
        /// Most bytes.
        max: u64,
    },
    /// Likewise, in whole blocks of 4096.
    Blocks {
        /// Least bytes.
        min: u64,
        /// Most bytes.
        max: u64,
    },
    /// A length of time with an optional unit: 500ms, 3s, 2m, 1h; a bare number is seconds.
    Duration {
        /// Least milliseconds.
        min_ms: u64,
        /// Most milliseconds.
        max_ms: u64,
    },
    /// 0% to 100%.
    Percent,
    /// One of these words.
    Enum(&'static [&'static str]),
    /// Addresses, networks and hosts between commas; see [`crate::access`].
    Clients,
    /// Ids of sets between commas.
    Sets,
}

impl Kind {
    /// What a user should write, for refusals.
    pub fn expected(&self) -> String {
        let time = |ms: u64| show_duration(std::time::Duration::from_millis(ms));
        match self {
            Kind::Bool => "on or off".to_string(),
            Kind::Int { min, max } => format!("a number from {min} to {max}"),
            Kind::Size { min, max } => format!("a size from {} to {}", show_size(*min), show_size(*max)),
            Kind::Blocks { min, max } => {
                format!("a size from {} to {}, a multiple of 4KB", show_size(*min), show_size(*max))
            }
            Kind::Duration { min_ms, max_ms } => {
                format!("a duration from {} to {}", time(*min_ms), time(*max_ms))
            }
            Kind::Percent => "a percentage from 0% to 100%".to_string(),
            Kind::Sets => "ids of sets between commas (mortar volume info VOL -o wide)".to_string(),
            Kind::Enum(words) => format!("one of {}", words.join(", ")),
            Kind::Clients => {
                "addresses, networks and names of hosts between commas: 10.0.0.1, 10.0.0.0/8, 10.1.*, fd00::/8, \
                 desk.example.org, or * for all"
                    .to_string()
            }
        }
    }
}

const fn secs(min: u64, max: u64) -> Kind {
    Kind::Duration { min_ms: min * 1000, max_ms: max * 1000 }
}

const MB: u64 = 1 << 20;

/// A type that an option of the table can have.
pub(super) trait Typed: Sized {
    /// The value as this type; `None` if it is of another one.
    fn of(value: Value) -> Option<Self>;
}

impl Typed for bool {
    fn of(value: Value) -> Option<bool> {
        if let Value::Bool(yes) = value { Some(yes) } else { None }
    }
}

/// Numbers and bytes.
impl Typed for u64 {
    fn of(value: Value) -> Option<u64> {
        match value {
            Value::Int(n) | Value::Size(n) => Some(n),
            _ => None,
        }
    }
}

/// Numbers of sets.
impl Typed for Vec<SetId> {
    fn of(value: Value) -> Option<Vec<SetId>> {
        let Value::List(words) = value else { return None };
        words.iter().map(|w| w.parse().ok().map(SetId)).collect()
    }
}

/// Percentages.
impl Typed for u8 {
    fn of(value: Value) -> Option<u8> {
        if let Value::Percent(n) = value { Some(n) } else { None }
    }
}

impl Typed for Duration {
    fn of(value: Value) -> Option<Duration> {
        if let Value::Duration(time) = value { Some(time) } else { None }
    }
}

impl Typed for Vec<String> {
    fn of(value: Value) -> Option<Vec<String>> {
        if let Value::List(words) = value { Some(words) } else { None }
    }
}

/// Who must be in sync before a set takes changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QuorumType {
    /// A majority of three and more bricks, any one of fewer.
    Auto,
    /// As many as `cluster.quorum-count` says.
    Fixed,
    /// Any one.
    None,
}

impl QuorumType {
    const WORDS: &'static [&'static str] = &["auto", "fixed", "none"];
}

impl Typed for QuorumType {
    fn of(value: Value) -> Option<QuorumType> {
        let Value::Text(word) = value else { return None };
        match word.as_str() {
            "auto" => Some(QuorumType::Auto),
            "fixed" => Some(QuorumType::Fixed),
            "none" => Some(QuorumType::None),
            _ => None,
        }
    }
}

impl std::fmt::Display for QuorumType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            QuorumType::Auto => "auto",
            QuorumType::Fixed => "fixed",
            QuorumType::None => "none",
        })
    }
}

/// Whether files move from fuller sets to emptier ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rebalance {
    /// They stay.
    Off,
    /// They move.
    On,
    /// They stay for now; what has moved is counted on.
    Paused,
}

impl Rebalance {
    const WORDS: &'static [&'static str] = &["off", "on", "paused"];
}

impl Typed for Rebalance {
    fn of(value: Value) -> Option<Rebalance> {
        let Value::Text(word) = value else { return None };
        match word.as_str() {
            "off" => Some(Rebalance::Off),
            "on" => Some(Rebalance::On),
            "paused" => Some(Rebalance::Paused),
            _ => None,
        }
    }
}

/// How eagerly files move while clients are active.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RebalanceThrottle {
    /// One file at a time, and after each piece a rest three times as long as it took.
    Gentle,
    /// A few files at a time, and a rest as long as each piece took.
    Normal,
    /// No rest.
    Fast,
}

impl RebalanceThrottle {
    const WORDS: &'static [&'static str] = &["gentle", "normal", "fast"];
}

impl Typed for RebalanceThrottle {
    fn of(value: Value) -> Option<RebalanceThrottle> {
        let Value::Text(word) = value else { return None };
        match word.as_str() {
            "gentle" => Some(RebalanceThrottle::Gentle),
            "normal" => Some(RebalanceThrottle::Normal),
            "fast" => Some(RebalanceThrottle::Fast),
            _ => None,
        }
    }
}

/// One table makes both: what users may set, and what the code reads.
macro_rules! options {
    ($($field:ident: $type:ty = $key:literal, $kind:expr, $default:literal, $help:literal;)*) => {
        /// Every option, in the order of its key.
        pub const TABLE: &[OptionInfo] =
            &[$(OptionInfo { key: $key, kind: $kind, default: $default, help: $help }),*];

        /// The options of a volume by their types: what was set, else the default.
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub struct VolumeOptions {
            $(
                #[doc = concat!("`", $key, "`: ", $help, "; ", $default, " unless set.")]
                pub $field: $type,
            )*
        }

        impl VolumeOptions {
            /// Reads what was set. A text that no longer parses, as after a change of bounds, reads as the default.
            pub fn of(set: &BTreeMap<String, String>) -> VolumeOptions {
                VolumeOptions { $($field: read(set, $key)),* }
            }
        }
    };
}

/// One option; its type is that of its field.
pub(super) fn read<T: Typed>(set: &BTreeMap<String, String>, key: &str) -> T {
    let own = set.get(key).and_then(|text| super::parse(key, text).ok()).and_then(T::of);
    let default = || super::info(key).and_then(|o| value::parse(&o.kind, o.default)).and_then(T::of);
    // A test reads every default of the table.
    own.or_else(default).expect("the default of an option is a value of its type")
}

options! {
    auth_allow: Vec<String> = "auth.allow", Kind::Clients, "*",
        "clients that may mount, by address or host: *, 10.0.0.1, 10.0.0.0/8, 10.1.*, desk.example.org";
    auth_reject: Vec<String> = "auth.reject", Kind::Clients, "",
        "clients that may not mount; stronger than auth.allow";
    client_attr_timeout: Duration = "client.attr-timeout", secs(0, 3600), "0s",
        "how long clients trust attributes without a lease";
    client_entry_timeout: Duration = "client.entry-timeout", secs(0, 3600), "0s",
        "how long clients trust names without a lease";
    drain: Vec<SetId> = "cluster.drain", Kind::Sets, "",
        "sets that files and directories leave and that get no new ones, by their ids: see mortar volume remove-brick";
    large_file_size: u64 = "cluster.large-file-size", Kind::Size { min: 0, max: 1 << 60 }, "0B",
        "a file that grows to this size as it is made lives on any set, by room; 0 for on its directory's; new \
         volumes begin with 1MB";
    min_free_disk: u8 = "cluster.min-free-disk", Kind::Percent, "1%",
        "a set with less room takes no more data, files and directories";
    quorum_count: u64 = "cluster.quorum-count", Kind::Int { min: 1, max: 8 }, "1",
        "in-sync bricks needed for writes when fixed";
    quorum_type: QuorumType = "cluster.quorum-type", Kind::Enum(QuorumType::WORDS), "auto",
        "who must be in sync for writes: auto a majority, fixed quorum-count bricks, none any one";
    rebalance: Rebalance = "cluster.rebalance", Kind::Enum(Rebalance::WORDS), "off",
        "files and directories of sets that are fuller than others move to those: off, on, or paused";
    rebalance_throttle: RebalanceThrottle = "cluster.rebalance-throttle",
        Kind::Enum(RebalanceThrottle::WORDS), "gentle",
        "how much of a set's time moving files takes while clients are active";
    stripe_count: u64 = "cluster.stripe-count", Kind::Int { min: 1, max: 64 }, "1",
        "sets that share the data of a file from the size on at which it counts as large; 1 for one";
    stripe_size: u64 = "cluster.stripe-size", Kind::Blocks { min: 64 << 10, max: 1 << 30 }, "256KB",
        "bytes of such a file that lie on one set before the next one follows";
    slow_operation: Duration = "diagnostics.slow-operation", Kind::Duration { min_ms: 0, max_ms: 60_000 }, "1s",
        "requests that take longer are told in the server's log; 0s for none";
    read_only: bool = "features.read-only", Kind::Bool, "off",
        "refuse every change";
    ping_timeout: Duration = "network.ping-timeout", secs(1, 60), "3s",
        "how long a silent server keeps its place in its sets";
    fd_limit: u64 = "storage.fd-limit", Kind::Int { min: 64, max: 1_048_576 }, "256",
        "files a brick keeps open at most";
    journal_size: u64 = "storage.journal-size", Kind::Size { min: MB, max: 1 << 40 }, "256MB",
        "journal kept for bricks that return";
    sync_interval: Duration = "storage.sync-interval", secs(1, 600), "5s",
        "how often bricks write everything to disk unasked";
}

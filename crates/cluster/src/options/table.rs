//! The table itself. Keys are never renamed: users have them in scripts.

use super::value::{show_duration, show_size};

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
    /// Words between commas.
    List,
}

impl Kind {
    /// What a user should write, for refusals.
    pub fn expected(&self) -> String {
        let time = |ms: u64| show_duration(std::time::Duration::from_millis(ms));
        match self {
            Kind::Bool => "on or off".to_string(),
            Kind::Int { min, max } => format!("a number from {min} to {max}"),
            Kind::Size { min, max } => format!("a size from {} to {}", show_size(*min), show_size(*max)),
            Kind::Duration { min_ms, max_ms } => {
                format!("a duration from {} to {}", time(*min_ms), time(*max_ms))
            }
            Kind::Percent => "a percentage from 0% to 100%".to_string(),
            Kind::Enum(words) => format!("one of {}", words.join(", ")),
            Kind::List => "words between commas, without spaces in them".to_string(),
        }
    }
}

const fn secs(min: u64, max: u64) -> Kind {
    Kind::Duration { min_ms: min * 1000, max_ms: max * 1000 }
}

const fn option(key: &'static str, kind: Kind, default: &'static str, help: &'static str) -> OptionInfo {
    OptionInfo { key, kind, default, help }
}

const MB: u64 = 1 << 20;

/// Every option, in the order of its key.
pub const TABLE: &[OptionInfo] = &[
    option("auth.allow", Kind::List, "*", "addresses that may mount: *, 10.0.0.1, 10.0.0.0/8"),
    option("auth.reject", Kind::List, "", "addresses that may not mount; stronger than auth.allow"),
    option("client.attr-timeout", secs(0, 3600), "0s", "how long clients trust attributes without a lease"),
    option("client.entry-timeout", secs(0, 3600), "0s", "how long clients trust names without a lease"),
    option(
        "cluster.min-free-disk",
        Kind::Percent,
        "1%",
        "a set with less room takes no more data, files and directories",
    ),
    option(
        "cluster.quorum-count",
        Kind::Int { min: 1, max: 8 },
        "1",
        "in-sync bricks needed for writes when fixed",
    ),
    option(
        "cluster.quorum-type",
        Kind::Enum(&["auto", "fixed", "none"]),
        "auto",
        "who must be in sync for writes: auto a majority, fixed quorum-count bricks, none any one",
    ),
    option("features.read-only", Kind::Bool, "off", "refuse every change"),
    option("network.ping-timeout", secs(1, 60), "3s", "how long a silent server keeps its place in its sets"),
    option(
        "storage.fd-limit",
        Kind::Int { min: 64, max: 1_048_576 },
        "256",
        "files a brick keeps open at most",
    ),
    option(
        "storage.journal-size",
        Kind::Size { min: MB, max: 1 << 40 },
        "256MB",
        "journal kept for bricks that return",
    ),
    option("storage.sync-interval", secs(1, 600), "5s", "how often bricks write everything to disk unasked"),
];

//! How a client behaves.

use std::time::Duration;

use crate::key::Key;

/// How a client behaves. [`Options::default`] is a hard mount.
#[derive(Clone, Debug)]
pub struct Options {
    /// A server that accepts but does not answer for so long is given up.
    pub network_timeout: Duration,
    /// Calls that take longer end with `ETIMEDOUT`; `None`: they go on for ever.
    pub soft: Option<Duration>,
    /// How long changes wait for a set without write quorum before they end with `EROFS`.
    pub quorum_wait: Duration,
    /// Connections without use for so long are closed.
    pub idle: Duration,
    /// Releases of files are gathered for so long: files opened again meanwhile need no request.
    pub release_delay: Duration,
    /// Changes are refused with `EROFS` by this client itself.
    pub read_only: bool,
    /// The key to show; `None`: the pool has no keys, and connections are not encrypted.
    pub key: Option<Key>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            network_timeout: Duration::from_secs(4),
            soft: None,
            quorum_wait: Duration::ZERO,
            idle: Duration::from_secs(60),
            release_delay: Duration::from_millis(10),
            read_only: false,
            key: None,
        }
    }
}

/// Whether a volume option's text means "on".
pub(crate) fn is_on(text: &[u8]) -> bool {
    [&b"on"[..], b"true", b"yes", b"enable", b"1"].iter().any(|on| text.eq_ignore_ascii_case(on))
}

/// A number with or without a unit: `2`, `0.5`, `2s`, `500ms`, `1m`, `1h`; seconds where there is none.
pub fn duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    let number: f64 = digits.trim_end().parse().ok()?;
    Duration::try_from_secs_f64(number * unit).ok()
}

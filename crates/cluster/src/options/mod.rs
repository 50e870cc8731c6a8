//! The options of volumes: one table of what exists, of which type, with which default, and what it is for.
//!
//! The table checks and documents what users set, and makes [`VolumeOptions`], the struct that the code reads.
//! Always true: every default passes its own check and has its field's type, so reading cannot fail.

mod table;
mod value;

pub use table::{Kind, OptionInfo, QuorumType, Rebalance, RebalanceThrottle, TABLE, VolumeOptions};
pub use value::{Value, parse_size, show_duration, show_size};

use crate::{Refusal, Volume, access, limits};

/// The free-form keys: anything below it is allowed and means nothing to Mortar.
pub const USER_PREFIX: &str = "user.";

/// Why a value is no value of an option.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Bad {
    /// There is no such option.
    Unknown,
    /// The value does not fit; this would ("a duration from 1s to 60s").
    Value {
        /// What would fit.
        expected: String,
    },
}

/// One line of `volume get`.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct OptionLine {
    /// The option.
    pub key: String,
    /// Its value in this volume.
    pub value: String,
    /// What it is when nobody set it.
    pub default: String,
    /// Whether somebody set it.
    pub is_set: bool,
    /// What it does.
    pub help: String,
}

/// The table's line for a key.
pub fn info(key: &str) -> Option<&'static OptionInfo> {
    TABLE.iter().find(|o| o.key == key)
}

/// Whether an option's values are lists of clients.
pub(crate) fn lists_clients(key: &str) -> bool {
    info(key).is_some_and(|info| matches!(info.kind, Kind::Clients))
}

/// Whether a key may be set.
pub fn exists(key: &str) -> bool {
    info(key).is_some() || is_user_key(key)
}

fn is_user_key(key: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
    key.strip_prefix(USER_PREFIX).is_some_and(|rest| !rest.is_empty() && rest.bytes().all(plain))
        && key.len() <= limits::OPTION_KEY
}

/// The typed value of a text, or why it is none.
pub fn parse(key: &str, text: &str) -> Result<Value, Bad> {
    let too_long =
        || Bad::Value { expected: format!("at most {} bytes without line breaks", limits::OPTION_VALUE) };
    if !exists(key) {
        return Err(Bad::Unknown);
    }
    if text.len() > limits::OPTION_VALUE || text.chars().any(char::is_control) {
        return Err(too_long());
    }
    match info(key) {
        None => Ok(Value::Text(text.trim().to_string())),
        Some(info) => {
            let bad = || Bad::Value { expected: info.kind.expected() };
            value::parse(&info.kind, text.trim()).ok_or_else(bad)
        }
    }
}

/// As [`parse`], for a value that somebody sets: what older versions took and did not understand is refused.
pub fn check(key: &str, text: &str) -> Result<Value, Bad> {
    let value = parse(key, text)?;
    match (info(key), &value) {
        (Some(OptionInfo { kind: kind @ Kind::Clients, .. }), Value::List(words))
            if !words.iter().all(|word| access::is_rule(word)) =>
        {
            Err(Bad::Value { expected: kind.expected() })
        }
        _ => Ok(value),
    }
}

/// The refusal of an unknown key, with the nearest known one if any is near.
pub fn unknown(key: &str) -> Refusal {
    let near = TABLE.iter().map(|o| (distance(key, o.key), o.key)).min();
    let bound = key.len() / 3 + 1;
    let nearest = near.filter(|(d, _)| *d <= bound).map(|(_, key)| key.to_string());
    // A right name under the wrong prefix is meant more often than its distance tells.
    let tail = |k: &str| k.rsplit('.').next().unwrap_or_default().to_string();
    let by_tail = || TABLE.iter().find(|o| tail(o.key) == tail(key)).map(|o| o.key.to_string());
    Refusal::UnknownOption { key: key.to_string(), nearest: by_tail().or(nearest) }
}

/// Levenshtein's distance, on bytes.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate().take(limits::OPTION_KEY) {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let change = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

impl Volume {
    /// The options by their types.
    pub fn typed_options(&self) -> VolumeOptions {
        VolumeOptions::of(&self.options)
    }

    /// How long a silent server keeps its place in its sets. It is asked for many times a second: the others are not read for it.
    pub(crate) fn ping_timeout(&self) -> std::time::Duration {
        table::read(&self.options, "network.ping-timeout")
    }

    /// Every option with its value, then the user's own.
    pub fn option_lines(&self) -> Vec<OptionLine> {
        let known = TABLE.iter().map(|o| OptionLine {
            key: o.key.to_string(),
            value: self.options.get(o.key).cloned().unwrap_or_else(|| o.default.to_string()),
            default: o.default.to_string(),
            is_set: self.options.contains_key(o.key),
            help: o.help.to_string(),
        });
        let own = self.options.iter().filter(|(k, _)| info(k).is_none()).map(|(key, value)| OptionLine {
            key: key.clone(),
            value: value.clone(),
            default: String::new(),
            is_set: true,
            help: "free-form, for the user".to_string(),
        });
        known.chain(own).collect()
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;

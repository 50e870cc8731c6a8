//! Values of options: from text, and back.

use std::{fmt, time::Duration};

use super::Kind;

/// A value of an option.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    /// on, off.
    Bool(bool),
    /// A number.
    Int(u64),
    /// Bytes.
    Size(u64),
    /// A length of time.
    Duration(Duration),
    /// 0 to 100.
    Percent(u8),
    /// A word of a closed list, or free text.
    Text(String),
    /// Words between commas.
    List(Vec<String>),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Bool(yes) => f.pad(if *yes { "on" } else { "off" }),
            Value::Int(n) => write!(f, "{n}"),
            Value::Size(n) => f.pad(&show_size(*n)),
            Value::Duration(d) => f.pad(&show_duration(*d)),
            Value::Percent(n) => write!(f, "{n}%"),
            Value::Text(text) => f.pad(text),
            Value::List(list) => f.pad(&list.join(",")),
        }
    }
}

const SIZES: [(&str, u64); 5] =
    [("TB", 1 << 40), ("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10), ("B", 1)];

/// Bytes in the largest unit (of 1024) that divides them: 64MB.
pub fn show_size(bytes: u64) -> String {
    let unit = SIZES.iter().find(|(_, n)| bytes >= *n && bytes.is_multiple_of(*n));
    match unit {
        Some((name, n)) => format!("{}{name}", bytes / n),
        None => format!("{bytes}B"),
    }
}

/// A duration in the largest unit that divides it into two or more (but never needless milliseconds): 3s, 60s, 2m.
pub fn show_duration(d: Duration) -> String {
    let ms = d.as_millis();
    match ms {
        0 => "0s".to_string(),
        _ if ms >= 7_200_000 && ms.is_multiple_of(3_600_000) => format!("{}h", ms / 3_600_000),
        _ if ms >= 120_000 && ms.is_multiple_of(60_000) => format!("{}m", ms / 60_000),
        _ if ms.is_multiple_of(1000) => format!("{}s", ms / 1000),
        _ => format!("{ms}ms"),
    }
}

pub(super) fn parse(kind: &Kind, text: &str) -> Option<Value> {
    match kind {
        Kind::Bool => parse_bool(text).map(Value::Bool),
        Kind::Int { min, max } => {
            let n = parse_digits(text)?;
            (*min..=*max).contains(&n).then_some(Value::Int(n))
        }
        Kind::Size { min, max } => {
            let n = parse_size(text)?;
            (*min..=*max).contains(&n).then_some(Value::Size(n))
        }
        Kind::Blocks { min, max } => {
            let n = parse_size(text)?;
            ((*min..=*max).contains(&n) && n.is_multiple_of(4096)).then_some(Value::Size(n))
        }
        Kind::Duration { min_ms, max_ms } => {
            let ms = parse_ms(text)?;
            (*min_ms..=*max_ms).contains(&ms).then_some(Value::Duration(Duration::from_millis(ms)))
        }
        Kind::Percent => {
            let n = parse_digits(text.strip_suffix('%').unwrap_or(text).trim_end())?;
            u8::try_from(n).ok().filter(|n| *n <= 100).map(Value::Percent)
        }
        Kind::Enum(words) => words.iter().find(|w| **w == text).map(|w| Value::Text(w.to_string())),
        Kind::Clients => parse_list(text).map(Value::List),
        Kind::Sets => {
            let number = |w: &String| w.parse::<u32>().is_ok_and(|n| n.to_string() == *w);
            parse_list(text).filter(|words| words.iter().all(number)).map(Value::List)
        }
    }
}

fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "on" | "yes" | "true" | "1" | "enable" => Some(true),
        "off" | "no" | "false" | "0" | "disable" => Some(false),
        _ => None,
    }
}

fn parse_digits(text: &str) -> Option<u64> {
    let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if plain { text.parse().ok() } else { None }
}

/// Bytes, of a number with a unit or without one, as `64MiB`.
pub fn parse_size(text: &str) -> Option<u64> {
    let upper = text.to_ascii_uppercase().replace("IB", "B");
    let digits = upper.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &upper[digits.len()..] {
        "" => 1,
        unit => SIZES.iter().find(|(name, _)| *name == unit || name.trim_end_matches('B') == unit)?.1,
    };
    parse_digits(digits.trim_end())?.checked_mul(unit)
}

fn parse_ms(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "ms" => 1,
        "" | "s" => 1000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    parse_digits(digits.trim_end())?.checked_mul(unit)
}

fn parse_list(text: &str) -> Option<Vec<String>> {
    let words: Vec<String> =
        text.split(',').map(|w| w.trim().to_string()).filter(|w| !w.is_empty()).collect();
    let sound = words.iter().all(|w| w.bytes().all(|b| b.is_ascii_graphic()));
    sound.then_some(words)
}

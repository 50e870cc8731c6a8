//! How long keys and tokens are good, as people write it.

/// Seconds of `90`, `90s`, `30m`, `24h` or `7d`.
///
/// # Errors
/// It is written in another way.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text.get(digits.len()..) {
        Some("" | "s") => 1,
        Some("m") => 60,
        Some("h") => 3600,
        Some("d") => 86_400,
        _ => 0,
    };
    let seconds = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(unit)).filter(|s| *s > 0);
    // A certificate cannot name a later time than the year 9999.
    seconds
        .filter(|s| *s <= 100 * 365 * 86_400)
        .ok_or_else(|| "write a number with s, m, h or d, of at most 100 years".to_owned())
}

/// The same, or at once: `0s`.
///
/// # Errors
/// It is written in another way.
pub(crate) fn parse_or_now(text: &str) -> Result<u64, String> {
    if matches!(text, "0" | "0s") { Ok(0) } else { parse(text) }
}

#[cfg(test)]
mod tests {
    use super::{parse, parse_or_now};

    #[test]
    fn times() {
        for (text, seconds) in [("90", 90), ("90s", 90), ("30m", 1800), ("24h", 86_400), ("7d", 604_800)] {
            assert_eq!(parse(text), Ok(seconds));
        }
        for bad in ["", "h", "0", "0d", "1w", "1.5h", "-1h", "1 h", "99999999999999d", "40000d"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        assert_eq!([parse_or_now("0s"), parse_or_now("0"), parse_or_now("1h")], [Ok(0), Ok(0), Ok(3600)]);
        assert!(parse_or_now("0d").is_err() && parse_or_now("").is_err());
    }
}

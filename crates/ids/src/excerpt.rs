//! Words of users as errors repeat them.

use alloc::string::String;

/// Characters of a word that are repeated.
const SHOWN: usize = 60;

/// The beginning of a text for a person who wrote it, or who has to look at what somebody wrote: short enough for a line, and
/// without control characters.
pub fn excerpt(text: &str) -> String {
    let mut shown = String::new();
    for c in text.chars().take(SHOWN) {
        if c.is_control() { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    if text.chars().nth(SHOWN).is_some() {
        shown.push_str("...");
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_word_is_cut_and_a_short_one_is_not() {
        assert_eq!(excerpt("soon é"), "soon é");
        assert_eq!(excerpt(&"é".repeat(SHOWN)), "é".repeat(SHOWN));
        assert_eq!(excerpt(&"é".repeat(100_000)).chars().count(), SHOWN + 3);
        assert_eq!(excerpt("a\x1b[2J\n\u{9b}"), "a\\u{1b}[2J\\n\\u{9b}");
    }
}

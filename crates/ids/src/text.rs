//! Text of others where a terminal or a person reads it: names of files and volumes, words of users, what a server or a client
//! says; and hosts as people write them.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use core::fmt::{self, Write};

/// Characters of a word that are repeated.
const SHOWN: usize = 60;

/// Passes text on with its control characters (C0, DEL, C1; line breaks too) shown as what they are: no terminal obeys them, and
/// nobody writes a line of his own into a log.
#[derive(Debug)]
pub struct Visible<W>(pub W);

impl<W: Write> Write for Visible<W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some((at, c)) = rest.char_indices().find(|(_, c)| c.is_control()) {
            self.0.write_str(rest.get(..at).unwrap_or_default())?;
            write!(self.0, "{}", c.escape_default())?;
            rest = rest.get(at + c.len_utf8()..).unwrap_or_default();
        }
        self.0.write_str(rest)
    }
}

/// The text that way.
pub fn visible(text: &str) -> String {
    let mut shown = Visible(String::with_capacity(text.len()));
    // A string takes everything.
    let _done = shown.write_str(text);
    shown.0
}

/// The beginning of a text for a person who wrote it, or who has to look at what somebody wrote: short enough for a line, and
/// without control characters.
pub fn excerpt(text: &str) -> String {
    let end = text.char_indices().nth(SHOWN).map(|(end, _)| end);
    let mut shown = visible(text.get(..end.unwrap_or(text.len())).unwrap_or_default());
    if end.is_some() {
        shown.push_str("...");
    }
    shown
}

/// A host as it is written before a colon: an address of IPv6 stands in brackets.
pub fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
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

    #[test]
    fn no_character_commands_a_terminal() {
        assert_eq!(visible("a é \\ 'x' \u{202f}"), "a é \\ 'x' \u{202f}");
        assert_eq!(visible("\u{1b}[2J\u{9b}1m\u{7f}"), "\\u{1b}[2J\\u{9b}1m\\u{7f}");
        assert_eq!(visible("\r\n\t\0end\n"), "\\r\\n\\t\\u{0}end\\n");
        let twice = visible(&visible("\u{1b}"));
        assert_eq!(twice, "\\u{1b}");
    }

    #[test]
    fn an_address_with_colons_stands_in_brackets() {
        assert_eq!(["h1", "192.0.2.1", "fd00::1"].map(bracketed), ["h1", "192.0.2.1", "[fd00::1]"]);
    }
}

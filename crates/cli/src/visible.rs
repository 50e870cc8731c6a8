//! Text of others where a terminal or a person reads it: names of files and volumes, what a server or a client says.

use std::fmt::{self, Write};

/// Passes text on with its control characters (C0, DEL, C1; line breaks too) shown as what they are: no terminal obeys them, and
/// nobody writes a line of his own into a log.
pub(crate) struct Visible<W>(pub(crate) W);

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
pub(crate) fn visible(text: &str) -> String {
    let mut shown = Visible(String::with_capacity(text.len()));
    // A string takes everything.
    let _done = shown.write_str(text);
    shown.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_character_commands_a_terminal() {
        assert_eq!(visible("a é \\ 'x' \u{202f}"), "a é \\ 'x' \u{202f}");
        assert_eq!(visible("\u{1b}[2J\u{9b}1m\u{7f}"), "\\u{1b}[2J\\u{9b}1m\\u{7f}");
        assert_eq!(visible("\r\n\t\0end\n"), "\\r\\n\\t\\u{0}end\\n");
        let twice = visible(&visible("\u{1b}"));
        assert_eq!(twice, "\\u{1b}");
    }
}

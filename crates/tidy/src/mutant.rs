//! Mutants: small mistakes in the source, on purpose. The tests have to notice them.
//!
//! They are in `crates/tidy/mutants`, one file a crate:
//!
//! ```text
//! mutant NAME
//! file crates/replica/src/lease.rs
//! from
//!     now < self.lease
//! to
//!     now <= self.lease
//! end
//! ```
//!
//! The text is found by its tokens: line breaks, spaces, comments and trailing commas do not matter, nor does a move within
//! the crate.

use std::ops::Range;

/// One mistake.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mutant {
    /// What it is called.
    pub name: String,
    /// Where its text was when it was written, from the top of the tree.
    pub file: String,
    /// What the source says.
    pub from: String,
    /// What it says with the mistake.
    pub to: String,
}

impl Mutant {
    /// The crate that it is in.
    pub fn package(&self) -> &str {
        self.file.split('/').nth(1).unwrap_or_default()
    }
}

/// Reads a file of mutants.
///
/// # Errors
/// A line that does not belong where it stands.
pub fn parse(text: &str) -> Result<Vec<Mutant>, String> {
    let mut mutants = Vec::new();
    let mut lines = text.lines().filter(|l| !l.starts_with('#') && !l.trim().is_empty());
    while let Some(line) = lines.next() {
        let name =
            line.strip_prefix("mutant ").ok_or_else(|| format!("not the begin of a mutant: {line}"))?;
        let file = lines.next().and_then(|l| l.strip_prefix("file "));
        let file = file.ok_or_else(|| format!("{name}: no file"))?;
        if lines.next() != Some("from") {
            return Err(format!("{name}: no text that is to be changed"));
        }
        let mut until = |end: &str| -> Result<String, String> {
            let mut text = String::new();
            loop {
                match lines.next() {
                    Some(line) if line == end => return Ok(text),
                    Some(line) if line.starts_with(' ') => {
                        text.push_str(line);
                        text.push('\n');
                    }
                    _ => return Err(format!("{name}: no line `{end}`")),
                }
            }
        };
        let (from, to) = (until("to")?, until("end")?);
        mutants.push(Mutant { name: name.to_owned(), file: file.to_owned(), from, to });
    }
    Ok(mutants)
}

/// The tokens of a source: words, and single signs; without comments, and without commas before a closing bracket.
fn tokens(text: &str) -> Vec<Range<usize>> {
    let mut all: Vec<Range<usize>> = Vec::new();
    let mut rest = text.char_indices().peekable();
    while let Some((at, c)) = rest.next() {
        if c.is_whitespace() {
            continue;
        }
        if text[at..].starts_with("//") {
            while rest.next_if(|(_, c)| *c != '\n').is_some() {}
            continue;
        }
        let mut end = at + c.len_utf8();
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        while is_word(c)
            && let Some((at, c)) = rest.next_if(|(_, c)| is_word(*c))
        {
            end = at + c.len_utf8();
        }
        if matches!(c, ')' | ']' | '}') && all.last().is_some_and(|t| text.get(t.clone()) == Some(",")) {
            all.pop();
        }
        all.push(at..end);
    }
    all
}

/// Where a text occurs in a source, by tokens.
pub fn find(source: &str, text: &str) -> Vec<Range<usize>> {
    let (there, wanted) = (tokens(source), tokens(text.trim_end().trim_end_matches(',')));
    let token = |of: &'_ str, t: &Range<usize>| of.get(t.clone()).map(str::to_owned);
    let wanted: Vec<Option<String>> = wanted.iter().map(|t| token(text, t)).collect();
    if wanted.is_empty() {
        return Vec::new();
    }
    let is_there = |w: &&[Range<usize>]| w.iter().zip(&wanted).all(|(t, want)| token(source, t) == *want);
    let found = there.windows(wanted.len()).filter(is_there);
    found.filter_map(|w| Some(w.first()?.start..w.last()?.end)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mutants_are_read() {
        let text = "# Words.\n\nmutant a\nfile crates/x/src/y.rs\nfrom\n    b < c\nto\n    b <= c\nend\n";
        let read = parse(text).unwrap();
        assert_eq!(read.len(), 1);
        assert_eq!((read[0].package(), read[0].from.trim(), read[0].to.trim()), ("x", "b < c", "b <= c"));
        for cut in ["mutant a\n", "mutant a\nfile b\nfrom\n c\n", "from\n"] {
            assert!(parse(cut).is_err(), "{cut}");
        }
    }

    #[test]
    fn texts_are_found_by_tokens() {
        let source = "fn a() {\n    // It is so.\n    b(\n        c, // why\n        d,\n    );\n}\n";
        let found = find(source, "b(c, d);");
        assert_eq!(
            found.iter().map(|r| &source[r.clone()]).collect::<Vec<_>>(),
            ["b(\n        c, // why\n        d,\n    );"]
        );
        assert!(
            find(source, "b(c)").is_empty() && find(source, "cd").is_empty() && find(source, "").is_empty()
        );
        assert_eq!(find("aa a a", "a").len(), 2);
    }
}

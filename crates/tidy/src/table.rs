//! What the documents say.

use std::collections::BTreeSet;

/// The text of a section of a page, without its title.
pub fn section<'a>(page: &'a str, title: &str) -> Option<&'a str> {
    let (_, rest) = page.split_once(&format!("\n## {title}\n"))?;
    Some(rest.split("\n## ").next().unwrap_or(rest))
}

/// The table of crates in its order: name, and the crates that it depends on.
pub fn crates_table(section: &str) -> Vec<(String, BTreeSet<String>)> {
    let row = |line: &str| {
        let (name, rest) = line.strip_prefix("| `")?.split_once('`')?;
        let last = rest.trim_end().trim_end_matches('|').rsplit('|').next()?.trim();
        let named = last.split(", ").filter(|n| !n.is_empty()).map(str::to_owned).collect();
        Some((name.to_owned(), named))
    };
    section.lines().filter_map(row).collect()
}

/// The words between double asterisks.
pub fn bold_words(text: &str) -> Vec<String> {
    text.split("**").skip(1).step_by(2).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_read() {
        let page = "# A\n\n## Crates\nText.\n\n| crate | owns | depends on |\n|---|---|---|\n| `a` | x | |\n| `b` | y, `z` | a, c |\n\n## B\n**c**\n";
        let table = crates_table(section(page, "Crates").unwrap());
        let b: BTreeSet<String> = ["a".to_owned(), "c".to_owned()].into();
        assert_eq!(table, [("a".to_owned(), BTreeSet::new()), ("b".to_owned(), b)]);
        assert_eq!(bold_words(section(page, "B").unwrap()), ["c"]);
    }
}

//! Which words a text uses, and which of them went out of use.

use std::collections::{BTreeMap, BTreeSet};

/// The words of a text; what is joined by `_` is one word.
pub fn words(text: &str) -> BTreeSet<String> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').map(str::to_owned).collect()
}

/// The words of `list` that a text uses, each with the word to say instead.
///
/// An entry of the list is a word. With `*` behind it, it means all words that begin so; with `@` and names of crates
/// behind that, it counts in those crates only: `Place@wire,namespace`. Names on disk keep old words, so a word between
/// double quotes and a name below `.mortar/` do not count.
pub fn replaced(path: &str, text: &str, list: &BTreeMap<String, String>) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut used = None;
    for (entry, instead) in list {
        let (word, crates) = entry.split_once('@').map_or((entry.as_str(), None), |(w, c)| (w, Some(c)));
        let is_in = |c: &str| path.starts_with(&format!("crates/{c}/"));
        if crates.is_some_and(|all| !all.split(',').any(is_in)) {
            continue;
        }
        let used: &BTreeSet<String> = used.get_or_insert_with(|| words(&without_names_on_disk(text)));
        let is_used = match word.strip_suffix('*') {
            Some(start) => used.iter().any(|w| w.starts_with(start)),
            None => used.contains(word),
        };
        if is_used {
            found.push((word.to_owned(), instead.clone()));
        }
    }
    found
}

/// The text without `"word"` and `.mortar/word`.
fn without_names_on_disk(text: &str) -> String {
    let is_word = |s: &str| !s.is_empty() && s.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    let unquoted: Vec<&str> = text.split('"').map(|part| if is_word(part) { "" } else { part }).collect();
    let mut parts = unquoted.join("\"");
    while let Some(at) = parts.find(".mortar/") {
        let rest = &parts[at + ".mortar/".len()..];
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '-').unwrap_or(rest.len());
        parts = format!("{} {}", &parts[..at], &rest[end..]);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        let list = [("limbo", "lost_found"), ("tell_*", "send_"), ("Place@wire,replica", "PrepareMkdir")];
        let list = list.iter().map(|(w, i)| ((*w).to_owned(), (*i).to_owned())).collect();
        replaced(path, text, &list).into_iter().map(|(word, _)| word).collect()
    }

    #[test]
    fn replaced_words_are_found_where_they_count() {
        assert_eq!(found("docs/a.md", "it lies in limbo"), ["limbo"]);
        assert_eq!(found("crates/cli/src/a.rs", "fn tell_it() {}"), ["tell_*"]);
        assert_eq!(found("crates/wire/src/op.rs", "Op::Place { .. }"), ["Place"]);
        assert!(found("crates/cli/src/a.rs", "a Place, in_limbo, retell_it, limbos").is_empty());
    }

    #[test]
    fn names_on_disk_keep_their_words() {
        assert!(found("a", "folder(\"limbo\") and .mortar/limbo, `.mortar/limbo/<fid>`").is_empty());
        assert_eq!(found("a", "\"in limbo\" and .mortar/limbo"), ["limbo"]);
    }
}

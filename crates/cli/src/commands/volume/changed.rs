//! What `mortar volume set` and `reset` changed, as people and programs are told.

use crate::cli::Global;
use crate::{ask, output};
use admin::OptionLine;
use serde::Serialize;

/// The options of a volume.
pub(super) fn values(global: &Global, name: &str) -> anyhow::Result<Vec<OptionLine>> {
    Ok(ask::ask(global, admin::VolumeGet { name: name.to_owned(), key: None })?.options)
}

/// An option before and after.
#[derive(Serialize, PartialEq, Eq, Debug)]
struct Change {
    option: String,
    from: String,
    to: String,
}

/// The options that have another value, and those that were named and have the one that they had.
#[derive(Serialize, Debug)]
pub(super) struct Changed {
    changes: Vec<Change>,
    #[serde(skip)]
    same: Vec<(String, String)>,
}

impl Changed {
    /// From these values to those. `named`: whether somebody named an option.
    pub(super) fn since(
        before: &[OptionLine],
        after: &[OptionLine],
        named: impl Fn(&str) -> bool,
    ) -> Changed {
        let (mut changes, mut same) = (Vec::new(), Vec::new());
        let old = |key: &str| before.iter().find(|o| o.key == key);
        for now in after {
            let was = old(&now.key).map_or_else(String::new, |o| o.value.clone());
            if was != now.value {
                changes.push(Change { option: now.key.clone(), from: was, to: now.value.clone() });
            } else if named(&now.key) {
                same.push((now.key.clone(), was));
            }
        }
        // The user's own are not there any more when they are reset.
        for gone in before.iter().filter(|o| !after.iter().any(|now| now.key == o.key)) {
            changes.push(Change { option: gone.key.clone(), from: gone.value.clone(), to: String::new() });
        }
        Changed { changes, same }
    }

    /// One line for each option, or a document with them.
    pub(super) fn show<T: Serialize>(self, global: &Global, answer: &T, volume: &str) -> anyhow::Result<()> {
        #[derive(Serialize)]
        struct Answer<'a, T> {
            #[serde(flatten)]
            answer: &'a T,
            changes: &'a [Change],
        }
        let lines = self.lines(volume);
        output::done(global.json, &Answer { answer, changes: &self.changes }, &lines)
    }

    fn lines(&self, volume: &str) -> String {
        let shown = |value: &str| if value.is_empty() { "-".to_owned() } else { value.to_owned() };
        let changed = self.changes.iter().map(|c| {
            format!("volume {volume}: {} is {} now, and was {}", c.option, shown(&c.to), shown(&c.from))
        });
        let same = self
            .same
            .iter()
            .map(|(option, value)| format!("volume {volume}: {option} is {} already", shown(value)));
        let lines: Vec<String> = changed.chain(same).collect();
        if lines.is_empty() {
            return format!("volume {volume}: all options have their defaults already");
        }
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn option(key: &str, value: &str) -> OptionLine {
        OptionLine {
            key: key.to_owned(),
            value: value.to_owned(),
            default: String::new(),
            is_set: true,
            help: String::new(),
        }
    }

    #[test]
    fn each_option_is_told_with_what_it_was() {
        let before = [option("a", "1"), option("b", "2"), option("c", ""), option("user.x", "y")];
        let after = [option("a", "1"), option("b", "3"), option("c", "4")];
        let changed = Changed::since(&before, &after, |key| key == "a");
        let lines = [
            "volume v: b is 3 now, and was 2",
            "volume v: c is 4 now, and was -",
            "volume v: user.x is - now, and was y",
            "volume v: a is 1 already",
        ];
        assert_eq!(changed.lines("v"), lines.join("\n"));
        let nothing = Changed::since(&after, &after, |_| false);
        assert_eq!(nothing.lines("v"), "volume v: all options have their defaults already");
    }
}

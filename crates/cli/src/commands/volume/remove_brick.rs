//! `mortar volume remove-brick`.

use crate::ask;
use crate::cli::Global;
use crate::commands::volume::create::{Layout, layout};
use crate::confirm;
use crate::error::usage;
use crate::output;
use clap::Args;

/// Keep fewer copies of all that a volume holds, while it is in use.
///
/// Each set loses the same number of bricks. It is refused if a set would be left without its latest data, and with
/// `commit` also if any brick that stays is not in sync (`force` allows that). What the directories hold stays there.
#[derive(Args, Debug)]
#[command(
    override_usage = "mortar volume remove-brick VOL replica N BRICK... commit|force",
    after_help = "Example: mortar volume remove-brick home replica 2 s3:/data/home commit"
)]
pub(crate) struct RemoveBrick {
    /// The volume.
    #[arg(value_name = "VOL")]
    name: String,
    /// replica N, the bricks that go as HOST:/PATH, and commit or force.
    #[arg(value_name = "BRICK", required = true)]
    words: Vec<String>,
}

impl RemoveBrick {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<()> {
        let (replica, bricks, force) = words(&self.words)?;
        let question = format!("Take {} out of volume {}?", bricks.join(", "), self.name);
        confirm::confirm_at_terminal(global, &question)?;
        let a = ask::ask(global, admin::VolumeRemoveBrick { name: self.name, replica, bricks, force })?;
        let mut line = format!("volume {} has replica {} now", a.name, a.replica);
        if !a.leaving.is_empty() {
            let leaving = a.leaving.join(", ");
            line.push_str(&format!(
                "; {leaving} leaves when another brick can lead: see mortar volume status {}",
                a.name
            ));
        }
        output::done(global.json, &a, &line)
    }
}

/// `replica N BRICK... commit|force`
fn words(words: &[String]) -> anyhow::Result<(u32, Vec<String>, bool)> {
    let force = match words.last().map(String::as_str) {
        Some("commit") => false,
        Some("force") => true,
        _ => return usage("the last word says how: commit, or force if bricks that stay are not in sync"),
    };
    match layout(&words[..words.len() - 1])? {
        Layout { replica: Some(replica), arbiter: None, bricks } => Ok((replica, bricks, force)),
        Layout { replica: None, .. } => {
            usage("write replica N before the bricks: whole sets cannot be taken out of a volume yet")
        }
        Layout { arbiter: Some(_), .. } => usage("arbiter: fewer copies than 3 have no arbiter"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> anyhow::Result<(u32, Vec<String>, bool)> {
        words(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn words_say_what_goes_and_how() {
        assert_eq!(of("replica 2 a:/x commit").unwrap(), (2, vec!["a:/x".to_owned()], false));
        let two = vec!["a:/x".to_owned(), "b:/x".to_owned()];
        assert_eq!(of("replica 1 a:/x b:/x force").unwrap(), (1, two, true));
        for wrong in
            ["commit", "a:/x commit", "replica 2 a:/x", "replica 2 commit", "replica 2 arbiter 1 a:/x force"]
        {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }
}

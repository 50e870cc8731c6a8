//! `mortar volume remove-brick`.

use crate::ask;
use crate::cli::Global;
use crate::commands::volume::create::{Layout, layout};
use crate::commands::volume::rebalance::also;
use crate::confirm;
use crate::error::usage;
use crate::output::{self, with_notes};
use crate::table::{Rows, size};
use admin::{DrainAction, DrainReport};
use clap::Args;

/// Take bricks out of a volume while it is in use: whole sets, or a copy of all that it holds.
///
/// Whole sets (name all bricks of a set): `start` lets their files, and directories that have no others in them, move to
/// the other sets, and nothing new is placed there; `status` tells how far that is; `stop` ends it, and they are used as
/// before. `commit` takes the bricks out: what cannot move by itself, other directories above all, goes as it is to new
/// directories beside bricks that stay, and the old bricks leave when all of it is there. It is refused while files can
/// still move (`force` allows that).
///
/// With replica N each set loses the same number of bricks. It is refused if a set would be left without its latest data,
/// and with `commit` also if any brick that stays is not in sync (`force` allows that).
///
/// What the directories of the old bricks hold stays there.
#[derive(Args, Debug)]
#[command(
    override_usage = "mortar volume remove-brick VOL BRICK... start|status|stop|commit|force\n       \
                      mortar volume remove-brick VOL replica N BRICK... commit|force",
    after_help = "Examples: mortar volume remove-brick home s5:/data/home s6:/data/home start\n          \
                  mortar volume remove-brick home replica 2 s3:/data/home commit"
)]
pub(crate) struct RemoveBrick {
    /// The volume.
    #[arg(value_name = "VOL")]
    name: String,
    /// The bricks that go as HOST:/PATH, after replica N if copies go, and what to do.
    #[arg(value_name = "BRICK", required = true)]
    words: Vec<String>,
}

/// What the words ask for.
#[derive(PartialEq, Eq, Debug)]
enum Asked {
    Copies { replica: u32, bricks: Vec<String>, force: bool },
    Sets { bricks: Vec<String>, action: DrainAction },
}

impl RemoveBrick {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<()> {
        match words(&self.words)? {
            Asked::Copies { replica, bricks, force } => copies(global, self.name, replica, bricks, force),
            Asked::Sets { bricks, action } => sets(global, self.name, bricks, action),
        }
    }
}

fn copies(
    global: &Global,
    name: String,
    replica: u32,
    bricks: Vec<String>,
    force: bool,
) -> anyhow::Result<()> {
    confirm::confirm_at_terminal(global, &format!("Take {} out of volume {name}?", bricks.join(", ")))?;
    let a = ask::ask(global, admin::VolumeRemoveBrick { name, replica, bricks, force })?;
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

fn sets(global: &Global, name: String, bricks: Vec<String>, action: DrainAction) -> anyhow::Result<()> {
    if matches!(action, DrainAction::Commit | DrainAction::Force) {
        confirm::confirm_at_terminal(global, &format!("Take {} out of volume {name}?", bricks.join(", ")))?;
    }
    let report = ask::ask(global, admin::VolumeDrain { name, bricks, action })?;
    if global.json { output::json(&report) } else { output::line(&show(&report)) }
}

/// The report for people.
fn show(r: &DrainReport) -> String {
    let mut rows = Rows::new(&["SET", "STATE", "MOVED FILES", "MOVED", "LEFT", "FILES/S", "RATE"])
        .right(&[0, 2, 3, 4, 5, 6]);
    let mut follows = String::new();
    for s in &r.sets {
        let moves_out = s.bricks.iter().any(|b| b.goes_to.is_some());
        let state = match (s.drains, s.moved.none_can_move) {
            _ if moves_out => "moves out",
            (false, _) => "in use",
            (true, false) => "files leave",
            (true, true) => "ready: commit",
        };
        rows.row([
            s.set.to_string(),
            state.to_owned(),
            s.moved.files.to_string(),
            size(s.moved.bytes),
            s.moved.left.to_string(),
            s.moved.files_per_second.to_string(),
            format!("{}/s", size(s.moved.bytes_per_second)),
        ]);
        follows.push_str(&also(s.set, &s.moved));
        for b in &s.bricks {
            if let Some(place) = &b.goes_to {
                follows.push_str(&format!("\n{} leaves when {place} is in sync", b.brick));
            }
        }
    }
    with_notes(format!("volume {}\n{}{follows}", r.name, rows.text()), &r.notes)
}

/// `BRICK... start|status|stop|commit|force`, or `replica N BRICK... commit|force`.
fn words(words: &[String]) -> anyhow::Result<Asked> {
    let action = match words.last().map(String::as_str) {
        Some("start") => DrainAction::Start,
        Some("status") => DrainAction::Status,
        Some("stop") => DrainAction::Stop,
        Some("commit") => DrainAction::Commit,
        Some("force") => DrainAction::Force,
        _ => return usage("the last word says what to do: start, status, stop, commit or force"),
    };
    match layout(&words[..words.len() - 1])? {
        Layout { stripe: Some(_), .. } => {
            usage("stripe: that is the option cluster.stripe-count of the volume")
        }
        Layout { replica: Some(replica), arbiter: None, bricks, .. } => match action {
            DrainAction::Commit => Ok(Asked::Copies { replica, bricks, force: false }),
            DrainAction::Force => Ok(Asked::Copies { replica, bricks, force: true }),
            _ => usage("fewer copies: the last word is commit, or force if bricks that stay are not in sync"),
        },
        Layout { replica: None, arbiter: None, bricks, .. } => Ok(Asked::Sets { bricks, action }),
        Layout { arbiter: Some(_), .. } => usage("arbiter: fewer copies than 3 have no arbiter"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use admin::{DrainedBrick, DrainedSet};
    use ids::{SetId, SetName};

    fn of(line: &str) -> anyhow::Result<Asked> {
        words(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn words_say_what_goes_and_how() {
        let one = || vec!["a:/x".to_owned()];
        let copies = |replica, bricks, force| Asked::Copies { replica, bricks, force };
        assert_eq!(of("replica 2 a:/x commit").unwrap(), copies(2, one(), false));
        let two = vec!["a:/x".to_owned(), "b:/x".to_owned()];
        assert_eq!(of("replica 1 a:/x b:/x force").unwrap(), copies(1, two.clone(), true));
        assert_eq!(of("a:/x b:/x start").unwrap(), Asked::Sets { bricks: two, action: DrainAction::Start });
        assert_eq!(of("a:/x commit").unwrap(), Asked::Sets { bricks: one(), action: DrainAction::Commit });
        for wrong in
            ["commit", "a:/x", "replica 2 a:/x", "replica 2 a:/x start", "replica 2 arbiter 1 a:/x force"]
        {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_report_says_what_follows() {
        let mut set =
            DrainedSet { set: SetName { id: SetId(9), number: 3 }, drains: true, ..DrainedSet::default() };
        let show_one = |set: &DrainedSet| {
            let notes = vec!["set 4 is not led".to_owned()];
            show(&DrainReport { name: "v".to_owned(), sets: vec![set.clone()], notes })
        };
        let text = show_one(&set);
        assert!(text.contains("files leave") && text.ends_with("note: set 4 is not led"), "{text}");
        set.moved.problem = Some("d/f: no space left on device (ENOSPC 28)".to_owned());
        assert!(show_one(&set).contains("set 3: a file stays: d/f: no space left"));
        set.moved.directories = 1;
        assert!(show_one(&set).contains("set 3: 1 directory went to another set"));
        set.moved.none_can_move = true;
        assert!(show_one(&set).contains("ready: commit"));
        let goes_to = Some("h:/b-set3".to_owned());
        set.bricks.push(DrainedBrick { brick: "g:/a".to_owned(), goes_to });
        assert!(show_one(&set).contains("g:/a leaves when h:/b-set3 is in sync"));
    }
}

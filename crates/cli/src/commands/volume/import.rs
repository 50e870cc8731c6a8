//! `mortar volume import`.

use crate::cli::Global;
use crate::{ask, output};
use clap::Args;

/// Make a deleted volume again of its bricks.
///
/// With all that it holds, its name, bricks and options, as it was when it was deleted: stopped. Keys of clients went with the
/// volume: make new ones. All bricks have to be where they were, on servers of this pool; with --force it goes on without
/// those that are missing, if each set has a brick with its latest data. The last 100 volumes that were deleted can be
/// imported, but for those whose bricks were released.
#[derive(Args, Debug)]
#[command(
    override_usage = "mortar volume import VOL | BRICK... [--force]",
    after_help = "Examples:\n  mortar volume import home && mortar volume start home\n  \
                  mortar volume import s1:/data/home s2:/data/home"
)]
pub(crate) struct Import {
    /// The volume, as it was called, or bricks of it as HOST:/PATH: some of them, or all.
    #[arg(value_name = "VOL|BRICK", required = true)]
    words: Vec<String>,
    /// Also if bricks are missing. They are healed when they come back.
    #[arg(long)]
    force: bool,
}

impl Import {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<()> {
        let (name, bricks) = match self.words.as_slice() {
            [name] if !name.contains(":/") => (name.clone(), Vec::new()),
            bricks => (String::new(), bricks.to_vec()),
        };
        let answer = ask::ask(global, admin::VolumeImport { name, bricks, force: self.force })?;
        let mut text = format!(
            "volume {} is there again: start it with mortar volume start {}",
            answer.name, answer.name
        );
        for missing in &answer.missing {
            text.push_str(&format!("\nnote: {missing}"));
        }
        output::done(global.json, &answer, &text)
    }
}

//! `mortar volume promote`.

use crate::cli::Global;
use crate::{ask, confirm, output};
use clap::Args;

/// Let a set go on with one brick when those with its latest data are gone for good. What only they hold is lost.
///
/// Asks first; without a terminal it needs --yes.
#[derive(Args, Debug)]
#[command(after_help = "Example: mortar volume promote home s2:/data/brick --yes")]
pub(crate) struct Promote {
    /// The volume.
    #[arg(value_name = "VOL")]
    name: String,
    /// The brick that the set goes on with.
    #[arg(value_name = "HOST:/PATH")]
    brick: String,
}

impl Promote {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<()> {
        confirm::confirm(
            global,
            &format!(
                "Go on with {}? What other bricks of its set hold and this one does not is lost.",
                self.brick
            ),
        )?;
        let answer = ask::ask(global, admin::VolumePromote { name: self.name, brick: self.brick })?;
        let line = format!(
            "set {} of volume {} goes on with {}; the other bricks are compared with it when they are back",
            answer.set, answer.name, answer.brick
        );
        output::done(global.json, &answer, &line)
    }
}

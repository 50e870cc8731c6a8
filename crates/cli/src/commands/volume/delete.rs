//! `mortar volume delete`.

use crate::cli::Global;
use crate::{ask, confirm, output};
use clap::Args;

/// Forget a stopped volume. The files stay in the bricks' directories.
///
/// Asks first; without a terminal it needs --yes.
#[derive(Args, Debug)]
#[command(after_help = "Example: mortar volume delete home --yes")]
pub(crate) struct Delete {
    /// The volume.
    #[arg(value_name = "VOL")]
    name: String,
}

impl Delete {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<()> {
        confirm::confirm(
            global,
            &format!("Delete volume {}? Its files stay in the bricks' directories.", self.name),
        )?;
        let answer = ask::ask(global, admin::VolumeDelete { name: self.name })?;
        let mut line =
            format!("volume {} is deleted; its files stay in the bricks' directories", answer.name);
        if let Some(why) = &answer.not_released {
            line.push_str(&format!("; remove .mortar by hand where this failed: {why}"));
        }
        output::done(global.json, &answer, &line)
    }
}

//! `mortar volume stop`.

use crate::cli::Global;
use crate::{ask, confirm, output};
use clap::Args;

/// Stop serving a volume. Mounts wait until it is started again.
///
/// Asks first; without a terminal it needs --yes.
#[derive(Args, Debug)]
#[command(after_help = "Example: mortar volume stop home --yes")]
pub(crate) struct Stop {
    /// The volume.
    #[arg(value_name = "VOL")]
    name: String,
}

impl Stop {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<()> {
        confirm::confirm(global, &format!("Stop volume {}? Its mounts do not answer then.", self.name))?;
        let answer = ask::ask(global, admin::VolumeStop { name: self.name })?;
        let already = if answer.already { " already: nothing to do" } else { "" };
        output::done(global.json, &answer, &format!("volume {} is stopped{already}", answer.name))
    }
}

//! `mortar volume start`.

use crate::ask;
use crate::cli::Global;
use crate::output;
use clap::Args;

/// Let a volume serve.
#[derive(Args, Debug)]
#[command(after_help = "Example: mortar volume start home")]
pub(crate) struct Start {
    /// The volume.
    #[arg(value_name = "VOL")]
    name: String,
}

impl Start {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<()> {
        let answer = ask::ask(global, admin::VolumeStart { name: self.name })?;
        let already = if answer.already { " already: nothing to do" } else { "" };
        output::done(global.json, &answer, &format!("volume {} is started{already}", answer.name))
    }
}

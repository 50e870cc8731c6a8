//! `mortar volume reset`.

use crate::cli::Global;
use crate::{ask, confirm, output};
use clap::Args;

/// Give an option, or all of them, their defaults again.
#[derive(Args, Debug)]
#[command(after_help = "Example: mortar volume reset home network.ping-timeout")]
pub(crate) struct Reset {
    /// The volume.
    #[arg(value_name = "VOL")]
    name: String,
    /// The option; all if none is given.
    key: Option<String>,
}

impl Reset {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<()> {
        if self.key.is_none() {
            confirm::confirm_at_terminal(global, &format!("Reset all options of volume {}?", self.name))?;
        }
        let answer = ask::ask(global, admin::VolumeReset { name: self.name, key: self.key })?;
        let s = if answer.options == 1 { "" } else { "s" };
        let line = format!("{} option{s} of volume {} reset", answer.options, answer.name);
        output::done(global.json, &answer, &line)
    }
}

//! `mortar volume reset`.

use super::changed::{Changed, values};
use crate::cli::Global;
use crate::{ask, confirm};
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
        let before = values(global, &self.name)?;
        let answer = ask::ask(global, admin::VolumeReset { name: self.name, key: self.key.clone() })?;
        let named = |key: &str| self.key.as_deref() == Some(key);
        Changed::since(&before, &values(global, &answer.name)?, named).show(global, &answer, &answer.name)
    }
}

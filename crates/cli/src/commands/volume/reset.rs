//! `mortar volume reset`.

use crate::cli::Global;
use crate::{ask, confirm};
use clap::Args;
use cluster::admin::AdminRequest;

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
            confirm::confirm(global, &format!("Reset all options of volume {}?", self.name))?;
        }
        ask::do_it(global, AdminRequest::VolumeReset { name: self.name, key: self.key })
    }
}

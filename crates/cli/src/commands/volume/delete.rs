//! `mortar volume delete`.

use crate::cli::Global;
use crate::{ask, confirm};
use clap::Args;
use cluster::admin::AdminRequest;

/// Forget a stopped volume. The files stay in the bricks' directories.
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
        ask::do_it(global, AdminRequest::VolumeDelete { name: self.name })
    }
}

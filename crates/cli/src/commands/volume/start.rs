//! `mortar volume start`.

use crate::ask;
use crate::cli::Global;
use clap::Args;
use cluster::admin::AdminRequest;

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
        ask::do_it(global, AdminRequest::VolumeStart { name: self.name })
    }
}

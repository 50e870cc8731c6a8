//! `mortar volume list`.

use crate::ask::{self, unexpected};
use crate::cli::Global;
use crate::output;
use clap::Args;
use cluster::admin::{AdminReply, AdminRequest};

/// The names of all volumes, one a line.
#[derive(Args, Debug)]
#[command(after_help = "Example: mortar volume list")]
pub(crate) struct List {}

impl List {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<()> {
        match ask::ask(global, AdminRequest::VolumeList)? {
            AdminReply::VolumeList(names) if global.json => output::json(&names),
            AdminReply::VolumeList(names) if names.is_empty() => Ok(()),
            AdminReply::VolumeList(names) => output::line(&names.join("\n")),
            other => unexpected(&other),
        }
    }
}

//! `mortar config export`.

use crate::ask::{self, unexpected};
use crate::cli::Global;
use crate::output;
use clap::Args;
use cluster::admin::{AdminReply, AdminRequest};

/// Print the configuration of the pool: servers, volumes, options.
#[derive(Args, Debug)]
#[command(after_help = "Example: mortar config export > pool.toml")]
pub(crate) struct Export {}

impl Export {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<()> {
        match ask::ask(global, AdminRequest::ConfigExport)? {
            AdminReply::Document(document) if global.json => {
                output::json(&serde_json::json!({ "document": document }))
            }
            AdminReply::Document(document) => output::line(document.trim_end()),
            other => unexpected(&other),
        }
    }
}

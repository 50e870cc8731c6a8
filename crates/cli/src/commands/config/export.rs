//! `mortar config export`.

use crate::ask;
use crate::cli::Global;
use crate::output;
use clap::Args;

/// Print the configuration of the pool: servers, volumes, options, keys of clients.
#[derive(Args, Debug)]
#[command(after_help = "Example: mortar config export > pool.toml")]
pub(crate) struct Export {}

impl Export {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<()> {
        let answer = ask::ask(global, admin::ConfigExport {})?;
        if global.json { output::json(&answer) } else { output::line(answer.document.trim_end()) }
    }
}

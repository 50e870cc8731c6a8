//! `mortar volume list`.

use crate::ask;
use crate::cli::Global;
use crate::output;
use clap::Args;

/// The names of all volumes, one a line.
#[derive(Args, Debug)]
#[command(after_help = "Example: mortar volume list")]
pub(crate) struct List {}

impl List {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<()> {
        let answer = ask::ask(global, admin::VolumeList {})?;
        match &answer.names {
            _ if global.json => output::json(&answer),
            names if names.is_empty() => Ok(()),
            names => output::line(&names.join("\n")),
        }
    }
}

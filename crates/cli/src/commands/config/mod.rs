//! `mortar config`: the whole pool as one document.

mod apply;
mod export;

use crate::cli::Global;
use clap::Subcommand;

/// The whole configuration as one TOML document.
#[derive(Subcommand, Debug)]
pub(crate) enum Config {
    Export(export::Export),
    Apply(apply::Apply),
}

impl Config {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<()> {
        match self {
            Config::Export(c) => c.run(global),
            Config::Apply(c) => c.run(global),
        }
    }
}

//! `mortar config`: the whole pool as one document.

mod apply;
mod diff;
mod export;

use crate::cli::Global;
use anyhow::Context;
use clap::Subcommand;
use std::io::Read;

/// The whole configuration as one TOML document.
#[derive(Subcommand, Debug)]
pub(crate) enum Config {
    Export(export::Export),
    Diff(diff::Diff),
    Apply(apply::Apply),
}

impl Config {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<()> {
        match self {
            Config::Export(c) => c.run(global),
            Config::Diff(c) => c.run(global),
            Config::Apply(c) => c.run(global),
        }
    }
}

/// The document in a file; `-` is stdin.
fn read(file: &str) -> anyhow::Result<String> {
    if file == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("stdin")?;
        return Ok(text);
    }
    std::fs::read_to_string(file).with_context(|| format!("document {file}"))
}

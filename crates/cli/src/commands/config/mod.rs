//! `mortar config`: the whole pool as one document.

mod apply;
mod diff;
mod export;

use crate::cli::Global;
use anyhow::{Context, bail};
use clap::Subcommand;
use std::fs::File;
use std::io::Read;
use wire::limits::BODY_MAX;

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

/// Bytes that a document may have: more no server takes.
const LONGEST: u64 = BODY_MAX as u64;

/// The document in a file; `-` is stdin.
fn read(file: &str) -> anyhow::Result<String> {
    if file == "-" {
        return bounded(std::io::stdin().lock()).context("stdin");
    }
    File::open(file).map_err(Into::into).and_then(bounded).with_context(|| format!("document {file}"))
}

fn bounded(from: impl Read) -> anyhow::Result<String> {
    let mut text = String::new();
    from.take(LONGEST + 1).read_to_string(&mut text)?;
    if text.len() as u64 > LONGEST {
        bail!(
            "it has more than {LONGEST} bytes, which is no configuration of a pool: see mortar config export"
        );
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::{LONGEST, bounded};

    #[test]
    fn a_document_without_an_end_is_refused() {
        assert_eq!(bounded(&b"format = 1\n"[..]).unwrap(), "format = 1\n");
        let refused = bounded(std::io::repeat(b'#')).unwrap_err().to_string();
        assert!(refused.contains(&LONGEST.to_string()), "{refused}");
    }
}

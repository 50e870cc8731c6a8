//! `mortar client rotate`.

use crate::cli::Global;
use crate::{ask, keys, lifetime, output};
use clap::Args;
use std::path::PathBuf;

/// Make another key with the same limits. The old one ends some time later.
///
/// Replace the client's key file by the new one: the mount reads it at its next connection, and need not be mounted anew.
#[derive(Args, Debug)]
#[command(after_help = "Example: mortar client rotate web-1 --after 1h --out web-1.new.key")]
pub(crate) struct Rotate {
    /// What it is called.
    name: String,
    /// After how long the old one ends; 0s: at once.
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = lifetime::parse_or_now)]
    after: u64,
    /// The key file to write or to replace; NAME.key in this directory unless given.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

impl Rotate {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<()> {
        let path = keys::place(self.out, &self.name, true)?;
        let made = ask::ask(global, admin::ClientRotate { name: self.name, after: self.after })?;
        keys::write(&path, &made.name, &made.file)?;
        let made = keys::Written::new(&made, &path);
        output::done(global.json, &made, &format!("another key {} is in {}", made.name, path.display()))
    }
}

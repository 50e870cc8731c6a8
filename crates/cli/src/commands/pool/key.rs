//! `mortar pool key`.

use crate::cli::Global;
use crate::{ask, keys, output};
use clap::Args;
use std::path::PathBuf;

/// Make an administrator's key: with it commands work from other machines.
#[derive(Args, Debug)]
#[command(after_help = "Example: mortar pool key ann --out ~/.config/mortar/key")]
pub struct PoolKey {
    /// What it is to be called.
    name: String,
    /// The key file to write; NAME.key in this directory unless given.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

impl PoolKey {
    /// Asks for a key and writes its file.
    ///
    /// # Errors
    /// The server cannot be reached, or refuses; the file cannot be written.
    pub fn run(self, global: &Global) -> anyhow::Result<()> {
        let path = keys::place(self.out, &self.name, false)?;
        let made = ask::ask(global, admin::PoolKey { name: self.name })?;
        keys::write(&path, &made.name, &made.file)?;
        let made = keys::Written::new(&made, &path);
        output::done(global.json, &made, &format!("key {} is in {}", made.name, path.display()))
    }
}

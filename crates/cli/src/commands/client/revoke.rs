//! `mortar client revoke`.

use crate::cli::Global;
use crate::{ask, confirm, output};
use clap::Args;

/// Let a key in no more. Its connections end within a second.
#[derive(Args, Debug)]
#[command(after_help = "Example: mortar client revoke web-1")]
pub(crate) struct Revoke {
    /// What it is called, as in mortar client list.
    name: String,
}

impl Revoke {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<()> {
        confirm::confirm(global, &format!("Let key {} in no more?", self.name))?;
        let answer = ask::ask(global, admin::ClientRevoke { name: self.name })?;
        output::done(global.json, &answer, &format!("key {} is revoked", answer.name))
    }
}

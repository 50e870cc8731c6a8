//! `mortar pool rotate-key`.

use crate::cli::Global;
use crate::table::shown_host;
use crate::{ask, output};
use clap::Args;

/// Give servers other keys in place of theirs, while they serve.
///
/// Each server that is meant makes itself another key, which the pool's authority signs, and uses it from then on; its old
/// one is let in no more, and the connections on which it was shown are made anew. Mounts notice nothing. All servers that
/// are meant have to run. The pool's authority stays the same, unless
/// another one takes its place just now (mortar pool rotate-authority).
#[derive(Args, Debug)]
#[command(after_help = "Example: mortar pool rotate-key server2")]
pub struct PoolRotateKey {
    /// Only this server; all of them unless it is named.
    #[arg(value_name = "SERVER")]
    host: Option<String>,
}

impl PoolRotateKey {
    /// Asks, and says which servers have other keys.
    ///
    /// # Errors
    /// The server cannot be reached, or refuses.
    pub fn run(self, global: &Global) -> anyhow::Result<()> {
        let answer = ask::ask(global, admin::PoolRotateKey { server: self.host })?;
        let line = |s: &admin::RotatedKey| {
            format!("server {} has another key, number {}", shown_host(&s.host), s.key)
        };
        let lines: Vec<String> = answer.servers.iter().map(line).collect();
        output::done(global.json, &answer, &lines.join("\n"))
    }
}

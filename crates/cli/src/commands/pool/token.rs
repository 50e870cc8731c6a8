//! `mortar pool token`.

use crate::cli::Global;
use crate::{ask, lifetime, output};
use clap::Args;

/// Make a token with which one server joins the secured pool.
///
/// It is a secret, and good for one server. Start that one with `mortar server --join TOKEN@HOST`.
#[derive(Args, Debug)]
#[command(after_help = "Example: mortar pool token --expires 1h")]
pub struct PoolToken {
    /// How long it is good: 30m, 24h, 7d.
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = lifetime::parse)]
    expires: u64,
    /// Whoever joins takes the place and the bricks of this server, which is gone.
    #[arg(long, value_name = "HOST")]
    replace: Option<String>,
}

impl PoolToken {
    /// Asks for a token and prints what to start the server with.
    ///
    /// # Errors
    /// The server cannot be reached, or refuses.
    pub fn run(self, global: &Global) -> anyhow::Result<()> {
        let request = admin::GetPoolToken { valid: self.expires, replace: self.replace };
        let answer = ask::ask(global, request)?;
        if global.json {
            output::json(&answer)
        } else {
            output::line(&format!("{}@{}", answer.token, answer.address))
        }
    }
}

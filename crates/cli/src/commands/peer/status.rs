//! `mortar peer status`.

use crate::ask;
use crate::cli::Global;
use crate::output;
use crate::table::{Rows, yes};
use admin::Peer;
use clap::Args;

/// How the servers of the pool do, and what is weak about the pool.
#[derive(Args, Debug)]
#[command(after_help = "Example: mortar peer status")]
pub(crate) struct PeerStatusCommand {}

impl PeerStatusCommand {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<()> {
        let status = ask::ask(global, admin::GetPeerStatus {})?;
        if global.json {
            return output::json(&status);
        }
        let leader = status.leader.and_then(|l| status.peers.iter().find(|p| p.id == l));
        output::line(&format!("pool {}", status.pool))?;
        output::line(&format!("leader {}", leader.map_or("none known", |l| l.host.as_str())))?;
        output::line(&servers(&status.peers))?;
        for note in &status.notes {
            output::line(&format!("note: {note}"))?;
        }
        Ok(())
    }
}

/// Servers as a table.
pub(in crate::commands) fn servers(peers: &[Peer]) -> String {
    let mut rows = Rows::new(&["ID", "HOST", "ADDRESS", "ROLE", "CONNECTED"]).right(&[0]);
    for p in peers {
        let role = if p.witness { format!("{} (witness)", p.role) } else { p.role.to_string() };
        let connected = match p.connected {
            _ if p.lost => "lost".to_owned(),
            Some(connected) => yes(connected),
            None => "unknown".to_owned(),
        };
        rows.row([p.id.to_string(), p.host.clone(), p.address.clone(), role, connected]);
    }
    rows.text()
}

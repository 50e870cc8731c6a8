//! `mortar peer status`.

use crate::ask;
use crate::cli::Global;
use crate::live::Live;
use crate::table::{Rows, yes};
use admin::Peer;
use clap::Args;
use ids::bracketed;

/// How the servers of the pool do, and what is weak about the pool.
#[derive(Args, Debug)]
#[command(after_help = "Example: mortar peer status --watch")]
pub(crate) struct PeerStatusCommand {
    #[command(flatten)]
    live: Live,
}

impl PeerStatusCommand {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<()> {
        let look = || ask::ask(global, admin::GetPeerStatus {});
        self.live.show(global, look, |status, _| {
            let leader = status.leader.and_then(|l| status.peers.iter().find(|p| p.id == l));
            let mut lines = vec![
                format!("pool {}", status.pool),
                format!("leader {}", leader.map_or_else(|| "none known".to_owned(), |l| bracketed(&l.host))),
                format!("level {}", status.level),
                servers(&status.peers),
            ];
            lines.extend(status.notes.iter().map(|note| format!("note: {note}")));
            lines.join("\n")
        })
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
        rows.row([p.id.to_string(), bracketed(&p.host), p.address.clone(), role, connected]);
    }
    rows.text()
}

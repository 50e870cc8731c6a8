//! `mortar volume status`.

use crate::ask::{self, unexpected};
use crate::cli::Global;
use crate::output;
use crate::table::{Rows, size, yes};
use clap::Args;
use cluster::admin::{AdminReply, AdminRequest, BrickRole, BrickStatus, VolumeStatus};

/// How the bricks of volumes do, and what their servers counted.
#[derive(Args, Debug)]
#[command(after_help = "Example: mortar volume status home --json")]
pub(crate) struct StatusCommand {
    /// The volume; all if none is given.
    #[arg(value_name = "VOL")]
    name: Option<String>,
}

impl StatusCommand {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<()> {
        let volumes = match ask::ask(global, AdminRequest::VolumeStatus { name: self.name })? {
            AdminReply::VolumeStatus(volumes) => volumes,
            other => return unexpected(&other),
        };
        if global.json {
            return output::json(&volumes);
        }
        let shown: Vec<String> = volumes.iter().map(show).collect();
        if shown.is_empty() { Ok(()) } else { output::line(&shown.join("\n\n")) }
    }
}

/// A volume's status as a table, its counters and its notes.
pub(in crate::commands) fn show(v: &VolumeStatus) -> String {
    let mut text = format!("volume {}: {}\n{}", v.name, v.status, bricks(&v.bricks));
    for server in v.servers.iter().filter(|s| !s.ops.is_empty()) {
        let ops: Vec<String> = server.ops.iter().map(|(op, n)| format!("{op} {n}")).collect();
        text.push_str(&format!("\nrequests at {}: {}", server.server, ops.join(", ")));
    }
    for b in v.bricks.iter() {
        if let Some(error) = &b.error {
            text.push_str(&format!("\nbrick {}:{}: {error}", b.server, b.path));
        }
    }
    for note in &v.notes {
        text.push_str(&format!("\nnote: {note}"));
    }
    text
}

/// Bricks as a table.
pub(super) fn bricks(bricks: &[BrickStatus]) -> String {
    let heads = ["SET", "BRICK", "ROLE", "IN SYNC", "EPOCH", "LSN", "DURABLE", "FREE", "SIZE", "HEAL"];
    let mut rows = Rows::new(&heads).right(&[0, 4, 5, 6, 7, 8]);
    for b in bricks {
        let heal = b.heal.map_or_else(String::new, |h| format!("{}/{} {}", h.done, h.total, size(h.bytes)));
        let room = |bytes: u64| if b.total_bytes == 0 { "-".to_owned() } else { size(bytes) };
        rows.row([
            b.set.to_string(),
            format!("{}:{}", b.server, b.path),
            role(b.role).to_owned(),
            yes(b.in_sync),
            b.epoch.to_string(),
            b.lsn.to_string(),
            b.durable_lsn.to_string(),
            room(b.free_bytes),
            room(b.total_bytes),
            heal,
        ]);
    }
    rows.text()
}

fn role(role: BrickRole) -> &'static str {
    match role {
        BrickRole::Primary => "primary",
        BrickRole::Secondary => "secondary",
        BrickRole::Arbiter => "arbiter",
        BrickRole::Healing => "healing",
        BrickRole::Offline => "offline",
    }
}

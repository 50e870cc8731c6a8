//! `mortar volume status`.

use super::activity;
use crate::ask;
use crate::cli::Global;
use crate::live::Live;
use crate::output::with_notes;
use crate::table::{Rows, paragraph, size, yes};
use admin::{BrickRole, BrickStatus, HealMode, HealProgress, HealState, VolumeReport};
use clap::{Args, ValueEnum};
use ids::bracketed;

/// How the bricks of volumes do, and what their servers counted.
#[derive(Args, Debug)]
#[command(after_help = "Example: mortar volume status home clients")]
pub(crate) struct StatusCommand {
    /// The volume; all if none is given.
    #[arg(value_name = "VOL")]
    name: Option<String>,
    /// Something else than its bricks.
    #[arg(value_enum)]
    what: Option<What>,
    #[command(flatten)]
    live: Live,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
enum What {
    /// Mounts and what each asks for, and those that rest.
    Clients,
    /// Which files are open.
    Fds,
    /// What waits at each brick: for other bricks, disks and sets.
    Queues,
}

impl StatusCommand {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<()> {
        match (self.what, self.name) {
            (Some(What::Clients), Some(name)) => activity::clients(global, self.live, name),
            (Some(What::Fds), Some(name)) => activity::fds(global, self.live, name),
            (Some(What::Queues), Some(name)) => activity::queues(global, self.live, name),
            (_, name) => bricks_of(global, self.live, name),
        }
    }
}

fn bricks_of(global: &Global, live: Live, name: Option<String>) -> anyhow::Result<()> {
    let look = || ask::ask(global, admin::VolumeStatus { name: name.clone() });
    live.show(global, look, |answer, wide| {
        let shown: Vec<String> = answer.volumes.iter().map(|v| show(v, wide)).collect();
        shown.join("\n\n")
    })
}

/// A volume's status as a table, its counters and its notes.
pub(in crate::commands) fn show(v: &VolumeReport, wide: bool) -> String {
    let mut text = format!("volume {}: {}\n{}", v.name, v.status, bricks(&v.bricks, wide));
    for server in v.servers.iter().filter(|s| !s.ops.is_empty()) {
        let ops: Vec<String> = server.ops.iter().map(|(op, n)| format!("{op} {n}")).collect();
        let counted = format!("requests at {}: {}", bracketed(&server.server), ops.join(", "));
        text.push_str(&format!("\n{}", paragraph(&counted)));
    }
    for b in v.bricks.iter() {
        if let Some(error) = &b.error {
            text.push_str(&format!("\n{}", paragraph(&format!("brick {}: {error}", brick_name(b)))));
        }
    }
    for line in healing(&v.bricks) {
        text.push_str(&format!("\n{}", paragraph(&line)));
    }
    with_notes(text, &v.notes)
}

/// Bricks as a table; `wide`: with what is of interest to those who look for a fault.
pub(super) fn bricks(bricks: &[BrickStatus], wide: bool) -> String {
    let mut heads = vec!["SET", "BRICK", "ROLE", "IN SYNC", "FREE", "SIZE"];
    if wide {
        heads.extend(["EPOCH", "LSN", "DURABLE", "SET ID"]);
    }
    heads.push("HEAL");
    let mut rows = Rows::new(&heads).right(if wide { &[0, 4, 5, 6, 7, 8, 9] } else { &[0, 4, 5] });
    for b in bricks {
        let heal = b.heal.map_or_else(String::new, |h| {
            let more = if h.total_known { "" } else { "+" };
            format!("{}/{}{more} {}", h.done, h.total, size(h.bytes))
        });
        let room = |bytes: u64| if b.total_bytes == 0 { "-".to_owned() } else { size(bytes) };
        let mut cells = vec![
            b.set.to_string(),
            brick_name(b),
            role(b.role).to_owned(),
            yes(b.in_sync),
            room(b.free_bytes),
            room(b.total_bytes),
        ];
        if wide {
            cells.extend([b.epoch.to_string(), b.lsn.to_string(), b.durable_lsn.to_string()]);
            cells.push(b.set.id.to_string());
        }
        cells.push(heal);
        rows.row(cells);
    }
    rows.text()
}

/// HOST:/PATH; the colons of an address stand in brackets.
fn brick_name(b: &BrickStatus) -> String {
    format!("{}:{}", bracketed(&b.server), b.path)
}

/// One line for each brick that is not in sync: what becomes of it.
pub(super) fn healing(bricks: &[BrickStatus]) -> Vec<String> {
    let out = bricks.iter().filter(|b| !b.in_sync);
    out.map(|b| {
        let what = match b.heal {
            Some(h) => progress(&h),
            None if b.online => "waits for its set's primary".to_owned(),
            None => "offline: it is healed when its server is back".to_owned(),
        };
        format!("healing {}: {what}", brick_name(b))
    })
    .collect()
}

fn progress(h: &HealProgress) -> String {
    let how = match h.mode {
        HealMode::Journal => "what the journal says was missed",
        HealMode::Full => "everything is compared",
    };
    let state = match h.state {
        HealState::Learning => "learning what was missed",
        HealState::Copying => "copying",
        HealState::Finishing => "bringing all to disk",
    };
    let left = h.total.saturating_sub(h.done);
    let left = if h.total_known { format!("{left} left") } else { format!("{left} or more left") };
    let same = if h.same_bytes > 0 { format!(", {} found right", size(h.same_bytes)) } else { String::new() };
    format!(
        "{state} for {} s ({how}): {} objects done, {left}, {} copied{same}, {} objects/s, {}/s",
        h.seconds,
        h.done,
        size(h.bytes),
        h.objects_per_second,
        size(h.bytes_per_second)
    )
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

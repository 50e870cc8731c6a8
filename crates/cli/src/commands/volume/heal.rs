//! `mortar volume heal`.

use super::status::{bricks, healing};
use crate::ask;
use crate::cli::Global;
use crate::view::View;
use admin::HealInfo;
use clap::Args;

/// What of a volume is not in sync.
///
/// Healing needs no command: it begins by itself when a brick returns. `info` may be left out.
#[derive(Args, Debug)]
#[command(after_help = "Example: mortar volume heal home info")]
pub(crate) struct Heal {
    /// The volume.
    #[arg(value_name = "VOL")]
    name: String,
    /// What is told anyway.
    #[arg(value_parser = ["info"])]
    info: Option<String>,
    #[command(flatten)]
    view: View,
}

impl Heal {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<()> {
        let name = self.name;
        let heal = match self.info {
            Some(_) => ask::ask(global, admin::VolumeHealInfo { name })?,
            None => ask::ask(global, admin::VolumeHeal { name })?,
        };
        self.view.show(global, &heal, |wide| show(&heal, wide))
    }
}

fn show(heal: &HealInfo, wide: bool) -> String {
    let mut lines = Vec::new();
    if heal.bricks.is_empty() {
        lines.push(format!("volume {}: every brick is in sync", heal.name));
    } else {
        lines.push(format!("volume {}: not in sync\n{}", heal.name, bricks(&heal.bricks, wide)));
        lines.extend(healing(&heal.bricks));
    }
    lines.extend(heal.notes.iter().map(|note| format!("note: {note}")));
    lines.join("\n")
}

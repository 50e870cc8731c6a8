//! `mortar volume heal`.

use super::status::{bricks, healing};
use crate::ask;
use crate::cli::Global;
use crate::live::Live;
use admin::HealInfo;
use clap::Args;

/// What of a volume is not in sync.
///
/// Healing needs no command: it begins by itself when a brick returns. `info` may be left out.
#[derive(Args, Debug)]
#[command(after_help = "Example: mortar volume heal home info --watch")]
pub(crate) struct Heal {
    /// The volume.
    #[arg(value_name = "VOL")]
    name: String,
    /// What is told anyway.
    #[arg(value_parser = ["info"])]
    info: Option<String>,
    #[command(flatten)]
    live: Live,
}

impl Heal {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<()> {
        let look = || {
            let name = self.name.clone();
            match self.info {
                Some(_) => ask::ask(global, admin::VolumeHealInfo { name }),
                None => ask::ask(global, admin::VolumeHeal { name }),
            }
        };
        self.live.show(global, look, show)
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

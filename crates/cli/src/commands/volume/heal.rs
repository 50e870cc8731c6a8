//! `mortar volume heal`.

use super::status::{bricks, healing};
use crate::ask;
use crate::cli::Global;
use crate::output;
use clap::Args;

/// What of a volume is not in sync.
///
/// Healing needs no command: it begins by itself when a brick returns. Without `info` it is asked to look again now.
#[derive(Args, Debug)]
#[command(after_help = "Example: mortar volume heal home info")]
pub(crate) struct Heal {
    /// The volume.
    #[arg(value_name = "VOL")]
    name: String,
    /// Only tell.
    #[arg(value_parser = ["info"])]
    info: Option<String>,
}

impl Heal {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<()> {
        let name = self.name;
        let heal = match self.info {
            Some(_) => ask::ask(global, admin::VolumeHealInfo { name })?,
            None => ask::ask(global, admin::VolumeHeal { name })?,
        };
        if global.json {
            return output::json(&heal);
        }
        if heal.bricks.is_empty() {
            output::line(&format!("volume {}: every brick is in sync", heal.name))?;
        } else {
            output::line(&format!("volume {}: not in sync\n{}", heal.name, bricks(&heal.bricks)))?;
            for line in healing(&heal.bricks) {
                output::line(&line)?;
            }
        }
        for note in &heal.notes {
            output::line(&format!("note: {note}"))?;
        }
        Ok(())
    }
}

//! `mortar volume add-brick`.

use crate::ask;
use crate::cli::Global;
use crate::output;
use clap::Args;

/// Give a volume more room, while it is in use.
///
/// Bricks are taken in the order given and form sets of the volume's own shape: with `replica 2` each two of them hold the
/// same data. The directories are made if they are not there; those that are must be empty.
/// Mounted clients use the new sets at once: new directories go where most room is. What is there already stays where it is.
#[derive(Args, Debug)]
#[command(after_help = "Example: mortar volume add-brick home s4:/data/home s5:/data/home")]
pub(crate) struct AddBrick {
    /// The volume.
    #[arg(value_name = "VOL")]
    name: String,
    /// HOST:/PATH, HOST as it was probed.
    #[arg(value_name = "BRICK", required = true)]
    bricks: Vec<String>,
    /// Allow two bricks of one set on one server.
    #[arg(long)]
    force: bool,
}

impl AddBrick {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<()> {
        let AddBrick { name, bricks, force } = self;
        let answer = ask::ask(global, admin::VolumeAddBrick { name, bricks, force })?;
        let sets: Vec<String> = answer.sets.iter().map(ToString::to_string).collect();
        let plural = if sets.len() == 1 { "" } else { "s" };
        let mut line = format!("volume {} has the new set{plural} {}", answer.name, sets.join(", "));
        if !answer.serving {
            line.push_str(&format!("; not every set serves yet: see mortar volume status {}", answer.name));
        }
        output::done(global.json, &answer, &line)
    }
}

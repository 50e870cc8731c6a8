//! `mortar volume add-brick`.

use crate::ask;
use crate::cli::Global;
use crate::commands::volume::create::{Layout, layout};
use crate::error::usage;
use crate::output;
use clap::Args;

/// Give a volume more room, or more copies of what it holds, while it is in use.
///
/// Bricks are taken in the order given and form sets of the volume's own shape: with `replica 2` each two of them hold the
/// same data. The directories are made if they are not there; those that are must be empty.
/// Mounted clients use the new sets at once: new directories go where most room is. What is there already stays where it is.
///
/// With `replica N` each set gets as many bricks as it lacks to N, first those of the first set: they are filled from the
/// others, and count when they are in sync. `replica 3 arbiter 1`: the last one of each set keeps no file data.
#[derive(Args, Debug)]
#[command(
    override_usage = "mortar volume add-brick VOL [replica N [arbiter N]] BRICK... [--force]",
    after_help = "Examples: mortar volume add-brick home s4:/data/home s5:/data/home\n          \
                  mortar volume add-brick home replica 3 s3:/data/home"
)]
pub(crate) struct AddBrick {
    /// The volume.
    #[arg(value_name = "VOL")]
    name: String,
    /// replica N and arbiter N for more copies, and the bricks as HOST:/PATH, HOST as it was probed.
    #[arg(value_name = "BRICK", required = true)]
    words: Vec<String>,
    /// Allow two bricks of one new set on one server.
    #[arg(long)]
    force: bool,
}

impl AddBrick {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<()> {
        let AddBrick { name, words, force } = self;
        let Layout { replica, arbiter, stripe, bricks } = layout(&words)?;
        if stripe.is_some() {
            return usage("stripe: that is the option cluster.stripe-count of the volume");
        }
        if arbiter.is_some() && replica.is_none() {
            return usage("arbiter: write replica N before it");
        }
        let answer = ask::ask(global, admin::VolumeAddBrick { name, replica, arbiter, bricks, force })?;
        let name = &answer.name;
        let sets: Vec<String> = answer.names().map(|set| set.to_string()).collect();
        let plural = if sets.len() == 1 { "" } else { "s" };
        let mut line = match answer.replica {
            None => format!("volume {name} has the new set{plural} {}", sets.join(", ")),
            Some(n) => format!(
                "volume {name} gets replica {n}, and its new bricks are filled: see mortar volume heal {name} info"
            ),
        };
        if !answer.serving {
            line.push_str(&format!("; not every set serves yet: see mortar volume status {name}"));
        }
        output::done(global.json, &answer, &line)
    }
}

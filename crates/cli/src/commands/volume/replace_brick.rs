//! `mortar volume replace-brick`.

use crate::ask;
use crate::cli::Global;
use crate::output;
use clap::Args;

/// Give a brick's place to another directory, while the volume is in use.
///
/// The new directory is made if it is not there; else it must be empty. It is filled from its set, and the old brick leaves
/// when the new one is in sync, or at once if it was not in sync itself. What the old directory holds stays there.
#[derive(Args, Debug)]
#[command(after_help = "Example: mortar volume replace-brick home s2:/data/home s4:/data/home")]
pub(crate) struct ReplaceBrick {
    /// The volume.
    #[arg(value_name = "VOL")]
    name: String,
    /// The brick that goes, as HOST:/PATH.
    old: String,
    /// The one that takes its place, as HOST:/PATH.
    new: String,
    /// Allow a new brick on the server of the old one, if that is in sync: the set has a copy less until it is filled.
    #[arg(long)]
    force: bool,
}

impl ReplaceBrick {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<()> {
        let ReplaceBrick { name, old, new, force } = self;
        let a = ask::ask(global, admin::VolumeReplaceBrick { name, old, new, force })?;
        let what = if a.at_once {
            format!(
                "{} has the place of {} in set {} of volume {} and is filled now",
                a.new, a.old, a.set, a.name
            )
        } else {
            format!(
                "{} is filled now; {} leaves set {} of volume {} when it is in sync",
                a.new, a.old, a.set, a.name
            )
        };
        output::done(global.json, &a, &format!("{what}: see mortar volume heal {} info", a.name))
    }
}

//! `mortar volume delete`.

use crate::cli::Global;
use crate::{ask, confirm, output};
use clap::Args;

/// Forget a stopped volume. The files stay in the bricks' directories.
///
/// The bricks stay whole, and `mortar volume import` makes the volume again of them. With --release Mortar's own data is taken
/// out of them: what is left are plain directories, for a new volume or any other use. Keys of clients for the volume end, also if
/// it is imported: `mortar client add` makes others.
///
/// Asks first; without a terminal it needs --yes.
#[derive(Args, Debug)]
#[command(after_help = "Example: mortar volume delete home --yes")]
pub(crate) struct Delete {
    /// The volume.
    #[arg(value_name = "VOL")]
    name: String,
    /// Take Mortar's own data out of the bricks, also of a volume that was deleted before. It cannot be imported any more.
    #[arg(long)]
    release: bool,
}

impl Delete {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<()> {
        let Delete { name, release } = self;
        let end = if release { ", and it cannot be imported again" } else { "" };
        confirm::confirm(
            global,
            &format!(
                "Delete volume {name}? Its files stay in the bricks' directories{end}. Keys of clients for it end."
            ),
        )?;
        let answer = ask::ask(global, admin::VolumeDelete { name, release })?;
        let mut line =
            format!("volume {} is deleted; its files stay in the bricks' directories", answer.name);
        if !release {
            line.push_str(&format!("; mortar volume import {} makes it again", answer.name));
        }
        if let Some(why) = &answer.not_released {
            line.push_str(&format!("; remove .mortar by hand where this failed: {why}"));
        }
        output::done(global.json, &answer, &line)
    }
}

//! `mortar volume adopt`.

use crate::ask;
use crate::cli::Global;
use crate::output;
use crate::terminal;
use clap::Args;
use std::time::Duration;

/// Between two looks at how far it has come.
const LOOK: Duration = Duration::from_millis(300);

/// Take files that were put into bricks into the volume.
///
/// Somebody copied files into the directory of a brick, beside the volume's own. They are not the volume's: no mount shows
/// them, and there is one copy. This takes them in where they lie, with owner, mode, times, links and attributes, and makes
/// the copies, while clients work. Put them into the brick that leads its set (`mortar volume status VOL`), and end the
/// copying before. What was left says why; run it again for that, also after a crash.
#[derive(Args, Debug)]
#[command(after_help = "Example: cp -a /mnt/old/photos /data/home/ && mortar volume adopt home /photos")]
pub(crate) struct Adopt {
    /// The volume.
    #[arg(value_name = "VOL")]
    name: String,
    /// Only what is beneath this path in the volume.
    #[arg(value_name = "PATH")]
    path: Option<String>,
}

impl Adopt {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<()> {
        let Adopt { name, path } = self;
        let ask =
            |begin| ask::ask(global, admin::VolumeAdopt { name: name.clone(), path: path.clone(), begin });
        let mut report = ask(true)?;
        let bar = terminal::progress("adopted", 0);
        while report.running {
            bar.set_position(report.files + report.directories);
            std::thread::sleep(LOOK);
            report = ask(false)?;
        }
        bar.finish_and_clear();
        let mut text = format!(
            "{} files and {} directories are the volume's now, {} bytes; {} left",
            report.files, report.directories, report.bytes, report.left
        );
        for left in &report.named {
            text.push_str(&format!("\n{}: {}", left.path, left.why));
        }
        output::done(global.json, &report, &text)?;
        if report.left > 0 {
            anyhow::bail!("volume {name}: {} left where they are: see above", report.left);
        }
        Ok(())
    }
}

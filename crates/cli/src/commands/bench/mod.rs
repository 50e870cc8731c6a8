//! `mortar bench`: how fast a directory is, mounted by Mortar or not.

mod interrupt;
mod phases;

use crate::cli::Global;
use crate::output;
use crate::table::{Rows, size};
use anyhow::{Context, bail};
use clap::Args;
use interrupt::Interrupt;
use phases::{Bench as Work, Phase, Result as Measured};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// What the kernel calls our mounts.
const MORTAR: &str = "fuse.mortar";

/// Measure metadata, small files and streaming in a directory.
///
/// Works in a folder of its own there and removes it. What a phase needs is prepared without being measured.
/// Caches of names are dropped before ls, and caches of data before read-4k and seq-read, where root may do that.
#[derive(Args, Debug)]
#[command(after_help = "Example: mortar bench /mnt --phase create --phase unlink --count 10000")]
pub(crate) struct Bench {
    /// Any directory.
    dir: PathBuf,
    /// Only this phase; may be given several times.
    #[arg(long = "phase", value_enum, value_name = "NAME")]
    phases: Vec<Phase>,
    /// How many directories and files. Streams are a twentieth of it in MiB, from 16 to 1024.
    #[arg(long, default_value_t = 10_000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    count: u32,
}

impl Bench {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<()> {
        if self.dir.is_file() {
            bail!("{} is not a directory: give one", self.dir.display());
        }
        let file_system = file_system(&self.dir)?;
        if file_system != MORTAR {
            output::complain(&format!(
                "{} is no Mortar mount: this measures {file_system}",
                self.dir.display()
            ));
        }
        let mut work = Work::begin(&self.dir, self.count, Interrupt::watch()?)?;
        let mut results = Vec::new();
        for phase in Phase::ALL {
            if self.phases.is_empty() || self.phases.contains(phase) {
                results.push(work.measure(*phase)?);
            }
        }
        drop(work);
        if global.json {
            return output::json(
                &serde_json::json!({ "dir": self.dir, "file_system": file_system, "count": self.count, "phases": results }),
            );
        }
        output::line(&table(&results))
    }
}

/// The type of the file system that a directory is on, as the kernel calls it.
fn file_system(dir: &Path) -> anyhow::Result<String> {
    let device = std::fs::metadata(dir).with_context(|| dir.display().to_string())?.dev();
    let device = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").context("/proc/self/mountinfo")?;
    let of = |line: &str| {
        let (mount, kind) = line.split_once(" - ")?;
        (mount.split(' ').nth(2)? == device).then(|| kind.split(' ').next().unwrap_or_default().to_owned())
    };
    Ok(mounts.lines().find_map(of).unwrap_or_else(|| "another file system".to_owned()))
}

fn table(results: &[Measured]) -> String {
    let mut rows = Rows::new(&["PHASE", "COUNT", "SECONDS", "A SECOND", "BYTES/S"]).right(&[1, 2, 3, 4]);
    for r in results {
        let bytes = r.bytes_per_second.map_or_else(|| "-".to_owned(), |b| size(phases::whole(b)));
        rows.row([
            r.phase.clone(),
            r.operations.to_string(),
            format!("{:.3}", r.seconds),
            format!("{:.0}", r.operations_per_second),
            bytes,
        ]);
    }
    rows.text()
}

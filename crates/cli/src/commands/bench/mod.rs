//! `mortar bench`: how fast a directory is, mounted by Mortar or not.

mod phases;

use crate::cli::Global;
use crate::output;
use crate::table::{Rows, size};
use clap::Args;
use phases::{Bench as Work, Phase, Result as Measured};
use std::path::PathBuf;

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
        let mut work = Work::begin(&self.dir, self.count)?;
        let mut results = Vec::new();
        for phase in Phase::ALL {
            if self.phases.is_empty() || self.phases.contains(phase) {
                results.push(work.measure(*phase)?);
            }
        }
        drop(work);
        if global.json {
            return output::json(
                &serde_json::json!({ "dir": self.dir, "count": self.count, "phases": results }),
            );
        }
        output::line(&table(&results))
    }
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

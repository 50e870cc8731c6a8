//! `mortar demo`: a pool on this machine, a mounted replica volume, something real in it.

mod copy;
mod pool;
mod show;
mod stage;
mod stop;

use crate::output;
use anyhow::{Context, bail};
use clap::Args;
use pool::Pool;
use stage::Stage;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use stop::{Interrupted, Stop};

/// The volume's name.
const VOLUME: &str = "demo";

/// Show all of Mortar on this machine: servers on loopback addresses, a replica volume with two sets, mounted.
///
/// Copies something real in, shows where it lies and what to try next, and waits.
/// Ctrl-C ends it: unmounted, stopped, and its own temporary folder removed.
#[derive(Args, Debug)]
#[command(after_help = "Example: mortar demo --servers 3")]
pub(crate) struct Demo {
    /// Where everything lies: an empty or new directory, which stays. A temporary one unless given.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// How many servers. With one there are no replicas.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=9))]
    servers: u8,
    /// End after so many seconds instead of waiting for Ctrl-C.
    #[arg(long, value_name = "S")]
    seconds: Option<u64>,
}

impl Demo {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let folder = folder(self.dir.as_deref())?;
        let stage = Stage::new(&folder, self.dir.is_none());
        let stop = Stop::watch(stage.clone())?;
        let done = self.play(&folder, &stage, &stop);
        let ended = stage.end();
        match done {
            Err(e) if !e.is::<Interrupted>() => return Err(e),
            _ => ended?,
        }
        output::line(match self.dir {
            None => "demo: unmounted, stopped, removed",
            Some(_) => "demo: unmounted, stopped",
        })
    }

    fn play(&self, folder: &Path, stage: &Stage, stop: &Stop) -> anyhow::Result<()> {
        output::line(&format!("demo: everything lies in {}", folder.display()))?;
        let mut pool = Pool::start(folder, usize::from(self.servers), stage, stop)?;
        pool.make_volume(stop)?;
        pool.mount(stage, stop)?;
        let copied = copy::something_real(&pool.mount_dir(), stop)?;
        show::everything(&pool, &copied, stop)?;
        show::what_next(&pool, self.seconds)?;
        stop.wait(self.seconds.map(Duration::from_secs));
        Ok(())
    }
}

/// The folder, made and empty.
fn folder(given: Option<&Path>) -> anyhow::Result<PathBuf> {
    let Some(dir) = given else {
        let dir = std::env::temp_dir().join(format!("mortar-demo.{}", std::process::id()));
        fs::create_dir(&dir).with_context(|| format!("make {}", dir.display()))?;
        return Ok(dir);
    };
    fs::create_dir_all(dir).with_context(|| format!("make {}", dir.display()))?;
    let dir = dir.canonicalize().with_context(|| dir.display().to_string())?;
    if fs::read_dir(&dir)?.next().is_some() {
        bail!("{} is not empty: give --dir an empty or new directory", dir.display());
    }
    Ok(dir)
}

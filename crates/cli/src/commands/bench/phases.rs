//! The phases of the benchmark.

use super::interrupt::Interrupt;
use crate::terminal::progress;
use anyhow::{Context, bail};
use clap::ValueEnum;
use indicatif::ProgressBar;
use serde::Serialize;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

const SMALL: usize = 4096;
const PIECE: usize = 1 << 20;

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(super) enum Phase {
    /// Make directories.
    Mkdir,
    /// List them with their attributes.
    Ls,
    /// Remove them.
    Rmdir,
    /// Make empty files.
    Create,
    /// Rename them.
    Rename,
    /// Remove them.
    Unlink,
    /// Write files of 4 KiB.
    #[value(name = "write-4k")]
    Write4k,
    /// Read them back.
    #[value(name = "read-4k")]
    Read4k,
    /// Write one large file, and fsync.
    SeqWrite,
    /// Read it back.
    SeqRead,
}

impl Phase {
    pub(super) const ALL: &[Phase] = &[
        Phase::Mkdir,
        Phase::Ls,
        Phase::Rmdir,
        Phase::Create,
        Phase::Rename,
        Phase::Unlink,
        Phase::Write4k,
        Phase::Read4k,
        Phase::SeqWrite,
        Phase::SeqRead,
    ];

    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |v| v.get_name().to_owned())
    }

    /// What has to be there before.
    fn needs(self) -> Tree {
        match self {
            Phase::Ls | Phase::Rmdir => Tree::Dirs,
            Phase::Rename | Phase::Unlink => Tree::Files,
            Phase::Read4k => Tree::Small,
            Phase::SeqRead => Tree::Large,
            Phase::Mkdir | Phase::Create | Phase::Write4k | Phase::SeqWrite => Tree::Empty,
        }
    }
}

/// What is in the folder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Tree {
    Empty,
    Dirs,
    Files,
    Renamed,
    Small,
    Large,
}

/// A phase's figures.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Result {
    pub(super) phase: String,
    pub(super) operations: u64,
    pub(super) seconds: f64,
    pub(super) operations_per_second: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bytes_per_second: Option<f64>,
}

/// A figure without its fraction.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "figures are positive and far from the bounds"
)]
pub(super) fn whole(figure: f64) -> u64 {
    figure as u64
}

/// A benchmark under way; its folder goes with it.
#[derive(Debug)]
pub(super) struct Bench {
    folder: PathBuf,
    count: u32,
    tree: Tree,
    data: Vec<u8>,
    interrupt: Interrupt,
}

impl Drop for Bench {
    fn drop(&mut self) {
        if let Err(e) = fs::remove_dir_all(&self.folder) {
            crate::output::complain(&format!("remove {}: {e}: remove it by hand", self.folder.display()));
        }
    }
}

impl Bench {
    pub(super) fn begin(dir: &Path, count: u32, interrupt: Interrupt) -> anyhow::Result<Bench> {
        let folder = dir.join(format!("mortar-bench.{}", std::process::id()));
        fs::create_dir(&folder).with_context(|| format!("make {}", folder.display()))?;
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut byte = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        let data = (0..PIECE).map(|_| byte()).collect();
        Ok(Bench { folder, count, tree: Tree::Empty, data, interrupt })
    }

    /// Prepares what the phase needs, then measures it.
    pub(super) fn measure(&mut self, phase: Phase) -> anyhow::Result<Result> {
        self.prepare(phase)?;
        let streams = matches!(phase, Phase::SeqWrite | Phase::SeqRead);
        let operations = if streams { self.pieces() } else { u64::from(self.count) };
        let bar = progress(&phase.name(), operations);
        let begun = Instant::now();
        self.work(phase, &bar).with_context(|| format!("phase {}", phase.name()))?;
        let seconds = begun.elapsed().as_secs_f64().max(1e-9);
        bar.finish_and_clear();
        let each = match phase {
            Phase::Write4k | Phase::Read4k => SMALL as u64,
            Phase::SeqWrite | Phase::SeqRead => PIECE as u64,
            _ => 0,
        };
        let rate = |n: u64| n as f64 / seconds;
        Ok(Result {
            phase: phase.name(),
            operations,
            seconds,
            operations_per_second: rate(operations),
            bytes_per_second: (each > 0).then(|| rate(operations * each)),
        })
    }

    fn pieces(&self) -> u64 {
        u64::from(self.count / 20).clamp(16, 1024)
    }

    fn path(&self, kind: char, i: u32) -> PathBuf {
        self.folder.join(format!("{kind}{i:07}"))
    }

    fn prepare(&mut self, phase: Phase) -> anyhow::Result<()> {
        let needed = phase.needs();
        let fits = self.tree == needed || (phase == Phase::Unlink && self.tree == Tree::Renamed);
        if !fits {
            fs::remove_dir_all(&self.folder)?;
            fs::create_dir(&self.folder)?;
            let hidden = ProgressBar::hidden();
            match needed {
                Tree::Empty | Tree::Renamed => {}
                Tree::Dirs => self.work(Phase::Mkdir, &hidden)?,
                Tree::Files => self.work(Phase::Create, &hidden)?,
                Tree::Small => self.work(Phase::Write4k, &hidden)?,
                Tree::Large => self.work(Phase::SeqWrite, &hidden)?,
            }
            self.tree = needed;
        }
        match phase {
            Phase::Ls => drop_caches("2"),
            Phase::Read4k | Phase::SeqRead => drop_caches("3"),
            _ => {}
        }
        Ok(())
    }

    fn work(&mut self, phase: Phase, bar: &ProgressBar) -> anyhow::Result<()> {
        match phase {
            Phase::Mkdir => self.each(bar, 'd', |p| fs::create_dir(p))?,
            Phase::Ls => self.list(bar)?,
            Phase::Rmdir => self.each(bar, 'd', |p| fs::remove_dir(p))?,
            Phase::Create => self.each(bar, 'f', |p| File::create_new(p).map(drop))?,
            Phase::Rename => self.each(bar, 'f', |p| fs::rename(p, renamed(p)))?,
            Phase::Unlink if self.tree == Tree::Renamed => self.each(bar, 'g', |p| fs::remove_file(p))?,
            Phase::Unlink => self.each(bar, 'f', |p| fs::remove_file(p))?,
            Phase::Write4k => {
                let small = self.data.get(..SMALL).unwrap_or_default();
                self.each(bar, 's', |p| File::create_new(p)?.write_all(small))?;
            }
            Phase::Read4k => self.read_small(bar)?,
            Phase::SeqWrite => self.stream(bar)?,
            Phase::SeqRead => self.read_stream(bar)?,
        }
        self.tree = match phase {
            Phase::Mkdir | Phase::Ls => Tree::Dirs,
            Phase::Create => Tree::Files,
            Phase::Rename => Tree::Renamed,
            Phase::Write4k | Phase::Read4k => Tree::Small,
            Phase::SeqWrite | Phase::SeqRead => Tree::Large,
            Phase::Rmdir | Phase::Unlink => Tree::Empty,
        };
        Ok(())
    }

    fn each(
        &self,
        bar: &ProgressBar,
        kind: char,
        what: impl Fn(&Path) -> std::io::Result<()>,
    ) -> anyhow::Result<()> {
        for i in 0..self.count {
            self.interrupt.check()?;
            let path = self.path(kind, i);
            what(&path).with_context(|| path.display().to_string())?;
            bar.inc(1);
        }
        Ok(())
    }

    fn list(&self, bar: &ProgressBar) -> anyhow::Result<()> {
        let mut seen = 0;
        for entry in fs::read_dir(&self.folder)? {
            self.interrupt.check()?;
            entry?.metadata()?;
            seen += 1;
            bar.inc(1);
        }
        if seen != self.count {
            bail!("{seen} directories are listed where {} were made: entries are lost", self.count);
        }
        Ok(())
    }

    fn read_small(&self, bar: &ProgressBar) -> anyhow::Result<()> {
        let mut buffer = Vec::with_capacity(SMALL + 1);
        for i in 0..self.count {
            self.interrupt.check()?;
            let path = self.path('s', i);
            buffer.clear();
            File::open(&path)
                .and_then(|mut f| f.read_to_end(&mut buffer))
                .with_context(|| path.display().to_string())?;
            if Some(buffer.as_slice()) != self.data.get(..SMALL) {
                bail!("{}: other bytes come back than were written", path.display());
            }
            bar.inc(1);
        }
        Ok(())
    }

    fn stream(&self, bar: &ProgressBar) -> anyhow::Result<()> {
        let path = self.path('l', 0);
        let mut file = File::create_new(&path).with_context(|| path.display().to_string())?;
        for _ in 0..self.pieces() {
            self.interrupt.check()?;
            file.write_all(&self.data)?;
            bar.inc(1);
        }
        Ok(file.sync_all()?)
    }

    fn read_stream(&self, bar: &ProgressBar) -> anyhow::Result<()> {
        let path = self.path('l', 0);
        let mut file = File::open(&path).with_context(|| path.display().to_string())?;
        let mut piece = vec![0; PIECE];
        for _ in 0..self.pieces() {
            self.interrupt.check()?;
            file.read_exact(&mut piece)?;
            if piece != self.data {
                bail!("{}: other bytes come back than were written", path.display());
            }
            bar.inc(1);
        }
        Ok(())
    }
}

fn renamed(path: &Path) -> PathBuf {
    let name = path.file_name().map(|n| n.to_string_lossy().replacen('f', "g", 1)).unwrap_or_default();
    path.with_file_name(name)
}

/// Only root can, and it is no matter if not.
fn drop_caches(what: &str) {
    rustix::fs::sync();
    if let Err(e) = fs::write("/proc/sys/vm/drop_caches", what) {
        tracing::debug!("drop caches: {e}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_phase_alone_and_all_in_order() {
        let dir = std::env::temp_dir();
        for phase in Phase::ALL {
            let result = Bench::begin(&dir, 3, Interrupt::default()).unwrap().measure(*phase).unwrap();
            assert!(result.operations >= 3 && result.seconds > 0.0, "{result:?}");
        }
        let mut all = Bench::begin(&dir, 2, Interrupt::default()).unwrap();
        let folder = all.folder.clone();
        for phase in Phase::ALL {
            all.measure(*phase).unwrap();
        }
        drop(all);
        assert!(!folder.exists());
    }
}

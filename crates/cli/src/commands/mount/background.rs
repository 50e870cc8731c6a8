//! A mount that stays when the command returns: the same program again, in a session of its own.
//!
//! The child says [`READY`] on its stdout once the mount answers; if it ends before, its stderr says why.

use super::{MountCommand, descriptors};
use anyhow::{Context, bail};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};

/// The line that the child prints.
pub(super) const READY: &str = "ready";

/// Starts the child and waits until its mount answers.
///
/// # Errors
/// The line that the child printed.
pub(super) fn start(wanted: &MountCommand, key: Option<&Path>) -> anyhow::Result<()> {
    let program = std::env::current_exe().context("find this program")?;
    let mut command = Command::new(program);
    command.arg("mount").arg("--foreground").arg("--report");
    for words in &wanted.options {
        command.arg("-o").arg(words);
    }
    if let Some(key) = key {
        command.arg("--key").arg(std::path::absolute(key)?);
    }
    if let Some(log) = &wanted.log.log {
        command.arg("--log").arg(std::path::absolute(log)?);
    }
    let level = clap::ValueEnum::to_possible_value(&wanted.log.log_level);
    command.arg("--log-level").arg(level.map_or_else(|| "info".to_owned(), |l| l.get_name().to_owned()));
    if let Some(parent) = wanted.die_with {
        command.arg("--die-with").arg(parent.to_string());
    }
    command.arg("--").arg(&wanted.source).arg(&wanted.dir);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    descriptors::keep_from_children().context("keep open files from the process that serves the mount")?;
    let mut child = command.spawn().context("start the process that serves the mount")?;
    let (Some(out), Some(mut err)) = (child.stdout.take(), child.stderr.take()) else {
        bail!("start the process that serves the mount: it has no pipes");
    };
    let mut line = String::new();
    BufReader::new(out).read_line(&mut line)?;
    if line.trim_end() == READY {
        return Ok(());
    }
    let mut why = String::new();
    err.read_to_string(&mut why)?;
    let status = child.wait()?;
    let last = why.lines().map(|l| l.trim().trim_start_matches("mortar: ")).rfind(|l| !l.is_empty());
    match last {
        Some(last) => bail!("{last}"),
        None => bail!(
            "mount {}: its process ended with {status}: use --log FILE to see why",
            wanted.dir.display()
        ),
    }
}

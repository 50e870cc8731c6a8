//! Logs: one line an event, to stderr or a file.

mod repeats;

use anyhow::Context;
use clap::{Args, ValueEnum};
use std::fs::File;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Mutex;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

/// How much is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Level {
    /// A person must look.
    Error,
    /// Something is odd.
    Warn,
    /// What happens.
    Info,
    /// And why.
    Debug,
    /// And every step.
    Trace,
}

/// Where logs go.
#[derive(Args, Clone, Debug)]
pub struct LogArgs {
    /// Log into this file instead of stderr.
    #[arg(long, value_name = "FILE")]
    pub(crate) log: Option<PathBuf>,
    /// How much to log.
    #[arg(long, value_enum, default_value = "info", value_name = "LEVEL")]
    pub(crate) log_level: Level,
}

impl LogArgs {
    /// Starts logging.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn start(&self) -> anyhow::Result<()> {
        let level = match self.log_level {
            Level::Error => LevelFilter::ERROR,
            Level::Warn => LevelFilter::WARN,
            Level::Info => LevelFilter::INFO,
            Level::Debug => LevelFilter::DEBUG,
            Level::Trace => LevelFilter::TRACE,
        };
        // openraft calls every peer that is away for a moment an error, and tells of every vote: that is for debugging.
        let raft = if level > LevelFilter::INFO { level } else { LevelFilter::OFF };
        let filter = tracing_subscriber::EnvFilter::default()
            .add_directive(level.into())
            .add_directive(format!("openraft={raft}").parse()?);
        // Who asks for every step gets every step.
        let repeats = (level < LevelFilter::DEBUG).then(repeats::Repeats::default);
        let (to, colours) = match &self.log {
            Some(path) => {
                let opened = File::options().create(true).append(true).open(path);
                let file = opened.with_context(|| format!("log file {}", path.display()))?;
                (BoxMakeWriter::new(Mutex::new(file)), false)
            }
            None => (BoxMakeWriter::new(std::io::stderr), std::io::stderr().is_terminal()),
        };
        let lines = tracing_subscriber::fmt::layer().with_writer(to).with_ansi(colours);
        tracing_subscriber::registry().with(filter).with(lines.with_filter(repeats)).init();
        Ok(())
    }
}

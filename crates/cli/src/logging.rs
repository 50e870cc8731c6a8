//! Logs: one line an event, to stderr or a file.

mod fields;
mod file;
mod repeats;
mod syslog;

use clap::{Args, ValueEnum};
use file::LogFile;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use syslog::Syslog;
use tokio::signal::unix::{SignalKind, signal};
use tracing::Subscriber;
use tracing_subscriber::filter::LevelFilter;
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
    /// Log into this file. Unless given to stderr, of a mount in the background to the machine's log.
    #[arg(long, value_name = "FILE")]
    pub(crate) log: Option<PathBuf>,
    /// How much to log.
    #[arg(long, value_enum, default_value = "info", value_name = "LEVEL")]
    pub(crate) log_level: Level,
}

/// A log that was started.
#[derive(Debug)]
pub struct Log {
    file: Option<LogFile>,
}

/// Where lines go.
enum Destination {
    Stderr,
    File(LogFile),
    Machine(Syslog),
}

impl LogArgs {
    /// Starts logging, into the file that was named, else to stderr.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn start(&self) -> anyhow::Result<Log> {
        self.start_to(self.file()?.map_or(Destination::Stderr, Destination::File))
    }

    /// Starts logging, into the file that was named, else into the machine's log, if it has one.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub(crate) fn start_in_background(&self, name: &str) -> anyhow::Result<Log> {
        if let Some(file) = self.file()? {
            return self.start_to(Destination::File(file));
        }
        match Syslog::connect(Path::new(syslog::SOCKET), name) {
            Ok(machine) => self.start_to(Destination::Machine(machine)),
            Err(_) => Ok(Log { file: None }),
        }
    }

    fn file(&self) -> anyhow::Result<Option<LogFile>> {
        self.log.as_deref().map(LogFile::open).transpose()
    }

    fn start_to(&self, to: Destination) -> anyhow::Result<Log> {
        let (subscriber, file) = subscriber(self.log_level, to)?;
        subscriber.init();
        Ok(Log { file })
    }
}

/// What takes lines and writes them there; and the file, if it is one.
fn subscriber(
    level: Level,
    to: Destination,
) -> anyhow::Result<(impl Subscriber + Send + Sync + 'static, Option<LogFile>)> {
    let level = match level {
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
    let lines = tracing_subscriber::fmt::layer().fmt_fields(fields::Fields);
    let (lines, file) = match to {
        Destination::File(file) => (lines.with_ansi(false).with_writer(file.clone()).boxed(), Some(file)),
        // It has times and levels of its own.
        Destination::Machine(machine) => {
            let lines = lines.with_ansi(false).without_time().with_level(false);
            (lines.with_writer(machine).boxed(), None)
        }
        Destination::Stderr => {
            let colours = std::io::stderr().is_terminal();
            (lines.with_ansi(colours).with_writer(std::io::stderr).boxed(), None)
        }
    };
    Ok((tracing_subscriber::registry().with(filter).with(lines.with_filter(repeats)), file))
}

impl Log {
    /// Has SIGHUP open the file anew, on a thread of its own: privileges are to be given up before.
    ///
    /// # Errors
    /// The signal cannot be waited for.
    pub fn reopen_on_hangup(self) -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let mut hangups = {
            let _inside = runtime.enter();
            signal(SignalKind::hangup())?
        };
        let watch = async move {
            while hangups.recv().await.is_some() {
                let Some(file) = &self.file else { continue };
                match file.reopen() {
                    Ok(()) => tracing::info!("the log file is opened anew"),
                    Err(e) => tracing::warn!("open the log file anew: {e}"),
                }
            }
        };
        std::thread::Builder::new().name("mortar-log".to_owned()).spawn(move || runtime.block_on(watch))?;
        Ok(())
    }
}

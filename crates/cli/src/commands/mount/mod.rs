//! `mortar mount`: a volume as a directory.

mod background;
mod descriptors;
pub(crate) mod helper;
mod serve;

use crate::error::usage;
use crate::logging::{Level, LogArgs};
use crate::output;
use crate::panics::end_at_panics;
use crate::parent::die_with;
use clap::{Args, ValueEnum};
use mount::{MountOptions, Options};
use std::path::{Path, PathBuf};

/// Mount a volume. Returns when the mount answers; `umount DIR` ends it.
///
/// Also as `mount -t mortar HOST:/VOL DIR` and in fstab, where /sbin/mount.mortar is a link to this program.
/// The key that it shows: the option `key=FILE` or `--key FILE`, else /etc/mortar/VOLUME.key; root needs none where a server of the pool runs.
/// The mount goes on by itself when a server fails: applications see a pause; with `soft=SECONDS` calls fail after that time.
/// While a volume is stopped, calls wait until it is started again; with `soft` they fail at once. The log goes to the machine's log (syslog or the journal)
/// unless a file is named.
/// With the option `remount` the flags of a mount are changed (`ro`, `noatime`, ...) while it is in use. Its other options stay:
/// `soft`, `key` and the like are refused there if they say something else than it is mounted with.
#[derive(Args, Debug)]
#[command(after_help = "Example: mortar mount server1,server2:/home /mnt -o noatime\n\
                        In fstab: server1,server2:/home /mnt mortar noatime,_netdev,nofail,x-systemd.automount 0 0")]
pub(crate) struct MountCommand {
    /// Any servers of the pool, and the volume: HOST[:PORT][,HOST...]:/VOL[/SUBDIR].
    source: String,
    /// Where: a directory.
    dir: PathBuf,
    /// Options between commas: ro, noatime, soft=SECONDS, remount, ... (a wrong one is answered with the list).
    #[arg(short = 'o', value_name = "OPTIONS")]
    options: Vec<String>,
    /// Stay in the foreground; SIGTERM and SIGINT unmount.
    #[arg(long)]
    foreground: bool,
    #[command(flatten)]
    log: LogArgs,
    /// In the background: begin a session, tell the waiting parent through stdout, and let go of it.
    #[arg(long, hide = true)]
    report: bool,
    /// In the foreground: print `ready DIR` once the mount answers.
    #[arg(long, hide = true)]
    tell_ready: bool,
    /// End when the process of this number, which started us, ends.
    #[arg(long, value_name = "PID", hide = true)]
    die_with: Option<i32>,
}

impl MountCommand {
    /// `key`: the file of the option `--key`, which every command has.
    pub(crate) fn run(mut self, key: Option<&Path>) -> anyhow::Result<()> {
        let mut wanted = self.checked()?;
        if let Some(path) = key {
            wanted.options.set_key(path)?;
        }
        if let Some(level) = wanted.options.log_level.as_deref().and_then(|l| Level::from_str(l, true).ok()) {
            self.log.log_level = level;
        }
        wanted.options.log_level = self.log.log_level.to_possible_value().map(|l| l.get_name().to_owned());
        match &self.log.log {
            Some(log) => wanted.options.set_log(log)?,
            None => self.log.log = wanted.options.log.as_ref().map(PathBuf::from),
        }
        if wanted.options.remount {
            return Ok(mount::remount(&self.dir, &wanted.options)?);
        }
        if !self.foreground {
            if mount::mounted_at(&self.dir) == wanted.options.fsname {
                return output::line(&format!("{} is mounted already: nothing to do", self.dir.display()));
            }
            return background::start(&self, key);
        }
        end_at_panics();
        die_with(self.die_with)?;
        serve::serve(wanted, &self)
    }

    /// What is wrong with the words is told before any process is started.
    fn checked(&self) -> anyhow::Result<MountOptions> {
        let source = match mount::source::parse(&self.source) {
            Ok(source) => source,
            Err(e) => return usage(e.to_string()),
        };
        let mut options = Options::default();
        for words in &self.options {
            if let Err(e) = options.apply(words) {
                return usage(e.to_string());
            }
        }
        // As it was written: so mount(8) finds it again in fstab.
        options.fsname.get_or_insert_with(|| self.source.clone());
        Ok(MountOptions { source, dir: self.dir.clone(), options })
    }
}

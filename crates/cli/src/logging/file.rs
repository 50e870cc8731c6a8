//! A log in a file that can be moved away: SIGHUP has it opened anew, as log rotation expects.

use anyhow::Context;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tracing_subscriber::fmt::MakeWriter;

/// The file. Clones are the same log.
#[derive(Clone, Debug)]
pub(super) struct LogFile {
    path: PathBuf,
    file: Arc<Mutex<File>>,
}

impl LogFile {
    /// Opens it; made if it is not there.
    pub(super) fn open(path: &Path) -> anyhow::Result<LogFile> {
        let path = std::path::absolute(path)?;
        let file = append(&path).with_context(|| format!("log file {}", path.display()))?;
        Ok(LogFile { path, file: Arc::new(Mutex::new(file)) })
    }

    /// From now on it is the file that has its name now.
    pub(super) fn reopen(&self) -> io::Result<()> {
        let file = append(&self.path)?;
        *self.file.lock().unwrap_or_else(PoisonError::into_inner) = file;
        Ok(())
    }
}

/// A server makes files for its users with a umask of 0: the log must not be everybody's to write for that.
fn append(path: &Path) -> io::Result<File> {
    File::options().create(true).append(true).mode(0o640).open(path)
}

/// One line on its way into the file.
pub(super) struct Line<'a>(&'a Mutex<File>);

impl Write for Line<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for LogFile {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line(&self.file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::Mode;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_log_that_was_moved_away_begins_anew() {
        let path = std::env::temp_dir().join(format!("mortar-log-{}", std::process::id()));
        let moved = path.with_extension("1");
        let log = LogFile::open(&path).unwrap();
        log.make_writer().write_all(b"one\n").unwrap();
        fs::rename(&path, &moved).unwrap();
        log.make_writer().write_all(b"two\n").unwrap();
        log.reopen().unwrap();
        log.make_writer().write_all(b"three\n").unwrap();
        assert_eq!(fs::read_to_string(&moved).unwrap(), "one\ntwo\n");
        assert_eq!(fs::read_to_string(&path).unwrap(), "three\n");
        for file in [path, moved] {
            fs::remove_file(file).unwrap();
        }
    }

    #[test]
    fn only_its_owner_writes_a_log_whatever_the_umask() {
        let path = std::env::temp_dir().join(format!("mortar-log-mode-{}", std::process::id()));
        let log = LogFile::open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let umask = rustix::process::umask(Mode::empty());
        let opened = log.reopen();
        rustix::process::umask(umask);
        opened.unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o640, "{mode:o}");
        fs::remove_file(&path).unwrap();
    }
}

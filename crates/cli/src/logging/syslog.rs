//! The log of the machine (syslog, or systemd's journal, which listens at the same place): for what runs in the background.

use std::io::{self, Write};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

/// Where the log of a machine listens.
pub(super) const SOCKET: &str = "/dev/log";
/// Daemons, as syslog counts.
const FACILITY: u8 = 3 << 3;

/// A connection to it. Lines are lost while nobody listens.
#[derive(Debug)]
pub(super) struct Syslog {
    socket: UnixDatagram,
    name: String,
}

impl Syslog {
    /// Connects. `name`: what lines begin with.
    pub(super) fn connect(socket: &Path, name: &str) -> io::Result<Syslog> {
        let connected = UnixDatagram::unbound()?;
        connected.connect(socket)?;
        // Nobody waits for a log.
        connected.set_nonblocking(true)?;
        Ok(Syslog { socket: connected, name: format!("{name}[{}]", std::process::id()) })
    }
}

/// One line: sent as a whole when it ends.
pub(super) struct Line<'a> {
    to: &'a Syslog,
    text: Vec<u8>,
}

impl Write for Line<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line<'_> {
    fn drop(&mut self) {
        let text = self.text.trim_ascii_end();
        // There is nowhere to say that it was not taken.
        let _lost = self.to.socket.send(text);
    }
}

impl Syslog {
    fn line(&self, severity: u8) -> Line<'_> {
        Line { to: self, text: format!("<{}>{}: ", FACILITY | severity, self.name).into_bytes() }
    }
}

impl<'a> MakeWriter<'a> for Syslog {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        self.line(6)
    }

    fn make_writer_for(&'a self, event: &Metadata<'_>) -> Line<'a> {
        self.line(match *event.level() {
            Level::ERROR => 3,
            Level::WARN => 4,
            Level::INFO => 6,
            Level::DEBUG | Level::TRACE => 7,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_message_with_its_weight() {
        let path = std::env::temp_dir().join(format!("mortar-syslog-{}", std::process::id()));
        let machine = UnixDatagram::bind(&path).unwrap();
        let log = Syslog::connect(&path, "mortar-mount").unwrap();
        let mut line = log.line(4);
        line.write_all(b"the disk ").unwrap();
        line.write_all(b"is full\n").unwrap();
        drop(line);
        let mut heard = [0; 200];
        let length = machine.recv(&mut heard).unwrap();
        let expected = format!("<28>mortar-mount[{}]: the disk is full", std::process::id());
        assert_eq!(String::from_utf8_lossy(&heard[..length]), expected);
        std::fs::remove_file(&path).unwrap();
        assert!(Syslog::connect(Path::new("/no/such/log"), "mortar-mount").is_err());
    }
}

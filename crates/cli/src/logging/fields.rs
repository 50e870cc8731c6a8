//! What a line says, with control characters made visible, whoever writes it: it may hold names and texts from frames, from users
//! and from disks.

use ids::Visible;
use std::fmt::{self, Debug, Write};
use tracing::field::{Field, Visit};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::Writer;

/// Messages and fields (`name=value`) of lines and of spans.
#[derive(Debug)]
pub(super) struct Fields;

impl<'w> FormatFields<'w> for Fields {
    fn format_fields<R: RecordFields>(&self, to: Writer<'w>, fields: R) -> fmt::Result {
        let mut line = Line { to, is_begun: false, written: Ok(()) };
        fields.record(&mut line);
        line.written
    }
}

struct Line<'w> {
    to: Writer<'w>,
    is_begun: bool,
    written: fmt::Result,
}

impl Line<'_> {
    fn write(&mut self, name: &str, value: &dyn Debug) -> fmt::Result {
        if std::mem::replace(&mut self.is_begun, true) {
            self.to.write_char(' ')?;
        }
        match name {
            "message" => {}
            // The name in italics and the sign dim.
            name if self.to.has_ansi_escapes() => write!(self.to, "\x1b[3m{name}\x1b[0m\x1b[2m=\x1b[0m")?,
            name => write!(self.to, "{name}=")?,
        }
        write!(Visible(&mut self.to), "{value:?}")
    }
}

impl Visit for Line<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Where a line of the crate `log` comes from is known before.
        if self.written.is_ok() && !field.name().starts_with("log.") {
            self.written = self.write(field.name(), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::file::LogFile;
    use super::super::{Destination, Level, subscriber};
    use std::fs;

    /// What a log file holds after these lines.
    fn logged(name: &str, write: impl FnOnce()) -> String {
        let path = std::env::temp_dir().join(format!("mortar-log-{name}-{}", std::process::id()));
        let to = Destination::File(LogFile::open(&path).unwrap());
        tracing::subscriber::with_default(subscriber(Level::Info, to).unwrap().0, write);
        let text = fs::read_to_string(&path).unwrap();
        fs::remove_file(&path).unwrap();
        text
    }

    #[test]
    fn nobody_writes_into_a_log_what_is_not_a_line_of_ours() {
        let name = "x\n2026-01-01 INFO all is well\r\u{1b}[2J\u{9b}1m\u{7f}\0\t.";
        let text = logged("odd", || {
            let error = std::io::Error::other(name);
            tracing::warn!(host = name, file = %name, odd = ?name, bytes = ?name.as_bytes().first(), "cannot open {name}: {error}");
            tracing::info_span!("call", file = %name)
                .in_scope(|| tracing::error!(error = &error as &dyn std::error::Error));
            tracing::info!("{name}");
        });
        assert_eq!(text.lines().count(), 3, "{text}");
        assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
        let shown = "x\\n2026-01-01 INFO all is well\\r\\u{1b}[2J\\u{9b}1m\\u{7f}\\u{0}\\t.";
        let plain = format!("file={shown} ");
        assert!(text.contains(&format!("cannot open {shown}: {shown} host=\"x\\n")), "{text}");
        assert!(text.contains(&plain) && text.contains(&format!("error={shown}")), "{text}");
    }

    #[test]
    fn a_plain_line_stays_as_it_is() {
        let text = logged("plain", || tracing::info!(volume = "v", set = 3, dir = %"/a b\\é", "it's \"up\""));
        let (_, rest) = text.split_once("INFO ").unwrap();
        assert!(rest.ends_with(": it's \"up\" volume=\"v\" set=3 dir=/a b\\é\n"), "{rest}");
    }
}

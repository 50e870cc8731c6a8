//! Events in the state folder: one JSON object a line, in a file and the one before it.
//!
//! They are not synced: a power cut may take the latest. A line that is not whole is left out.

use admin::Event;
use std::fs::{self, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Bytes of a file; a new one is begun then.
const MOST: u64 = 1 << 20;

/// Where events are kept.
#[derive(Clone, Debug)]
pub(super) struct EventFile {
    new: PathBuf,
    old: PathBuf,
}

impl EventFile {
    pub(super) fn new(folder: &Path) -> EventFile {
        EventFile { new: folder.join("events"), old: folder.join("events.old") }
    }

    /// The newest events, oldest first.
    pub(super) fn read(&self, most: usize) -> Vec<Event> {
        let mut events: Vec<Event> = [&self.old, &self.new].into_iter().flat_map(|f| read(f)).collect();
        let first = events.len().saturating_sub(most);
        events.split_off(first)
    }

    /// Adds events.
    pub(super) fn append(&self, events: &[Event]) -> std::io::Result<()> {
        if events.is_empty() {
            return Ok(());
        }
        let mut file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(&self.new)?;
        let mut lines = Vec::new();
        let end = file.seek(SeekFrom::End(0))?;
        if end > 0 {
            let mut last = [0];
            file.seek(SeekFrom::Start(end - 1))?;
            file.read_exact(&mut last)?;
            if last != *b"\n" {
                lines.push(b'\n');
            }
        }
        for event in events {
            serde_json::to_writer(&mut lines, event)?;
            lines.push(b'\n');
        }
        file.write_all(&lines)?;
        if end + lines.len() as u64 > MOST {
            fs::rename(&self.new, &self.old)?;
        }
        Ok(())
    }
}

fn read(file: &Path) -> Vec<Event> {
    let mut bytes = Vec::new();
    let opened = fs::File::open(file).and_then(|f| f.take(2 * MOST).read_to_end(&mut bytes));
    if opened.is_err() {
        return Vec::new();
    }
    bytes.split(|b| *b == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_bounded_and_a_torn_line_costs_itself_only() {
        let dir = std::env::temp_dir().join(format!("mortar-event-file.{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let file = EventFile::new(&dir);
        let event = |n: u64| Event { at_ms: n, text: "x".repeat(400), ..Event::default() };
        file.append(&[event(1)]).unwrap();
        let mut bytes = fs::read(&file.new).unwrap();
        bytes.extend(b"{\"at_ms\": 2, \"te");
        fs::write(&file.new, bytes).unwrap();
        file.append(&[event(3)]).unwrap();
        let times = |f: &EventFile| f.read(usize::MAX).iter().map(|e| e.at_ms).collect::<Vec<_>>();
        assert_eq!(times(&file), [1, 3]);
        for n in 4..10_000 {
            file.append(&[event(n)]).unwrap();
        }
        let kept = times(&file);
        assert_eq!(kept.last(), Some(&9999));
        assert!((2000..6000).contains(&kept.len()) && kept.is_sorted(), "{}", kept.len());
        let size = |f: &Path| fs::metadata(f).map_or(0, |m| m.len());
        assert!(size(&file.new) <= MOST && size(&file.old) <= MOST + 1000);
        assert_eq!(file.read(2).iter().map(|e| e.at_ms).collect::<Vec<_>>(), [9998, 9999]);
        fs::remove_dir_all(&dir).unwrap();
    }
}

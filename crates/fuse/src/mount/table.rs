//! The kernel's list of mounts.

use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// A mount as listed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Listed {
    /// Device number, one per live file system.
    pub(super) device: String,
    pub(super) fs_type: String,
    pub(super) source: String,
    /// Those of the file system, between commas.
    pub(super) options: String,
}

/// The uppermost mount on a path without symbolic links; none also if the
/// list cannot be read.
pub(super) fn top(path: &Path) -> Option<Listed> {
    let table = std::fs::read("/proc/self/mountinfo").ok()?;
    top_in(&table, path)
}

fn top_in(table: &[u8], path: &Path) -> Option<Listed> {
    let lines = table.split(|byte| *byte == b'\n');
    lines.filter_map(|line| parse(line, path)).next_back()
}

/// `36 35 98:0 /root /mount/point rw,noatime shared:1 - type source options`
fn parse(line: &[u8], path: &Path) -> Option<Listed> {
    let mut words = line.split(|byte| *byte == b' ');
    let device = words.nth(2)?;
    if unescape(words.nth(1)?) != path.as_os_str().as_bytes() {
        return None;
    }
    let mut words = words.skip_while(|word| *word != b"-").skip(1);
    let mut text = || Some(String::from_utf8_lossy(&unescape(words.next()?)).into_owned());
    let (fs_type, source, options) = (text()?, text()?, text()?);
    let device = OsStr::from_bytes(device).to_string_lossy().into_owned();
    Some(Listed { device, fs_type, source, options })
}

/// Space, tab, newline and backslash are listed as `\` and three octal digits.
fn unescape(word: &[u8]) -> Vec<u8> {
    let mut out = std::ffi::OsString::new().into_vec();
    let mut rest = word;
    while let [first, tail @ ..] = rest {
        let escaped = if *first == b'\\' { tail.first_chunk::<3>().and_then(octal) } else { None };
        let (byte, next) = match escaped {
            Some(byte) => (byte, tail.get(3..).unwrap_or_default()),
            None => (*first, tail),
        };
        out.push(byte);
        rest = next;
    }
    out
}

fn octal(digits: &[u8; 3]) -> Option<u8> {
    let text = std::str::from_utf8(digits).ok()?;
    u8::from_str_radix(text, 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_mount_on_a_path_is_found() {
        let table = b"22 1 0:20 / /mnt/a\\040b rw - ext4 /dev/x rw\n\
            23 1 0:21 / /mnt/a\\040b rw shared:4 master:2 - fuse.mortar h:/v rw,user_id=0\n\
            24 1 0:22 / /mnt rw - tmpfs tmpfs rw\nbroken line\n";
        let top = top_in(table, Path::new("/mnt/a b")).unwrap();
        assert_eq!((&*top.device, &*top.fs_type, &*top.source), ("0:21", "fuse.mortar", "h:/v"));
        assert_eq!(top.options, "rw,user_id=0");
        assert_eq!(top_in(table, Path::new("/mnt/a")), None);
    }
}

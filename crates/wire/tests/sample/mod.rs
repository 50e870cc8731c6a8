//! Frozen samples: files with the bytes of one value, and the value as Rust's `Debug` shows it.
//!
//! ```text
//! bytes: 0102 ...
//! value:
//! Lookup { ... }
//! ```
//!
//! Bytes are never changed: what old programs wrote has to be read for ever. With UPDATE=1 a test writes samples that are
//! not there yet, and the values of those that are (after a field was renamed), but never bytes.
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

use std::fmt::Debug;
use std::fs;
use std::path::Path;

/// Bytes as text: groups of four bytes, eight groups a line.
fn hex(bytes: &[u8]) -> String {
    let lines = bytes.chunks(32).map(|line| {
        let groups = line.chunks(4).map(|g| g.iter().map(|b| format!("{b:02x}")).collect::<String>());
        groups.collect::<Vec<_>>().join(" ")
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<char> = text.chars().filter(|c| !c.is_whitespace()).collect();
    digits.chunks(2).map(|two| u8::from_str_radix(&two.iter().collect::<String>(), 16).unwrap()).collect()
}

fn parse(text: &str) -> (Vec<u8>, String) {
    let (bytes, value) = text.strip_prefix("bytes:\n").unwrap().split_once("\nvalue:\n").unwrap();
    (unhex(bytes), value.trim_end().to_owned())
}

/// The bytes of a sample that is there.
pub(crate) fn bytes(file: &Path) -> Vec<u8> {
    let text = fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    parse(&text).0
}

/// Whether samples are to be written.
pub(crate) fn updates() -> bool {
    std::env::var_os("UPDATE").is_some()
}

/// Decodes the sample, compares it with its value, and encodes it back to the same bytes. With UPDATE a sample that is
/// missing is made of `fresh`.
pub(crate) fn check<T: Debug>(
    file: &Path,
    fresh: impl FnOnce() -> Vec<u8>,
    decode: impl Fn(&[u8]) -> T,
    encode: impl Fn(&T) -> Vec<u8>,
) {
    let frozen = match fs::read_to_string(file) {
        Ok(text) => Some(parse(&text)),
        Err(_) if updates() => None,
        Err(e) => panic!("{}: {e}: write it with UPDATE=1 cargo test -p wire -p disk-format", file.display()),
    };
    let known = frozen.as_ref().map(|(bytes, _)| bytes.clone());
    let bytes = known.unwrap_or_else(fresh);
    let value = decode(&bytes);
    let back = encode(&value);
    assert!(
        back == bytes,
        "{}: the sample\n{}\nis written back as\n{}",
        file.display(),
        hex(&bytes),
        hex(&back)
    );
    let shown = format!("{value:#?}");
    if updates() {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, format!("bytes:\n{}\nvalue:\n{shown}\n", hex(&bytes))).unwrap();
    } else if let Some((_, expected)) = frozen {
        assert_eq!(shown, expected, "{}", file.display());
    }
}

//! The frozen samples of formats, from the folders `testdata` of their crates.

use std::fs;
use std::path::{Path, PathBuf};

fn folder(of: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(of)
}

fn files(of: &str) -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = fs::read_dir(folder(of))
        .map(|there| there.filter_map(|f| Some(f.ok()?.path())).filter(|p| p.is_file()).collect())
        .unwrap_or_default();
    all.sort();
    all
}

/// The files of a folder as they are.
pub(crate) fn plain(of: &str) -> Vec<Vec<u8>> {
    files(of).iter().filter_map(|file| fs::read(file).ok()).collect()
}

/// The files of a folder whose names have that part, as they are.
pub(crate) fn plain_named(of: &str, part: &str) -> Vec<Vec<u8>> {
    let all = files(of).into_iter();
    all.filter(|f| f.to_string_lossy().contains(part)).filter_map(|f| fs::read(f).ok()).collect()
}

/// The bytes of samples that are written as text: `bytes:`, hexadecimal digits, `value:`.
pub(crate) fn hex(of: &str) -> Vec<Vec<u8>> {
    let text = |file: &PathBuf| fs::read_to_string(file).ok();
    files(of).iter().filter_map(text).filter_map(|text| unhex(&text)).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let (digits, _) = text.strip_prefix("bytes:\n")?.split_once("\nvalue:")?;
    let digits: Vec<u8> = digits.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    digits.chunks(2).map(|two| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok()).collect()
}

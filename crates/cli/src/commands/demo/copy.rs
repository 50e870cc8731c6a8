//! Something real to copy into the volume.

use super::stop::Stop;
use crate::output;
use crate::table::size;
use crate::terminal::progress;
use anyhow::{Context, bail};
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

const FILES: usize = 400;
const ENOUGH: usize = 200;
const BYTES: u64 = 8 << 20;
/// Real trees that machines have, the likeliest first.
const PLACES: [&str; 6] = [
    "/usr/share/doc",
    "/usr/include",
    "/usr/share/perl",
    "/usr/lib/python3",
    "/usr/share/man",
    "/usr/share/zoneinfo",
];

/// A file that was copied, as its path in the volume.
#[derive(Clone, Debug)]
pub(super) struct Copied {
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
}

/// Copies some hundred files with their directories into `to`.
pub(super) fn something_real(to: &Path, stop: &Stop) -> anyhow::Result<Vec<Copied>> {
    let mut copied: Vec<Copied> = Vec::new();
    let begun = Instant::now();
    let mut from = Vec::new();
    let bar = progress("copying", FILES as u64);
    for place in PLACES.iter().map(Path::new).filter(|p| p.is_dir()) {
        if copied.len() >= ENOUGH {
            break;
        }
        // /usr/share/doc/x becomes x: the directories at the top are the ones that spread over the sets.
        let name = if from.is_empty() {
            PathBuf::new()
        } else {
            place.file_name().map(PathBuf::from).unwrap_or_default()
        };
        copy_tree(place, &to.join(name), to, &mut copied, stop)?;
        from.push(place.display().to_string());
        bar.set_position(copied.len() as u64);
    }
    bar.finish_and_clear();
    if copied.is_empty() {
        bail!("nothing to copy was found in {}", PLACES.join(", "));
    }
    let bytes = copied.iter().map(|c| c.bytes).sum();
    output::line(&format!(
        "copied {} files, {}, from {} in {:.1} s",
        copied.len(),
        size(bytes),
        from.join(", "),
        begun.elapsed().as_secs_f64()
    ))?;
    Ok(copied)
}

fn copy_tree(
    from: &Path,
    to: &Path,
    top: &Path,
    copied: &mut Vec<Copied>,
    stop: &Stop,
) -> anyhow::Result<()> {
    let mut waiting = vec![(from.to_owned(), to.to_owned())];
    while let Some((from, to)) = waiting.pop() {
        let mut entries: Vec<_> = fs::read_dir(&from)?.filter_map(Result::ok).collect();
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            stop.check()?;
            if copied.len() >= FILES || copied.iter().map(|c| c.bytes).sum::<u64>() >= BYTES {
                return Ok(());
            }
            let Ok(meta) = fs::symlink_metadata(entry.path()) else { continue };
            let target = to.join(entry.file_name());
            if meta.is_dir() {
                waiting.push((entry.path(), target));
            } else if meta.is_file() && meta.len() < BYTES / 4 {
                fs::create_dir_all(&to).with_context(|| format!("make {}", to.display()))?;
                copy_file(&entry.path(), &target, &meta)
                    .with_context(|| format!("copy to {}", target.display()))?;
                let path = target.strip_prefix(top)?.to_owned();
                copied.push(Copied { path, bytes: meta.len() });
            }
        }
    }
    Ok(())
}

fn copy_file(from: &Path, to: &Path, meta: &fs::Metadata) -> std::io::Result<()> {
    let mut file = File::create_new(to)?;
    std::io::copy(&mut File::open(from)?, &mut file)?;
    file.set_permissions(fs::Permissions::from_mode(meta.permissions().mode() & 0o777))?;
    file.set_modified(meta.modified()?)
}

//! `mount.mortar`: what mount(8) calls for `mount -t mortar`, by the name this program is called by. For what is mounted already,
//! and not in fstab, it calls `mount.fuse.mortar`, by the type that the kernel tells.
//!
//! mount(8) calls `mount.mortar SOURCE DIR [-sfnv] [-N NAMESPACE] [-t TYPE] [-o OPTIONS]`.

use super::MountCommand;
use crate::error::usage;
use clap::Parser;
use std::ffi::OsString;
use std::path::Path;

/// The names by which mount(8) knows us.
const NAMES: [&str; 2] = ["mount.mortar", "mount.fuse.mortar"];

/// What mount(8) wants of us.
#[derive(Debug, PartialEq, Eq)]
struct Helper {
    words: Vec<OsString>,
    /// Everything but the mount itself.
    fake: bool,
}

/// What the helper is asked for, in the words of `mortar mount`.
#[derive(Parser, Debug)]
#[command(name = "mortar")]
enum Words {
    Mount(MountCommand),
}

/// Mounts as mount(8) asks for, if it is calling us.
pub fn mount_helper(all: &[OsString]) -> Option<anyhow::Result<()>> {
    arguments(all).map(|helper| helper.and_then(run))
}

/// The arguments of mount(8), if it is calling us.
fn arguments(all: &[OsString]) -> Option<anyhow::Result<Helper>> {
    let (name, rest) = all.split_first()?;
    let called = Path::new(name).file_name()?;
    NAMES.iter().any(|name| called == *name).then(|| parse(rest))
}

fn parse(arguments: &[OsString]) -> anyhow::Result<Helper> {
    let mut fixed = Vec::new();
    let (mut words, mut fake) = (vec![OsString::from("mortar"), OsString::from("mount")], false);
    let mut rest = arguments.iter();
    while let Some(word) = rest.next() {
        match word.to_str() {
            Some("-o") => match rest.next() {
                Some(options) => words.extend([OsString::from("-o"), options.clone()]),
                None => return usage("mount.mortar: -o has no options"),
            },
            Some("-t" | "-N") => drop(rest.next()),
            Some(flags) if flags.len() > 1 && flags.starts_with('-') => match flags.trim_start_matches('-') {
                f if f.chars().all(|c| "sfnvrw".contains(c)) => {
                    fake |= f.contains('f');
                    if f.contains('r') {
                        words.extend(["-o", "ro"].map(OsString::from));
                    }
                }
                _ => {
                    return usage(format!(
                        "mount.mortar: {flags}: known are -s, -f, -n, -v, -r, -w, -t, -N and -o"
                    ));
                }
            },
            _ => fixed.push(word.clone()),
        }
    }
    if fixed.len() != 2 {
        return usage("mount.mortar: write mount.mortar HOST:/VOL DIR [-sfnv] [-o OPTIONS]");
    }
    words.push(OsString::from("--"));
    words.extend(fixed);
    Ok(Helper { words, fake })
}

fn run(helper: Helper) -> anyhow::Result<()> {
    if helper.fake {
        return Ok(());
    }
    let Words::Mount(command) = Words::parse_from(helper.words);
    command.run(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Option<anyhow::Result<Helper>> {
        arguments(&line.split(' ').map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn called_by_mount() {
        assert!(of("/usr/bin/mortar mount h:/v /mnt").is_none());
        let helper = of("/sbin/mount.mortar h:/v /mnt -nv -o rw,noatime -t mortar").unwrap().unwrap();
        let words = "mortar mount -o rw,noatime -- h:/v /mnt";
        assert_eq!(helper.words, words.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert!(of("/usr/sbin/mount.fuse.mortar h:/v /mnt -o remount,ro").unwrap().is_ok());
        assert!(!helper.fake && of("mount.mortar h:/v /mnt -fs").unwrap().unwrap().fake);
        for wrong in ["mount.mortar h:/v", "mount.mortar h:/v /mnt -x", "mount.mortar h:/v /mnt -o"] {
            assert!(of(wrong).unwrap().is_err(), "{wrong}");
        }
    }
}

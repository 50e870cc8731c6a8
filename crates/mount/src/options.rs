//! The words of `-o`, as users, mount(8) and fstab give them.

use client::duration;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

/// Our own words, beside those that every file system has.
const OWN: &str = "soft=SECONDS, hard, network-timeout=SECONDS, quorum-wait=SECONDS, threads=N, fsname=TEXT, key=FILE, \
                   log=FILE, log-level=LEVEL";
/// What the first of these are about: it stays as long as it is mounted.
const KEPT: [&str; 8] =
    ["soft", "network-timeout", "quorum-wait", "threads", "key", "fsname", "log", "log-level"];
/// Words that every file system has.
const COMMON: &str = "ro, rw, [no]suid, [no]dev, [no]exec, [no]atime, relatime, strictatime, [no]diratime, sync, async, \
                      dirsync, remount, allow_other, default_permissions";

/// The type of our mounts is `fuse.` and this.
pub(crate) const SUBTYPE: &str = "mortar";

/// How to mount.
#[derive(Clone, Debug)]
pub struct Options {
    /// What concerns the kernel. Its source is replaced if [`Options::fsname`] is given.
    pub kernel: fuse::MountOptions,
    /// What `df` shows instead of the source.
    pub fsname: Option<String>,
    /// What concerns the client.
    pub client: client::Options,
    /// The most requests at a time.
    pub threads: usize,
    /// Where the log goes, for whoever sets it up.
    pub log: Option<String>,
    /// What is logged, likewise.
    pub log_level: Option<String>,
    /// Not to be mounted but to be changed: it is mounted already.
    pub remount: bool,
    /// Which of what a mount keeps was written, as what it is about.
    pub(crate) named: BTreeSet<&'static str>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            kernel: fuse::MountOptions::new("mortar", SUBTYPE),
            fsname: None,
            client: client::Options::default(),
            threads: 64,
            log: None,
            log_level: None,
            remount: false,
            named: BTreeSet::new(),
        }
    }
}

/// An option that cannot be taken.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadOption {
    /// No such option.
    #[error("unknown mount option \"{}\"; known are {COMMON}, {OWN}", ids::excerpt(.0))]
    Unknown(String),
    /// Its value makes no sense.
    #[error("mount option \"{}\": {want} is wanted", ids::excerpt(.word))]
    Value {
        /// The option as written.
        word: String,
        /// What it takes.
        want: &'static str,
    },
}

impl Options {
    /// Takes the words of one `-o`, between commas; later ones win.
    ///
    /// # Errors
    /// The first word that is not known, or whose value is wrong.
    pub fn apply(&mut self, words: &str) -> Result<(), BadOption> {
        words.split(',').map(str::trim).filter(|w| !w.is_empty()).try_for_each(|word| self.apply_word(word))
    }

    fn apply_word(&mut self, word: &str) -> Result<(), BadOption> {
        let (key, value) = word.split_once('=').map_or((word, None), |(k, v)| (k, Some(v)));
        let bad = |want| BadOption::Value { word: word.to_owned(), want };
        let time = || value.and_then(duration).ok_or(bad("a number of seconds"));
        let text = || value.filter(|v| !v.is_empty()).map(str::to_owned).ok_or(bad("a value"));
        match key {
            "soft" => {
                let soft = time()?;
                self.client.soft = Some(soft).filter(|s| !s.is_zero());
            }
            "hard" if value.is_none() => self.client.soft = None,
            "network-timeout" => {
                let time = time()?;
                if time < Duration::from_millis(100) {
                    return Err(bad("at least 0.1"));
                }
                self.client.network_timeout = time;
            }
            "quorum-wait" => self.client.quorum_wait = time()?,
            "threads" => {
                let n = value.and_then(|v| v.parse().ok()).filter(|n| (1..=1024).contains(n));
                self.threads = n.ok_or(bad("a number from 1 to 1024"))?;
            }
            "key" => self.set_key(Path::new(&text()?)).map_err(|_| bad("a file"))?,
            "fsname" => self.fsname = Some(text()?),
            "log" => self.set_log(Path::new(&text()?)).map_err(|_| bad("a file"))?,
            "log-level" => {
                let level = text()?;
                if !["error", "warn", "info", "debug", "trace"].contains(&level.as_str()) {
                    return Err(bad("error, warn, info, debug or trace"));
                }
                self.log_level = Some(level);
            }
            "remount" if value.is_none() => self.remount = true,
            // For others who read the same words.
            "comment" | "subtype" | "nonempty" | "users" | "owner" | "group" | "uhelper" | "helper" => {}
            // What the kernel tells of every mount of ours, and mount(8) hands back at a remount.
            "user_id" | "group_id" if value == Some("0") => {}
            "max_read" | "blksize" if value.is_some() => {}
            _ if key.starts_with("x-") || key.starts_with("X-") => {}
            _ if value.is_none() && self.kernel.apply(word) => {}
            _ => return Err(BadOption::Unknown(word.to_owned())),
        }
        let about = if key == "hard" { "soft" } else { key };
        self.named.extend(KEPT.into_iter().find(|kept| *kept == about));
        Ok(())
    }

    /// The file of the key to show.
    ///
    /// # Errors
    /// It is no path.
    pub fn set_key(&mut self, file: &Path) -> std::io::Result<()> {
        self.client.key = Some(client::Key::File(std::path::absolute(file)?));
        self.named.insert("key");
        Ok(())
    }

    /// Where the log goes.
    ///
    /// # Errors
    /// It is no path.
    pub fn set_log(&mut self, file: &Path) -> std::io::Result<()> {
        self.log = Some(std::path::absolute(file)?.display().to_string());
        self.named.insert("log");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fstab_and_users_write() {
        let mut o = Options::default();
        o.apply("rw,_netdev,x-systemd.automount,x-systemd.requires=net,defaults,nofail").unwrap();
        assert!(!o.kernel.flags.read_only && !o.kernel.flags.nosuid && !o.kernel.flags.nodev);
        assert!(o.kernel.allow_other && o.kernel.default_permissions && o.client.soft.is_none());
        o.apply("ro,nosuid,noatime,soft=2.5,threads=8,fsname=me,log-level=debug,quorum-wait=500ms").unwrap();
        assert!(o.kernel.flags.read_only && o.kernel.flags.nosuid && o.kernel.flags.noatime);
        assert_eq!((o.client.soft, o.threads), (Some(Duration::from_millis(2500)), 8));
        assert_eq!((o.fsname.as_deref(), o.log_level.as_deref()), (Some("me"), Some("debug")));
        assert_eq!(o.client.quorum_wait, Duration::from_millis(500));
        assert!(!o.remount);
        o.apply("remount,rw").unwrap();
        assert!(o.remount && !o.kernel.flags.read_only);
        o.apply("hard,").unwrap();
        assert_eq!(o.client.soft, None);
    }

    #[test]
    fn what_is_refused() {
        let refuse = |words: &str| Options::default().apply(words).unwrap_err().to_string();
        assert!(refuse("bogus").contains("unknown mount option \"bogus\"; known are ro"));
        assert!(refuse("ro=1").contains("unknown"));
        assert!(refuse("soft").contains("a number of seconds"));
        for bad in
            ["soft=x", "soft=-1", "threads=0", "log-level=loud", "network-timeout=0", "fsname=", "soft=1d"]
        {
            assert!(refuse(bad).contains("wanted"), "{bad}");
        }
    }
}

//! Mount options: as fields, from `-o` words, and in the two forms in which
//! the kernel and the helper take them.

use std::ffi::CString;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::mount::MountFlags as Kernel;

use super::MountError;

/// Options that every file system has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MountFlags {
    /// No writing.
    pub read_only: bool,
    /// Set-uid bits have no effect.
    pub nosuid: bool,
    /// Device files have no effect.
    pub nodev: bool,
    /// Nothing can be executed.
    pub noexec: bool,
    /// Reading does not change access times.
    pub noatime: bool,
    /// Reading directories does not change their access times.
    pub nodiratime: bool,
    /// Access times change with every reading.
    pub strictatime: bool,
    /// Every write is synchronous.
    pub sync: bool,
    /// Every change of a directory is synchronous.
    pub dirsync: bool,
}

impl MountFlags {
    fn words(self) -> [(bool, &'static str, Kernel); 9] {
        [
            (self.read_only, "ro", Kernel::RDONLY),
            (self.nosuid, "nosuid", Kernel::NOSUID),
            (self.nodev, "nodev", Kernel::NODEV),
            (self.noexec, "noexec", Kernel::NOEXEC),
            (self.noatime, "noatime", Kernel::NOATIME),
            (self.nodiratime, "nodiratime", Kernel::NODIRATIME),
            (self.strictatime, "strictatime", Kernel::STRICTATIME),
            (self.sync, "sync", Kernel::SYNCHRONOUS),
            (self.dirsync, "dirsync", Kernel::DIRSYNC),
        ]
    }

    pub(super) fn kernel(self) -> Kernel {
        let set = self.words().into_iter().filter(|(set, ..)| *set);
        set.fold(Kernel::empty(), |flags, (_, _, flag)| flags | flag)
    }
}

/// What to mount, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// What `df` and `/proc/mounts` name as the source.
    pub source: String,
    /// The type is shown as `fuse.<subtype>`.
    pub subtype: String,
    /// Users other than the one who mounts may use it.
    pub allow_other: bool,
    /// The kernel checks permissions.
    pub default_permissions: bool,
    /// The most one READ asks for; by default as much as one WRITE carries.
    pub max_read: Option<u32>,
    /// Options that every file system has.
    pub flags: MountFlags,
}

impl MountOptions {
    /// The defaults of a shared file system: for all users, checked by the
    /// kernel. `source` as `host:/volume`.
    pub fn new(source: impl Into<String>, subtype: impl Into<String>) -> MountOptions {
        MountOptions {
            source: source.into(),
            subtype: subtype.into(),
            allow_other: true,
            default_permissions: true,
            max_read: None,
            flags: MountFlags::default(),
        }
    }

    /// Takes one word of `mount -o`; false if it is none that is known here.
    pub fn apply(&mut self, word: &str) -> bool {
        let flags = &mut self.flags;
        let (field, value) = match word {
            "ro" => (&mut flags.read_only, true),
            "rw" => (&mut flags.read_only, false),
            "nosuid" => (&mut flags.nosuid, true),
            "suid" => (&mut flags.nosuid, false),
            "nodev" => (&mut flags.nodev, true),
            "dev" => (&mut flags.nodev, false),
            "noexec" => (&mut flags.noexec, true),
            "exec" => (&mut flags.noexec, false),
            "noatime" => (&mut flags.noatime, true),
            "atime" | "relatime" => (&mut flags.noatime, false),
            "nodiratime" => (&mut flags.nodiratime, true),
            "diratime" => (&mut flags.nodiratime, false),
            "strictatime" => (&mut flags.strictatime, true),
            "sync" => (&mut flags.sync, true),
            "async" => (&mut flags.sync, false),
            "dirsync" => (&mut flags.dirsync, true),
            "allow_other" => (&mut self.allow_other, true),
            "default_permissions" => (&mut self.default_permissions, true),
            // What mount(8) and fstab carry for themselves.
            "defaults" | "_netdev" | "noauto" | "auto" | "nofail" | "user" | "nouser" | "users"
            | "nousers" | "group" | "nogroup" | "owner" | "noowner" => return true,
            // What mount(8) hands on of the kernel's words, and means nothing to a file system like this, or is so anyway.
            "lazytime" | "nolazytime" | "norelatime" | "nostrictatime" | "silent" | "loud" | "iversion"
            | "noiversion" | "mand" | "nomand" => return true,
            _ => return false,
        };
        *field = value;
        true
    }

    pub(super) fn check(&self) -> Result<(), MountError> {
        let bad = |option: &str, reason| Err(MountError::BadOption { option: option.into(), reason });
        if self.source.is_empty() || self.source.contains(['\0', '\n']) {
            return bad(&self.source, "a source is needed, of printable characters");
        }
        let word = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if self.subtype.is_empty() || !self.subtype.chars().all(word) {
            return bad(&self.subtype, "a subtype has letters and digits only");
        }
        Ok(())
    }

    pub(super) fn fs_type(&self) -> String {
        format!("fuse.{}", self.subtype)
    }

    fn common(&self) -> Vec<String> {
        let switches = [(self.allow_other, "allow_other"), (self.default_permissions, "default_permissions")];
        let on = switches.into_iter().filter(|(set, _)| *set).map(|(_, word)| word.to_owned());
        on.chain(self.max_read.map(|size| format!("max_read={size}"))).collect()
    }

    /// The data of `mount(2)`.
    pub(super) fn kernel_data(&self, device: BorrowedFd<'_>, mode: u32) -> CString {
        let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
        let mut words = vec![
            format!("fd={}", device.as_raw_fd()),
            format!("rootmode={:o}", mode & libc::S_IFMT),
            format!("user_id={}", uid.as_raw()),
            format!("group_id={}", gid.as_raw()),
        ];
        words.extend(self.common());
        CString::new(words.join(",")).unwrap_or_default()
    }

    /// The argument of `fusermount3 -o`.
    pub(super) fn helper_words(&self) -> String {
        let escaped = self.source.replace('\\', "\\\\").replace(',', "\\,");
        let mut words = vec![format!("fsname={escaped}"), format!("subtype={}", self.subtype)];
        words.extend(self.common());
        words.extend(
            self.flags.words().into_iter().filter(|(set, ..)| *set).map(|(_, word, _)| word.to_owned()),
        );
        words.join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_flags() {
        let mut options = MountOptions::new("host:/a,b", "mortar");
        assert!(options.apply("ro") && options.apply("noatime") && options.apply("_netdev"));
        assert!(!options.apply("volfile=x"));
        assert_eq!(options.flags.kernel(), Kernel::RDONLY | Kernel::NOATIME);
        let words = options.helper_words();
        assert_eq!(words, "fsname=host:/a\\,b,subtype=mortar,allow_other,default_permissions,ro,noatime");
        assert!(options.check().is_ok());
        assert!(MountOptions::new("x", "a,b").check().is_err());
        assert!(MountOptions::new("", "a").check().is_err());
    }
}

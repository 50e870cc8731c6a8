//! Small file systems in files: to be filled, and to be shut down as by a power cut.

use super::{eventually, is_mounted, run, tool};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A mounted file system; unmounted when dropped.
pub(crate) struct Disk {
    image: PathBuf,
    pub(crate) dir: PathBuf,
}

impl Disk {
    /// Makes and mounts one of `mib` MiB. `kind`: ext4, `ext4 -N FILES` for one that holds so many files, or xfs.
    pub(crate) fn new(kind: &str, dir: &Path, mib: u64) -> Disk {
        fs::create_dir(dir).unwrap();
        let image = dir.with_extension("img");
        File::create(&image).unwrap().set_len(mib << 20).unwrap();
        let shown = image.display();
        match kind.strip_prefix("ext4") {
            Some(files) => tool(&format!("mkfs.ext4 -q -F -m 0{files} {shown}")),
            None => tool(&format!("mkfs.xfs -q -f {shown}")),
        };
        let disk = Disk { image, dir: dir.to_path_buf() };
        disk.mount();
        disk
    }

    pub(crate) fn mount(&self) {
        tool(&format!("mount -o loop {} {}", self.image.display(), self.dir.display()));
    }

    /// Takes it away as soon as nobody uses it.
    pub(crate) fn unmount(&self) {
        let at = self.dir.display();
        eventually("the file system can be unmounted", || {
            let mut command = Command::new("umount");
            command.arg(&self.dir);
            let output = run(command);
            (output.code == Some(0)).then_some(()).or_else(|| {
                eprintln!("umount {at}: {}", output.stderr.trim());
                None
            })
        });
        // Somebody else's view of mounts may have it for a moment longer.
        eventually("nobody has the disk any more", || {
            let mut command = Command::new("losetup");
            command.arg("-j").arg(&self.image);
            run(command).stdout.trim().is_empty().then_some(())
        });
    }

    /// It fails, and forgets what was not synced.
    pub(crate) fn shut_down(&self) {
        // The shutdown ioctl without a flush of the log; ext4 knows the same call.
        tool(&format!("xfs_io -x -c shutdown {}", self.dir.display()));
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if is_mounted(&self.dir) {
            let mut command = Command::new("umount");
            command.arg("-l").arg(&self.dir);
            run(command);
        }
    }
}

//! Directories are listed with the attributes of what is in them, and what a program changes meanwhile counts.

use crate::harness::{Mounted, Pool};
use std::fs::{self, DirEntry};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

/// Many more than the kernel and the C library ask for at once.
const FILES: usize = 2500;

fn with_files(test: impl FnOnce(&Pool, &Mounted, &Path)) {
    let pool = Pool::new(1);
    pool.volume("v", 1, &[(0, "b")]);
    let mount = pool.mount("v");
    let dir = mount.path("d");
    fs::create_dir(&dir).unwrap();
    (0..FILES).for_each(|n| fs::write(dir.join(format!("f{n}")), "").unwrap());
    test(&pool, &mount, &dir);
    mount.end();
}

fn names(dir: &Path) -> Vec<String> {
    fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
}

/// While a directory is listed, a file that comes later in it is removed, another one gets another mode, and one another name. The
/// listing may still have them as they were, but nobody who looks them up.
#[test]
fn what_is_changed_while_a_directory_is_listed_is_so_at_once() {
    with_files(|_, _, dir| {
        let mut order = names(dir);
        for round in 0..6_u32 {
            // In the page of which the kernel has the beginning, or in one that is asked for meanwhile.
            let mut later = || order.remove(if round % 2 == 0 { 1400 } else { order.len() - 1 });
            let (gone, other, moved) = (later(), later(), later());
            let mode = 0o600 + round;
            let mut listing = fs::read_dir(dir).unwrap();
            listing.next().unwrap().unwrap().metadata().unwrap();
            fs::remove_file(dir.join(&gone)).unwrap();
            fs::set_permissions(dir.join(&other), fs::Permissions::from_mode(mode)).unwrap();
            fs::rename(dir.join(&moved), dir.join(format!("moved{round}"))).unwrap();
            // The kernel asks for attributes with the names as long as somebody looks at them.
            let of_those = |e: &DirEntry| [&gone, &other, &moved].iter().any(|n| e.file_name() == n.as_str());
            for entry in listing {
                let entry = entry.unwrap();
                if !of_those(&entry) && !entry.file_name().to_string_lossy().starts_with("moved") {
                    entry.metadata().unwrap();
                }
            }
            for name in [&gone, &moved] {
                let found = fs::metadata(dir.join(name)).map(|m| m.ino());
                assert_eq!(found.unwrap_err().kind(), ErrorKind::NotFound, "{round}: {name}");
            }
            assert_eq!(fs::metadata(dir.join(&other)).unwrap().mode() & 0o777, mode, "{round}");
            assert!(dir.join(format!("moved{round}")).exists());
        }
    });
}

/// Who lists a directory with attributes again, when those that he was told hold no longer, is told all of them with the names.
#[test]
fn a_directory_is_listed_again_with_its_attributes() {
    with_files(|pool, _, dir| {
        let list = || fs::read_dir(dir).unwrap().for_each(|e| assert!(e.unwrap().metadata().is_ok()));
        list();
        pool.ok("volume profile v start");
        for _ in 0..3 {
            // Longer than a grant, which is time itself.
            std::thread::sleep(Duration::from_millis(300));
            list();
        }
        let report = pool.json("volume profile v info");
        let operations = report["total"]["sets"][0]["operations"].as_array().unwrap();
        let calls = |name: &str| {
            let of = operations.iter().filter(|o| o["operation"] == name);
            of.map(|o| o["calls"].as_u64().unwrap()).sum::<u64>()
        };
        assert!(calls("readdir") >= 3, "{report}");
        let single = calls("lookup") + calls("getattr");
        assert!(
            single < FILES as u64 / 10,
            "{single} of {FILES} files were asked for by themselves: {report}"
        );
        pool.ok("volume profile v stop");
    });
}

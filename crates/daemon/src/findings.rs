//! What `mortar doctor` makes of what servers say of themselves: decisions without I/O.

use admin::{Finding, Severity};
use serde::{Deserialize, Serialize};

/// Clocks may differ by so much: file times come from servers' clocks. In microseconds.
const CLOCKS: u64 = 1_000_000;
/// With fewer descriptors a server may run out of them.
const DESCRIPTORS: u64 = 16_384;
/// Room that a state folder needs.
const STATE_ROOM: u64 = 256 << 20;

/// What a server says of itself.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Health {
    /// The program's version.
    pub(crate) program: String,
    /// Its clock, in microseconds since 1970.
    pub(crate) clock_us: u64,
    pub(crate) open_files: u64,
    pub(crate) most_files: u64,
    /// Room of the file system of its state folder.
    pub(crate) state_free: u64,
    pub(crate) bricks: Vec<BrickHealth>,
}

/// What a server says of a brick's directory.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct BrickHealth {
    /// HOST:/PATH.
    pub(crate) name: String,
    pub(crate) volume: String,
    /// Why it is not served; `None`: it is, or the volume is not started.
    #[serde(default)]
    pub(crate) error: Option<String>,
    /// What was seen of its file system; `None`: it did not answer in time.
    #[serde(default)]
    pub(crate) disk: Option<DiskHealth>,
}

/// A file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct DiskHealth {
    pub(crate) free: u64,
    pub(crate) total: u64,
    pub(crate) files_free: u64,
    pub(crate) files: u64,
    /// It is in memory.
    pub(crate) in_memory: bool,
    /// It is that of the machine's root.
    pub(crate) is_root: bool,
}

/// A server's answer, as seen by the one that asked.
pub(crate) struct Heard {
    pub(crate) host: String,
    pub(crate) health: Health,
    /// The clock of who asked, when the answer had come.
    pub(crate) clock_us: u64,
    /// How much earlier the other clock may have been read.
    pub(crate) error_us: u64,
}

/// How findings name a server; an address of IPv6 stands in brackets.
pub(crate) fn server_named(host: &str) -> String {
    format!("server {}", ids::bracketed(host))
}

/// What is wrong with a server that answered.
pub(crate) fn of_server(heard: &Heard, program: &str) -> Vec<Finding> {
    let Heard { host, health, .. } = heard;
    let (mut all, object) = (Vec::new(), server_named(host));
    if health.program != program {
        all.push(warning(
            &object,
            format!("it runs version {}, the server that was asked {program}", health.program),
            "bring all servers to the same version, one after the other",
        ));
    }
    let differs = health.clock_us.abs_diff(heard.clock_us).saturating_sub(heard.error_us);
    if differs > CLOCKS {
        all.push(warning(
            &object,
            format!(
                "its clock differs by {}.{} s: file times will jump at a failover",
                differs / 1_000_000,
                differs / 100_000 % 10
            ),
            "let all servers keep their time by NTP (chrony or systemd-timesyncd)",
        ));
    }
    let used = health.open_files.saturating_mul(100).checked_div(health.most_files).unwrap_or(0);
    if used > 80 {
        let cause = format!("{} of {} descriptors are open", health.open_files, health.most_files);
        all.push(error(&object, cause, "raise LimitNOFILE of its unit (ulimit -Hn) and restart it"));
    } else if health.most_files < DESCRIPTORS {
        let cause = format!("it may open {} files only", health.most_files);
        all.push(warning(
            &object,
            cause,
            "raise LimitNOFILE of its unit (ulimit -Hn) to 65536 or more and restart it",
        ));
    }
    if health.state_free < STATE_ROOM {
        let cause = format!("the file system of its state folder has {} MiB left", health.state_free >> 20);
        all.push(warning(&object, cause, "make room there: a server that cannot write its state stops"));
    }
    all.extend(health.bricks.iter().flat_map(of_brick));
    all
}

fn of_brick(b: &BrickHealth) -> Vec<Finding> {
    let (mut all, object) = (Vec::new(), format!("brick {} of volume {}", b.name, b.volume));
    if let Some(why) = &b.error {
        all.push(error(
            &object,
            format!("it is not served: {why}"),
            "repair that; it is opened again by itself",
        ));
    }
    let Some(disk) = &b.disk else {
        all.push(error(
            &object,
            "its file system does not answer".to_owned(),
            "look at the kernel's log for its disk",
        ));
        return all;
    };
    if disk.in_memory {
        let cause = "it lies in memory: a restart of the machine loses it".to_owned();
        all.push(warning(&object, cause, "mortar volume replace-brick with a directory on a disk"));
    } else if disk.is_root {
        let cause = "it lies on the machine's root file system: what fills one stops the other".to_owned();
        all.push(warning(&object, cause, "give it a file system of its own (mortar volume replace-brick)"));
    }
    let left = |free: u64, total: u64| free.saturating_mul(100).checked_div(total);
    if let Some(percent) = left(disk.free, disk.total).filter(|p| *p < 10) {
        let remedy = "free room, or mortar volume add-brick and mortar volume rebalance";
        all.push(warning(&object, format!("{percent} % of its room is left"), remedy));
    }
    if let Some(percent) = left(disk.files_free, disk.files).filter(|p| *p < 5) {
        let remedy = "remove files, or give it a file system with more inodes";
        all.push(warning(&object, format!("{percent} % of its file system's inodes are left"), remedy));
    }
    all
}

/// It does not work.
pub(crate) fn error(object: &str, cause: String, remedy: &str) -> Finding {
    Finding { severity: Severity::Error, object: object.to_owned(), cause, remedy: remedy.to_owned() }
}

/// It works, and may not for long.
pub(crate) fn warning(object: &str, cause: String, remedy: &str) -> Finding {
    Finding { severity: Severity::Warning, ..error(object, cause, remedy) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn healthy() -> Heard {
        let disk =
            DiskHealth { free: 50, total: 100, files_free: 50, files: 100, in_memory: false, is_root: false };
        let brick =
            BrickHealth { name: "h:/b".to_owned(), volume: "v".to_owned(), error: None, disk: Some(disk) };
        let health = Health {
            program: "1".to_owned(),
            clock_us: 10_000_000,
            open_files: 100,
            most_files: 65_536,
            state_free: 1 << 40,
            bricks: vec![brick],
        };
        Heard { host: "h".to_owned(), health, clock_us: 10_500_000, error_us: 1000 }
    }

    #[track_caller]
    fn finds(change: impl FnOnce(&mut Heard), severity: Severity, words: &str) {
        let mut heard = healthy();
        change(&mut heard);
        let all = of_server(&heard, "1");
        assert_eq!(all.len(), 1, "{all:?}");
        assert!(all[0].severity == severity && all[0].cause.contains(words), "{all:?}");
        assert!(!all[0].remedy.is_empty());
    }

    fn disk(heard: &mut Heard) -> &mut DiskHealth {
        heard.health.bricks[0].disk.as_mut().unwrap()
    }

    #[test]
    fn each_trouble_is_found_by_itself() {
        use Severity::{Error, Warning};
        assert_eq!(of_server(&healthy(), "1"), []);
        finds(|h| h.health.program = "2".to_owned(), Warning, "version 2");
        finds(|h| h.clock_us += 1_600_000, Warning, "differs by 2.0 s");
        finds(|h| h.clock_us -= 2_000_000, Warning, "differs by 1.4 s");
        finds(|h| h.health.open_files = 60_000, Error, "60000 of 65536");
        finds(|h| h.health.most_files = 1024, Warning, "1024 files");
        finds(|h| h.health.state_free = 1 << 20, Warning, "1 MiB");
        finds(|h| h.health.bricks[0].error = Some("gone".to_owned()), Error, "gone");
        finds(|h| h.health.bricks[0].disk = None, Error, "does not answer");
        finds(|h| disk(h).in_memory = true, Warning, "in memory");
        finds(|h| disk(h).is_root = true, Warning, "root file system");
        finds(|h| disk(h).free = 9, Warning, "9 %");
        finds(|h| disk(h).files_free = 4, Warning, "4 %");
        let mut unknown = healthy();
        disk(&mut unknown).files = 0;
        assert_eq!(of_server(&unknown, "1"), [], "some file systems do not count inodes");
    }
}

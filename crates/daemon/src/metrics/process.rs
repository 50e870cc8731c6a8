//! What the kernel says of this process.

use super::{Exposition, Metric};
use std::time::Duration;

/// Adds the process' own metrics; those that cannot be read are left out.
pub(crate) fn add(to: &mut Exposition) {
    let rustix_limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    if let Some(most) = rustix_limit {
        to.add(Metric::MaxFds, &[], most);
    }
    if let Ok(open) = std::fs::read_dir("/proc/self/fd") {
        // One of them is that of the listing itself.
        to.add(Metric::OpenFds, &[], open.count().saturating_sub(1));
    }
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let Some(stat) = Stat::parse(&text) else { return };
    let ticks = rustix::param::clock_ticks_per_second().max(1);
    let seconds = |n: u64| Duration::from_millis(n.saturating_mul(1000) / ticks);
    to.add(Metric::Cpu, &[], seconds(stat.cpu).as_secs_f64());
    to.add(Metric::Threads, &[], stat.threads);
    to.add(Metric::Virtual, &[], stat.size);
    to.add(Metric::Resident, &[], stat.pages.saturating_mul(rustix::param::page_size() as u64));
    if let Some(booted) = booted() {
        to.add(Metric::StartTime, &[], (booted + seconds(stat.started)).as_secs_f64());
    }
}

/// When the machine started, as Unix time.
fn booted() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/stat").ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("btime "))?;
    line.trim().parse().ok().map(Duration::from_secs)
}

/// Some fields of `/proc/PID/stat`, see proc(5).
#[derive(PartialEq, Eq, Debug)]
struct Stat {
    /// Processor time, in ticks.
    cpu: u64,
    threads: u64,
    /// Since the machine started, in ticks.
    started: u64,
    /// Bytes of address space.
    size: u64,
    /// Pages in memory.
    pages: u64,
}

impl Stat {
    fn parse(text: &str) -> Option<Stat> {
        // The program's name, the second field, may contain anything.
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        let field = |n: usize| fields.get(n.checked_sub(3)?)?.parse::<u64>().ok();
        Some(Stat {
            cpu: field(14)?.checked_add(field(15)?)?,
            threads: field(20)?,
            started: field(22)?,
            size: field(23)?,
            pages: field(24)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_behind_any_name() {
        let text = "7 (a) b (c) S 1 7 7 0 -1 4194304 100 0 0 0 150 50 0 0 20 0 9 0 1234 40960 5 18446744073709551615";
        let stat = Stat { cpu: 200, threads: 9, started: 1234, size: 40960, pages: 5 };
        assert_eq!(Stat::parse(text), Some(stat));
        assert_eq!(Stat::parse("7 (a) S 1"), None);
    }

    #[test]
    fn this_process_is_described() {
        let mut e = Exposition::new();
        add(&mut e);
        let text = e.text();
        for name in ["process_cpu_seconds_total ", "process_open_fds ", "process_start_time_seconds "] {
            assert!(text.contains(&format!("\n{name}")), "{name} in {text}");
        }
    }
}

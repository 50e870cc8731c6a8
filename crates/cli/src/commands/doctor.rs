//! `mortar doctor`.

use crate::ask;
use crate::cli::Global;
use crate::table::paragraph;
use crate::view::View;
use admin::{DoctorReport, Finding, Severity};
use anyhow::bail;
use clap::Args;
use std::path::Path;

/// Look for what is wrong with the pool and this machine, or soon may be, and say what to do about it.
///
/// Servers (reached, version, clock, descriptors, room of the state folder), their bricks (served, file system, room), the
/// pool's agreement, views of volumes, and FUSE on this machine. Exit code 1 if something does not work.
#[derive(Args, Debug)]
#[command(after_help = "Example: mortar doctor --server server1")]
pub(crate) struct Doctor {
    #[command(flatten)]
    view: View,
}

impl Doctor {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<()> {
        let mut report = ask::ask(global, admin::GetDoctor {})?;
        report.checked.push("this machine: FUSE".to_owned());
        report.findings.extend(here(Path::new("/dev/fuse")));
        self.view.show(global, &report, |_| show(&report))?;
        let errors = report.findings.iter().filter(|f| f.severity == Severity::Error).count();
        match errors {
            0 => Ok(()),
            1 => bail!("one of the findings is an error: {}", first(&report)),
            _ => bail!("{errors} of the findings are errors: the first is {}", first(&report)),
        }
    }
}

fn first(report: &DoctorReport) -> String {
    let found = report.findings.iter().find(|f| f.severity == Severity::Error);
    found.map_or_else(String::new, |f| format!("{}: {}: {}", f.object, f.cause, f.remedy))
}

/// What can be seen on the machine where the command runs.
fn here(fuse: &Path) -> Vec<Finding> {
    if fuse.exists() {
        return Vec::new();
    }
    vec![Finding {
        severity: Severity::Warning,
        object: "this machine".to_owned(),
        cause: "there is no /dev/fuse: volumes cannot be mounted here".to_owned(),
        remedy: "modprobe fuse; in a container give it the device /dev/fuse and CAP_SYS_ADMIN".to_owned(),
    }]
}

fn show(report: &DoctorReport) -> String {
    let mut text = String::new();
    for line in &report.checked {
        text.push_str(&format!("{}\n", paragraph(&format!("looked at {line}"))));
    }
    for f in &report.findings {
        let severity = match f.severity {
            Severity::Error => "ERROR",
            Severity::Warning => "warning",
        };
        let found = paragraph(&format!("{severity}: {}: {}", f.object, f.cause));
        text.push_str(&format!("\n{found}\n  {}\n", f.remedy));
    }
    if report.findings.is_empty() {
        text.push_str("\nnothing is wrong");
    }
    text.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_fuse_is_found() {
        assert!(here(Path::new("/")).is_empty());
        let found = here(Path::new("/no/such/device"));
        assert_eq!(found.len(), 1);
        let report = DoctorReport { checked: vec!["x".to_owned()], findings: found };
        let text = show(&report);
        assert!(
            text.contains("warning: this machine: there is no /dev/fuse") && text.contains("modprobe"),
            "{text}"
        );
    }
}

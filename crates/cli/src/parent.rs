//! Ending with the process that started this one.

use anyhow::anyhow;
use rustix::process::Signal;

/// Has the kernel send SIGTERM when the parent ends; ends at once if it is gone already.
///
/// # Errors
/// The parent is gone already.
pub fn die_with(parent: Option<i32>) -> anyhow::Result<()> {
    let Some(parent) = parent else { return Ok(()) };
    rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?;
    match rustix::process::getppid() {
        Some(now) if now.as_raw_nonzero().get() == parent => Ok(()),
        _ => Err(anyhow!("process {parent}, which started this one, is gone")),
    }
}

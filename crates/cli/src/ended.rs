//! The signals by which somebody ends a command that has to tidy up: Ctrl-C, SIGTERM, and SIGHUP of a terminal that goes away.

use std::fs;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What the kernel tells of this process.
const STATUS: &str = "/proc/self/status";

/// Those signals, watched from now on.
#[derive(Debug)]
pub(crate) struct EndSignals {
    term: Signal,
    int: Signal,
    hangup: Option<Signal>,
}

impl EndSignals {
    /// Begins to watch. Needs a runtime around it.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn watch() -> std::io::Result<EndSignals> {
        // `nohup` wants a command to go on without its terminal.
        let ignored = fs::read_to_string(STATUS).is_ok_and(|status| ignores_hangup(&status));
        let hangup = if ignored { None } else { Some(signal(SignalKind::hangup())?) };
        Ok(EndSignals {
            term: signal(SignalKind::terminate())?,
            int: signal(SignalKind::interrupt())?,
            hangup,
        })
    }

    /// Waits for one of them.
    pub(crate) async fn one(&mut self) {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! { _ = self.term.recv() => {}, _ = self.int.recv() => {}, _ = hangup => {} }
    }
}

/// Whether the process was started so that SIGHUP does nothing: the first bit of the mask.
fn ignores_hangup(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 != 0)
}

#[cfg(test)]
mod tests {
    use super::ignores_hangup;

    #[test]
    fn nohup_is_known_by_the_mask_of_ignored_signals() {
        assert!(ignores_hangup("Name:\tmortar\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\n"));
        assert!(!ignores_hangup("SigBlk:\t0000000000000001\nSigIgn:\t0000000000001000\n"));
        assert!(!ignores_hangup(""));
    }
}

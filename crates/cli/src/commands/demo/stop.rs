//! Ctrl-C, SIGTERM and the end of the terminal during the demo.

use super::stage::Stage;
use crate::ended::EndSignals;
use crate::limits::CLEAN_END_WAIT;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Somebody ended the demo.
#[derive(Debug)]
pub(super) struct Interrupted;

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("demo: interrupted")
    }
}

impl std::error::Error for Interrupted {}

/// Whether it is time to end.
#[derive(Clone, Debug, Default)]
pub(super) struct Stop {
    flag: Arc<(Mutex<bool>, Condvar)>,
}

impl Stop {
    /// Watches for signals from now on. At a second one, or if the demo does not end in time, the stage is taken down here.
    pub(super) fn watch(stage: Stage) -> anyhow::Result<Stop> {
        let stop = Stop::default();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let mut signals = {
            let _inside = runtime.enter();
            EndSignals::watch()?
        };
        let ours = stop.clone();
        let watch = async move {
            signals.one().await;
            ours.set();
            let late = tokio::time::sleep(CLEAN_END_WAIT);
            tokio::select! { () = signals.one() => {}, () = late => {} }
            if let Err(e) = stage.end() {
                crate::output::complain(&format!("{e:#}"));
            }
            std::process::exit(1);
        };
        std::thread::Builder::new().name("demo-signals".to_owned()).spawn(move || runtime.block_on(watch))?;
        Ok(stop)
    }

    fn set(&self) {
        *self.flag.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.flag.1.notify_all();
    }

    /// Ends a step if it is time to.
    ///
    /// # Errors
    /// [`Interrupted`].
    pub(super) fn check(&self) -> anyhow::Result<()> {
        if *self.flag.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Err(Interrupted.into())
        } else {
            Ok(())
        }
    }

    /// Waits so long, or until it is time to end.
    pub(super) fn wait(&self, time: Option<Duration>) {
        let until = time.map(|t| Instant::now() + t);
        let mut set = self.flag.0.lock().unwrap_or_else(PoisonError::into_inner);
        while !*set {
            let left = match until {
                None => Duration::from_secs(3600),
                Some(until) => until.saturating_duration_since(Instant::now()),
            };
            if left.is_zero() {
                return;
            }
            set = self.flag.1.wait_timeout(set, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

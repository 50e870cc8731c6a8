//! Ctrl-C, SIGTERM and the end of the terminal during a benchmark: it ends, and its folder goes with it.

use crate::ended::EndSignals;
use anyhow::bail;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether somebody ended the benchmark.
#[derive(Clone, Debug, Default)]
pub(super) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Watches for signals from now on. A second one ends the process at once.
    pub(super) fn watch() -> anyhow::Result<Interrupt> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        let mut signals = {
            let _inside = runtime.enter();
            EndSignals::watch()?
        };
        let interrupt = Interrupt::default();
        let ours = interrupt.clone();
        let watch = async move {
            for _ in 0..2 {
                signals.one().await;
                if ours.0.swap(true, Ordering::Relaxed) {
                    std::process::exit(1);
                }
            }
        };
        std::thread::Builder::new()
            .name("bench-signals".to_owned())
            .spawn(move || runtime.block_on(watch))?;
        Ok(interrupt)
    }

    /// # Errors
    /// It was ended.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        if self.0.load(Ordering::Relaxed) {
            bail!("interrupted: its folder is removed");
        }
        Ok(())
    }
}

//! What only a person at a terminal sees: progress.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;

/// A progress bar on stderr; silent unless that is a terminal.
pub(crate) fn progress(what: &str, total: u64) -> ProgressBar {
    let target = if std::io::stderr().is_terminal() {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let bar = ProgressBar::with_draw_target(Some(total), target);
    if let Ok(style) = ProgressStyle::with_template("{msg:12} {bar:40} {pos}/{len} {eta}") {
        bar.set_style(style);
    }
    bar.set_message(what.to_owned());
    bar
}

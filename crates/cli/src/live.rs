//! Answers that are shown again and again, for who waits for something.

use crate::cli::Global;
use crate::output;
use crate::view::View;
use clap::Args;
use serde::Serialize;
use std::io::IsTerminal;
use std::time::Duration;

/// The options of commands whose answer changes by itself.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct Live {
    #[command(flatten)]
    view: View,
    /// Show it again every 2 seconds, or as many as given, until it is interrupted: on a terminal in place of what was shown
    /// before.
    #[arg(
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "2",
        value_parser = clap::value_parser!(u64).range(1..=3600)
    )]
    watch: Option<u64>,
}

impl Live {
    /// Looks, and prints what it got: once, or until it is interrupted. `text`: what people see; its second argument says
    /// whether in all columns.
    pub(crate) fn show<T: Serialize>(
        self,
        global: &Global,
        mut look: impl FnMut() -> anyhow::Result<T>,
        text: impl Fn(&T, bool) -> String,
    ) -> anyhow::Result<()> {
        let print = |answer: &T| self.view.show(global, answer, |wide| text(answer, wide));
        let clears = std::io::stdout().is_terminal() && !self.view.is_document(global);
        // To the top of an empty screen.
        let clear = || if clears { output::part("\x1b[H\x1b[2J") } else { Ok(()) };
        match self.watch {
            None => print(&look()?),
            Some(seconds) => {
                let pause = || std::thread::sleep(Duration::from_secs(seconds));
                let begin = || self.view.begin_one_of_many(global).and_then(|()| clear());
                repeat(look, |answer| begin().and_then(|()| print(answer)), pause)
            }
        }
    }
}

/// Looks and prints until that fails. Who waits for a server that is away is told so, and waits on; a command that never got
/// an answer fails.
fn repeat<T>(
    mut look: impl FnMut() -> anyhow::Result<T>,
    print: impl Fn(&T) -> anyhow::Result<()>,
    pause: impl Fn(),
) -> anyhow::Result<()> {
    print(&look()?)?;
    loop {
        pause();
        match look() {
            Ok(answer) => print(&answer)?,
            Err(e) => output::complain(&format!("{e:#}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};

    #[test]
    fn it_goes_on_when_a_server_is_away_and_ends_when_nobody_reads() {
        let (looks, pauses, shown) = (Cell::new(0), Cell::new(0), RefCell::new(Vec::new()));
        let look = || {
            looks.set(looks.get() + 1);
            if looks.get() == 2 { Err(anyhow::anyhow!("server1 does not answer")) } else { Ok(looks.get()) }
        };
        let print = |n: &i32| {
            shown.borrow_mut().push(*n);
            if *n == 4 { Err(anyhow::anyhow!("closed")) } else { Ok(()) }
        };
        let ended = repeat(look, print, || pauses.set(pauses.get() + 1));
        assert_eq!(ended.unwrap_err().to_string(), "closed");
        assert_eq!((shown.into_inner(), pauses.get()), (vec![1, 3, 4], 3));
    }

    #[test]
    fn a_first_look_that_fails_is_the_commands_failure() {
        let look = || Err::<(), _>(anyhow::anyhow!("volume v does not exist"));
        let ended = repeat(look, |()| Ok(()), || panic!("nothing is waited for"));
        assert_eq!(ended.unwrap_err().to_string(), "volume v does not exist");
    }
}

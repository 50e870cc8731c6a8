//! `mortar peer drain`.

use crate::cli::Global;
use crate::table::shown_host;
use crate::{ask, output};
use admin::PeerDrained;
use clap::Args;

/// Let the bricks of a server move to others, while their volumes are in use.
///
/// Each gets a new directory beside a brick of the same volume, on a server that has none of its set. It leaves when that is
/// in sync. Run it again to see what is left; with nothing left the server can be detached.
#[derive(Args, Debug)]
#[command(after_help = "Example: mortar peer drain server2")]
pub(crate) struct Drain {
    /// The server, as it was probed.
    host: String,
}

impl Drain {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<()> {
        let answer = ask::ask(global, admin::PeerDrain { host: self.host })?;
        if global.json { output::json(&answer) } else { output::line(&show(&answer)) }
    }
}

fn show(a: &PeerDrained) -> String {
    let host = shown_host(&a.host);
    if a.bricks.is_empty() {
        return format!("{host} has no bricks: mortar peer detach {host}");
    }
    let leaving = a.bricks.iter().filter_map(|b| {
        let place = b.goes_to.as_ref()?;
        Some(format!("{} leaves when {place} is in sync", b.brick))
    });
    let notes = a.notes.iter().map(|note| format!("note: {note}"));
    let lines: Vec<String> =
        [format!("{} bricks on {host}", a.bricks.len())].into_iter().chain(leaving).chain(notes).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use admin::DrainedBrick;

    #[test]
    fn it_says_what_is_left() {
        let mut a = PeerDrained { host: "h".to_owned(), ..PeerDrained::default() };
        assert_eq!(show(&a), "h has no bricks: mortar peer detach h");
        let goes_to = Some("g:/b-set1".to_owned());
        a.bricks.push(DrainedBrick { brick: "h:/a".to_owned(), goes_to });
        a.notes.push("h:/c stays".to_owned());
        assert_eq!(show(&a), "1 bricks on h\nh:/a leaves when g:/b-set1 is in sync\nnote: h:/c stays");
    }
}

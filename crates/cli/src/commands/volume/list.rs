//! `mortar volume list`.

use crate::ask;
use crate::cli::Global;
use crate::view::View;
use clap::Args;

/// The names of all volumes, one a line.
#[derive(Args, Debug)]
#[command(after_help = "Example: mortar volume list")]
pub(crate) struct List {
    #[command(flatten)]
    view: View,
}

impl List {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<()> {
        let answer = ask::ask(global, admin::VolumeList {})?;
        self.view.show(global, &answer, |_| answer.names.join("\n"))
    }
}

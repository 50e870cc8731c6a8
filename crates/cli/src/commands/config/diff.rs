//! `mortar config diff`.

use super::read;
use crate::ask;
use crate::cli::Global;
use crate::view::View;
use anyhow::Context;
use clap::Args;

/// Tell what a document says otherwise than the pool is, a line for each change that applying it would make.
///
/// Prints nothing if there is no difference. Whether it can be applied tells `mortar config apply FILE --dry-run`.
#[derive(Args, Debug)]
#[command(after_help = "Example: mortar config diff pool.toml")]
pub(crate) struct Diff {
    /// The document, as `mortar config export` prints it; - reads stdin.
    file: String,
    #[command(flatten)]
    view: View,
}

impl Diff {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<()> {
        let request = admin::ConfigDiff { document: read(&self.file)? };
        let answer = ask::ask(global, request).with_context(|| self.file.clone())?;
        self.view.show(global, &answer, |_| answer.changes.join("\n"))
    }
}

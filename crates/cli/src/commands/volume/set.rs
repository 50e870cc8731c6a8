//! `mortar volume set`.

use crate::ask;
use crate::cli::Global;
use crate::error::usage;
use crate::output;
use clap::Args;

/// Set options of a volume, all or none of those given.
#[derive(Args, Debug)]
#[command(
    override_usage = "mortar volume set VOL KEY VALUE [KEY VALUE]...",
    after_help = "Example: mortar volume set home network.ping-timeout 5s features.read-only on"
)]
pub(crate) struct Set {
    /// The volume.
    #[arg(value_name = "VOL")]
    name: String,
    /// Keys and values; `mortar volume get VOL` lists them.
    #[arg(value_name = "KEY VALUE", required = true, num_args = 2..)]
    words: Vec<String>,
}

impl Set {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<()> {
        let (pairs, rest) = self.words.as_chunks::<2>();
        if let [key] = rest {
            return usage(format!("option {key} has no value: write KEY VALUE [KEY VALUE]..."));
        }
        let options = pairs.iter().map(|[key, value]| (key.clone(), value.clone())).collect();
        let answer = ask::ask(global, admin::VolumeSet { name: self.name, options })?;
        let s = if answer.options == 1 { "" } else { "s" };
        let line = format!("{} option{s} of volume {} set", answer.options, answer.name);
        output::done(global.json, &answer, &line)
    }
}

//! `mortar volume set`.

use super::changed::{Changed, values};
use crate::ask;
use crate::cli::Global;
use crate::error::usage;
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
        let before = values(global, &self.name)?;
        let answer = ask::ask(global, admin::VolumeSet { name: self.name, options })?;
        let named = |key: &str| pairs.iter().any(|[named, _]| named == key);
        Changed::since(&before, &values(global, &answer.name)?, named).show(global, &answer, &answer.name)
    }
}

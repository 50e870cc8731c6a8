//! `mortar volume get`.

use crate::ask;
use crate::cli::Global;
use crate::table::Rows;
use crate::view::View;
use clap::Args;

/// Options of a volume: value, default and what they do.
#[derive(Args, Debug)]
#[command(after_help = "Example: mortar volume get home network.ping-timeout")]
pub(crate) struct Get {
    /// The volume.
    #[arg(value_name = "VOL")]
    name: String,
    /// The option; all if none is given.
    key: Option<String>,
    #[command(flatten)]
    view: View,
}

impl Get {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<()> {
        let answer = ask::ask(global, admin::VolumeGet { name: self.name, key: self.key })?;
        self.view.show(global, &answer, |_| {
            let mut rows = Rows::new(&["OPTION", "VALUE", "DEFAULT", "WHAT IT DOES"]).wrapped();
            for o in &answer.options {
                let shown = |v: &String| if v.is_empty() { "-".to_owned() } else { v.clone() };
                rows.row([o.key.clone(), shown(&o.value), shown(&o.default), o.help.clone()]);
            }
            rows.text()
        })
    }
}

//! `mortar volume get`.

use crate::ask::{self, unexpected};
use crate::cli::Global;
use crate::output;
use crate::table::Rows;
use clap::Args;
use cluster::admin::{AdminReply, AdminRequest};

/// Options of a volume: value, default and what they do.
#[derive(Args, Debug)]
#[command(after_help = "Example: mortar volume get home network.ping-timeout")]
pub(crate) struct Get {
    /// The volume.
    #[arg(value_name = "VOL")]
    name: String,
    /// The option; all if none is given.
    key: Option<String>,
}

impl Get {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<()> {
        let options = match ask::ask(global, AdminRequest::VolumeGet { name: self.name, key: self.key })? {
            AdminReply::Options(options) => options,
            other => return unexpected(&other),
        };
        if global.json {
            return output::json(&options);
        }
        let mut rows = Rows::new(&["OPTION", "VALUE", "DEFAULT", "WHAT IT DOES"]);
        for o in options {
            let shown = |v: String| if v.is_empty() { "-".to_owned() } else { v };
            rows.row([o.key, shown(o.value), shown(o.default), o.help]);
        }
        output::line(&rows.text())
    }
}

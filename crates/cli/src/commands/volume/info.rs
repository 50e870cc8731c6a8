//! `mortar volume info`.

use crate::ask;
use crate::cli::Global;
use crate::table::Rows;
use crate::view::View;
use admin::VolumeDescription;
use clap::Args;

/// What volumes are made of.
#[derive(Args, Debug)]
#[command(after_help = "Example: mortar volume info home")]
pub(crate) struct Info {
    /// The volume; all if none is given.
    #[arg(value_name = "VOL")]
    name: Option<String>,
    #[command(flatten)]
    view: View,
}

impl Info {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<()> {
        let answer = ask::ask(global, admin::VolumeInfo { name: self.name })?;
        self.view.show(global, &answer, |_| {
            let shown: Vec<String> = answer.volumes.iter().map(show).collect();
            shown.join("\n\n")
        })
    }
}

/// The layout in the words of `volume create`.
fn layout(v: &VolumeDescription) -> String {
    let sets = format!("{} set{}", v.sets.len(), if v.sets.len() == 1 { "" } else { "s" });
    match (v.replica, v.arbiter) {
        (1, _) => format!("distributed, {sets} of one brick"),
        (n, 0) => format!("replica {n}, {sets}"),
        (n, a) => format!("replica {n} arbiter {a}, {sets}"),
    }
}

fn show(v: &VolumeDescription) -> String {
    let mut rows = Rows::new(&["SET", "BRICK", "PATH"]).right(&[0, 1]);
    for set in &v.sets {
        for b in &set.bricks {
            let name = if b.arbiter { format!("{} (arbiter)", b.name) } else { b.name.clone() };
            rows.row([set.id.to_string(), b.id.to_string(), name]);
        }
    }
    let mut text = format!("volume {}: {}, {}\n{}", v.name, v.status, layout(v), rows.text());
    for (key, value) in &v.options {
        text.push_str(&format!("\noption {key} = {value}"));
    }
    text
}

//! `mortar volume info`.

use crate::ask;
use crate::cli::Global;
use crate::table::Rows;
use crate::view::View;
use admin::VolumeDescription;
use clap::Args;

/// An option that names sets by their ids.
const DRAIN: &str = "cluster.drain";

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
        self.view.show(global, &answer, |wide| {
            let shown: Vec<String> = answer.volumes.iter().map(|v| show(v, wide)).collect();
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

fn show(v: &VolumeDescription, wide: bool) -> String {
    let heads: &[&str] = if wide { &["SET", "SET ID", "BRICK", "PATH"] } else { &["SET", "BRICK", "PATH"] };
    let mut rows = Rows::new(heads).right(if wide { &[0, 1, 2] } else { &[0, 1] });
    for set in &v.sets {
        for b in &set.bricks {
            let name = if b.arbiter { format!("{} (arbiter)", b.name) } else { b.name.clone() };
            let mut cells = vec![set.name().to_string()];
            if wide {
                cells.push(set.id.to_string());
            }
            cells.extend([b.id.to_string(), name]);
            rows.row(cells);
        }
    }
    let mut text = format!("volume {}: {}, {}\n{}", v.name, v.status, layout(v), rows.text());
    for (key, value) in &v.options {
        text.push_str(&format!("\noption {key} = {value}"));
        if key == DRAIN {
            text.push_str(&drained(v, value));
        }
    }
    text
}

/// Which sets the ids in the option are.
fn drained(v: &VolumeDescription, ids: &str) -> String {
    let ids: Vec<&str> = ids.split(',').map(str::trim).collect();
    let named = v.sets.iter().filter(|set| ids.contains(&set.id.0.to_string().as_str()));
    let named: Vec<String> = named.map(|set| format!("set {}", set.name())).collect();
    if named.is_empty() { String::new() } else { format!(" (ids of {})", named.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use admin::{BrickDescription, SetDescription, VolumeState};
    use ids::{BrickId, SetId, VolumeId};

    #[test]
    fn sets_have_their_numbers_and_ids_only_where_asked_for() {
        let brick = BrickDescription { id: BrickId(9), name: "a:/x".to_owned(), arbiter: false };
        let set = |id, number| SetDescription { id: SetId(id), number, bricks: vec![brick.clone()] };
        let volume = VolumeDescription {
            id: VolumeId(2),
            name: "home".to_owned(),
            status: VolumeState::Started,
            replica: 1,
            arbiter: 0,
            created: 0,
            sets: vec![set(7, 1), set(8, 2), set(12, 3)],
            options: [(DRAIN.to_owned(), "8, 12".to_owned())].into(),
        };
        let text = show(&volume, false);
        assert!(text.contains("\n  1      9  a:/x\n  2") && !text.contains('#'), "{text}");
        assert!(text.ends_with("option cluster.drain = 8, 12 (ids of set 2, set 3)"), "{text}");
        let wide = show(&volume, true);
        assert!(wide.contains("SET ID") && wide.contains("  1      #7      9  a:/x"), "{wide}");
    }
}

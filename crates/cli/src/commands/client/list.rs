//! `mortar client list`.

use crate::cli::Global;
use crate::table::{Rows, shown_host, yes};
use crate::view::View;
use crate::{ask, unix_time};
use admin::KeyLine;
use clap::Args;

/// The keys that are let in, those of servers and administrators too.
#[derive(Args, Debug)]
#[command(after_help = "Example: mortar client list")]
pub(crate) struct List {
    #[command(flatten)]
    view: View,
}

impl List {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<()> {
        let answer = ask::ask(global, admin::ClientList {})?;
        self.view.show(global, &answer, |wide| show(&answer.keys, wide))
    }
}

/// Keys as a table; `wide`: with a column for each of their limits.
fn show(keys: &[KeyLine], wide: bool) -> String {
    // While there are two.
    let authorities = keys.iter().any(|k| k.authority.is_some());
    let limits = if wide { &["SUBDIR", "READ-ONLY", "USER"][..] } else { &["LIMITS"] };
    let mut heads = [&["KEY", "NAME", "ROLE", "VOLUME"], limits, &["ENDS", "CONN"]].concat();
    let connections = heads.len() - 1;
    if authorities {
        heads.push("AUTHORITY");
    }
    let mut rows = Rows::new(&heads).right(&[0, connections]);
    for k in keys {
        let user = k.squash.as_ref().map_or_else(|| users(&k.users), ToString::to_string);
        let subdir = k.subdir.clone().unwrap_or_default();
        let mut cells = vec![
            k.key.to_string(),
            shown_host(&k.name),
            k.role.to_string(),
            k.volume.clone().unwrap_or_default(),
        ];
        if wide {
            cells.extend([subdir, yes(k.read_only), user]);
        } else {
            let read_only = if k.read_only { "read-only".to_owned() } else { String::new() };
            let all: Vec<String> =
                [read_only, subdir, user].into_iter().filter(|limit| !limit.is_empty()).collect();
            cells.push(all.join(" "));
        }
        cells.extend([k.until.map_or_else(|| "never".to_owned(), ends), k.connections.to_string()]);
        if authorities {
            cells.push(k.authority.as_ref().map_or_else(String::new, ToString::to_string));
        }
        rows.row(cells);
    }
    rows.text()
}

/// The first of the users that a key is for.
fn users(all: &[admin::KeyUser]) -> String {
    const SHOWN: usize = 3;
    let mut shown: Vec<String> = all.iter().take(SHOWN).map(|user| user.uid.to_string()).collect();
    if all.len() > SHOWN {
        shown.push("...".to_owned());
    }
    shown.join(",")
}

/// When a key ends, seen from now.
fn ends(until: u64) -> String {
    match until.saturating_sub(unix_time().as_secs()) {
        left @ 0..120 => format!("in {left} s"),
        left @ 120..7200 => format!("in {} min", left / 60),
        left @ 7200..172_800 => format!("in {} h", left / 3600),
        left => format!("in {} days", left / 86_400),
    }
}

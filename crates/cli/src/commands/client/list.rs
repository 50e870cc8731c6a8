//! `mortar client list`.

use crate::cli::Global;
use crate::table::{Rows, yes};
use crate::{ask, output, unix_time};
use clap::Args;

/// The keys that are let in, those of servers and administrators too.
#[derive(Args, Debug)]
#[command(after_help = "Example: mortar client list")]
pub(crate) struct List {}

impl List {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<()> {
        let answer = ask::ask(global, admin::ClientList {})?;
        if global.json {
            return output::json(&answer);
        }
        let heads = [
            "KEY",
            "NAME",
            "ROLE",
            "VOLUME",
            "SUBDIR",
            "READ-ONLY",
            "USER",
            "ENDS",
            "CONNECTIONS",
            "AUTHORITY",
        ];
        // While there are two.
        let shown = if answer.keys.iter().any(|k| k.authority.is_some()) { 10 } else { 9 };
        let mut rows = Rows::new(&heads[..shown]).right(&[0, 8]);
        for k in answer.keys {
            let cells = [
                k.key.to_string(),
                k.name,
                k.role.to_string(),
                k.volume.unwrap_or_default(),
                k.subdir.unwrap_or_default(),
                yes(k.read_only),
                k.squash.map_or_else(|| users(&k.users), |user| user.to_string()),
                k.until.map_or_else(|| "never".to_owned(), ends),
                k.connections.to_string(),
                k.authority.map_or_else(String::new, |by| by.to_string()),
            ];
            rows.row(cells.into_iter().take(shown));
        }
        output::line(&rows.text())
    }
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
        left @ 0..3600 => format!("in {} min", left / 60),
        left @ 3600..172_800 => format!("in {} h", left / 3600),
        left => format!("in {} days", left / 86_400),
    }
}

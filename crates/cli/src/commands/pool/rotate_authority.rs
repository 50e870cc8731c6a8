//! `mortar pool rotate-authority`.

use crate::cli::Global;
use crate::{ask, output};
use clap::Args;

/// Put another authority in the place of the pool's, which signs all keys, while the pool serves.
///
/// Without --finish all servers get another authority beside theirs, believe both, and it signs keys from then on. Then make
/// the keys of clients and administrators anew (mortar client rotate NAME) and bring the files to them; root on servers'
/// machines needs nothing. With --finish servers take other keys, and the old authority is forgotten. All servers have to run
/// for both; if one does not, do it again. In between nobody joins the pool.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples: mortar pool rotate-authority; mortar client rotate web-1 --after 0s --out home.key; mortar pool \
                  rotate-authority --finish"
)]
pub struct PoolRotateAuthority {
    /// The old authority is not believed any more.
    #[arg(long)]
    finish: bool,
    /// Keys of clients and administrators that were not made anew end.
    #[arg(long, requires = "finish")]
    force: bool,
}

impl PoolRotateAuthority {
    /// Asks, and says what is left to do.
    ///
    /// # Errors
    /// The server cannot be reached, or refuses.
    pub fn run(self, global: &Global) -> anyhow::Result<()> {
        let request = admin::PoolRotateAuthority { finish: self.finish, force: self.force };
        let answer = ask::ask(global, request)?;
        output::done(global.json, &answer, &described(&answer))
    }
}

fn described(answer: &admin::AuthorityRotated) -> String {
    let (fingerprint, old) = (&answer.fingerprint, answer.old_keys.join(", "));
    let mut lines = Vec::new();
    if answer.finished {
        lines.push(format!("the pool's authority has fingerprint {fingerprint} now"));
        if !old.is_empty() {
            lines.push(format!("keys that ended: {old}"));
        }
        if !answer.believe_both.is_empty() {
            let both = answer.believe_both.join(", ");
            lines.push(format!(
                "files that still tell their holders to believe the old one, too (if it was stolen, mortar client rotate NAME once \
                 more): {both}"
            ));
        }
    } else {
        lines.push(format!("the next authority has fingerprint {fingerprint}, and signs keys from now on"));
        if old.is_empty() {
            lines.push("end it with mortar pool rotate-authority --finish".to_owned());
        } else {
            lines.push(format!("make these keys anew (mortar client rotate NAME): {old}"));
            lines.push(
                "then end it with mortar pool rotate-authority --finish; mortar client list shows which are left".to_owned(),
            );
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_to_do_is_said() {
        let mut answer = admin::AuthorityRotated {
            fingerprint: "ab".to_owned(),
            old_keys: vec!["ann".to_owned(), "web-1".to_owned()],
            believe_both: vec![],
            finished: false,
        };
        assert!(described(&answer).contains("(mortar client rotate NAME): ann, web-1\nthen"));
        answer.finished = true;
        assert!(described(&answer).ends_with("now\nkeys that ended: ann, web-1"));
        answer.old_keys.clear();
        assert_eq!(described(&answer), "the pool's authority has fingerprint ab now");
        answer.believe_both = vec!["web-2".to_owned()];
        assert!(described(&answer).ends_with("once more): web-2"));
        answer.finished = false;
        assert!(described(&answer).ends_with("--finish"));
    }
}

//! The users that a key is for, as they are written and as this machine knows them.

use anyhow::{Context, bail};
use std::process::Command;
use std::str::FromStr;

/// A user as he is named: by a name that this machine knows, or by numbers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum ListedUser {
    Name(String),
    Numbers(admin::KeyUser),
}

impl FromStr for ListedUser {
    type Err = String;

    fn from_str(text: &str) -> Result<ListedUser, String> {
        if text.starts_with(|c: char| c.is_ascii_digit()) {
            let user = text.parse().map(ListedUser::Numbers);
            return user
                .map_err(|ids::NoKeyUser| format!("'{text}': write UID:GID or UID:GID+GID+GID, or a name"));
        }
        let odd = |c: char| c.is_whitespace() || c.is_control() || c == ':';
        if text.is_empty() || text.starts_with('-') || text.contains(odd) {
            return Err(format!("'{text}' is no user's name"));
        }
        Ok(ListedUser::Name(text.to_owned()))
    }
}

impl ListedUser {
    /// His numbers. `id` knows whoever this machine knows, from whichever directory.
    pub(super) fn resolve(self) -> anyhow::Result<admin::KeyUser> {
        let name = match self {
            ListedUser::Numbers(user) => return Ok(user),
            ListedUser::Name(name) => name,
        };
        let [uid, gid] = ["-u", "-g"].map(|what| asked(what, &name).and_then(|text| one(&text, &name)));
        let gid = gid?;
        let all = asked("-G", &name)?;
        let groups =
            all.split_whitespace().map(|number| one(number, &name)).collect::<Result<Vec<u32>, _>>()?;
        Ok(admin::KeyUser { uid: uid?, gid, groups: groups.into_iter().filter(|g| *g != gid).collect() })
    }
}

fn one(text: &str, name: &str) -> anyhow::Result<u32> {
    text.trim().parse().with_context(|| format!("id said of user {name}: {text}"))
}

fn asked(what: &str, name: &str) -> anyhow::Result<String> {
    let answer = Command::new("id").args([what, "--", name]).output();
    let answer = answer.with_context(|| format!("cannot run id to look user {name} up: write UID:GID"))?;
    if !answer.status.success() {
        bail!("this machine knows no user {name}: write UID:GID[+GID...]");
    }
    Ok(String::from_utf8_lossy(&answer.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(uid: u32, gid: u32, groups: &[u32]) -> admin::KeyUser {
        admin::KeyUser { uid, gid, groups: groups.to_vec() }
    }

    #[test]
    fn users_are_names_or_numbers() {
        let of = |text: &str| text.parse::<ListedUser>();
        assert_eq!(of("1000:100"), Ok(ListedUser::Numbers(user(1000, 100, &[]))));
        assert_eq!(of("1000:100+27+4"), Ok(ListedUser::Numbers(user(1000, 100, &[27, 4]))));
        assert_eq!(of("ann"), Ok(ListedUser::Name("ann".to_owned())));
        for bad in ["", "1000", "1000:1+x", "-u", "a b", "ann:1"] {
            assert!(of(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn names_are_looked_up_with_their_groups() {
        let root = ListedUser::Name("root".to_owned()).resolve().unwrap();
        assert_eq!((root.uid, root.gid), (0, 0));
        assert!(!root.groups.contains(&0));
        let unknown = ListedUser::Name("nobody-of-this-name".to_owned()).resolve();
        assert!(unknown.unwrap_err().to_string().contains("UID:GID"));
    }
}

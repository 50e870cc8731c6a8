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
    /// His numbers.
    pub(super) fn resolve(self) -> anyhow::Result<admin::KeyUser> {
        match self {
            ListedUser::Numbers(user) => Ok(user),
            ListedUser::Name(name) => look_up(&name)
                .with_context(|| format!("cannot look user {name} up, write UID:GID[+GID...] instead")),
        }
    }
}

/// A user with his groups now. `id` knows whoever this machine knows, from whichever directory.
fn look_up(name: &str) -> anyhow::Result<admin::KeyUser> {
    let [uid, gid] = ["-u", "-g"].map(|what| asked(what, name).and_then(|text| one(&text, name)));
    let gid = gid?;
    let all = asked("-G", name)?;
    let groups = all.split_whitespace().map(|number| one(number, name));
    let mut groups = groups.collect::<Result<Vec<u32>, _>>()?;
    groups.retain(|group| *group != gid);
    Ok(admin::KeyUser { uid: uid?, gid, groups, name: Some(name.to_owned()) })
}

/// The users of a key as they are now: who was named when it was made is looked up again, and has to be the same. Empty: nobody
/// was named, or the key is for no certain users.
pub(super) fn again(of_key: Vec<admin::KeyUser>) -> anyhow::Result<Vec<admin::KeyUser>> {
    if of_key.iter().all(|user| user.name.is_none()) {
        return Ok(Vec::new());
    }
    of_key.into_iter().map(one_again).collect()
}

fn one_again(user: admin::KeyUser) -> anyhow::Result<admin::KeyUser> {
    let Some(name) = &user.name else { return Ok(user) };
    let found = look_up(name).with_context(|| {
        format!(
            "cannot look user {name} up again, do it where he is known or keep the groups (--keep-groups)"
        )
    })?;
    if found.uid != user.uid {
        bail!(
            "user {name} is {} on this machine and {} in the key: make another key (mortar client add), or keep the groups \
             (--keep-groups)",
            found.uid,
            user.uid
        );
    }
    Ok(found)
}

fn one(text: &str, name: &str) -> anyhow::Result<u32> {
    text.trim().parse().with_context(|| format!("id said of user {name}: {text}"))
}

fn asked(what: &str, name: &str) -> anyhow::Result<String> {
    let answer = Command::new("id").args([what, "--", name]).output();
    let answer = answer.context("run id")?;
    if !answer.status.success() {
        bail!("this machine knows no user {name}");
    }
    Ok(String::from_utf8_lossy(&answer.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(uid: u32, gid: u32, groups: &[u32]) -> admin::KeyUser {
        admin::KeyUser { uid, gid, groups: groups.to_vec(), name: None }
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
        assert_eq!((root.uid, root.gid, root.name.as_deref()), (0, 0, Some("root")));
        assert!(!root.groups.contains(&0));
        let unknown = ListedUser::Name("nobody-of-this-name".to_owned()).resolve();
        let unknown = format!("{:#}", unknown.unwrap_err());
        assert!(unknown.contains("UID:GID") && unknown.contains("knows no user"), "{unknown}");
    }

    #[test]
    fn who_was_named_is_looked_up_again_and_is_the_same() {
        let named = |uid, name: &str| admin::KeyUser { name: Some(name.to_owned()), ..user(uid, 9, &[7]) };
        assert_eq!(again(vec![user(5, 5, &[6])]).unwrap(), [], "numbers stay what they are");
        let root = ListedUser::Name("root".to_owned()).resolve().unwrap();
        let found = again(vec![user(5, 5, &[6]), named(0, "root")]).unwrap();
        assert_eq!(found, [user(5, 5, &[6]), root]);
        for other in [named(1, "root"), named(1, "nobody-of-this-name")] {
            let refused = format!("{:#}", again(vec![other]).unwrap_err());
            assert!(refused.contains("--keep-groups"), "{refused}");
        }
    }
}

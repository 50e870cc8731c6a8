//! `mortar client add`.

use super::users;
use crate::cli::Global;
use crate::{ask, keys, lifetime, output};
use clap::Args;
use std::path::PathBuf;

/// Make a key with which one volume is mounted.
///
/// Bring the file to the client, as /etc/mortar/VOLUME.key or wherever `mount -o key=FILE` says.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  mortar client add web-1 --volume home --read-only
  mortar client add web-2 --volume home --squash 1000:1000    # all on web-2 are user 1000, its root too
  mortar client add web-3 --volume home --users ann,1001:1001+27    # only these two, each with his rights
  mortar client add web-4 --volume home --subdir /projects/web    # only what lies beneath that directory")]
pub(crate) struct Add {
    /// What it is to be called.
    name: String,
    /// The volume.
    #[arg(long, value_name = "VOL")]
    volume: String,
    /// Servers take no change from it.
    #[arg(long)]
    read_only: bool,
    /// Servers take each of its requests as this user's, with this one group and no rights of root, and check permissions
    /// themselves, whoever asks on the client.
    #[arg(long, value_name = "UID:GID", value_parser = squash)]
    squash: Option<admin::Squash>,
    /// Servers take requests of these users only, and check what each of them may; root of the client is none of them. A name
    /// is looked up on this machine now, with its groups, and again by client rotate; else numbers: of the user, of his first group, and of the others.
    #[arg(long, value_name = "NAME|UID:GID[+GID...],...", value_delimiter = ',', conflicts_with = "squash")]
    users: Vec<users::ListedUser>,
    /// Servers give this key only what lies beneath this directory of the volume, which its mounts show as their root. The key
    /// goes with the directory when that is renamed.
    #[arg(long, value_name = "PATH")]
    subdir: Option<String>,
    /// How long it is good: 12h, 90d. For ever unless given.
    #[arg(long, value_name = "TIME", value_parser = lifetime::parse)]
    expires: Option<u64>,
    /// The key file to write; NAME.key in this directory unless given.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

impl Add {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<()> {
        let Add { name, volume, read_only, squash, users, subdir, expires, out } = self;
        let path = keys::place(out, &name, false)?;
        let users = users.into_iter().map(users::ListedUser::resolve).collect::<Result<_, _>>()?;
        let key = admin::ClientAdd { name, volume, read_only, squash, users, subdir, expires };
        let made = ask::ask(global, key)?;
        keys::write(&path, &made.name, &made.file)?;
        let made = keys::Written::new(&made, &path);
        output::done(global.json, &made, &format!("key {} is in {}", made.name, path.display()))
    }
}

/// A user and a group, as numbers.
fn squash(text: &str) -> Result<admin::Squash, String> {
    let user = text.parse::<wire::User>();
    user.map(|user| admin::Squash { uid: user.uid, gid: user.gid })
        .map_err(|()| "write the numbers of a user and of a group: 1000:1000".to_owned())
}

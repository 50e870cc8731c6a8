//! Writing the document, with a comment for each section.

use std::fmt::Write;

use super::FORMAT;
use super::client::client_keys;
use crate::{ClientKey, State, Volume, options};

const HEAD: &str = "\
# The configuration of a Mortar pool, as `mortar config export` prints it.
# Edit it and give it to `mortar config apply FILE`; add --dry-run to see what would change.
# What it says of volumes is applied in one transaction, or nothing is.
";

const POOL: &str = "
# The pool itself. For the reader: apply changes nothing here.
";

const SERVERS: &str = "
# The servers. One that the pool lacks is taken in: address is where it listens, fingerprint what it wrote into its log, if it
# runs on another machine. One that is missing here stays: `mortar peer detach` lets it go.
";

const VOLUMES: &str = "
# The volumes. One that the pool lacks is created; one that is missing here is left alone.
# replica: bricks in each set. arbiter: how many of them hold no file data. bricks: HOST:/PATH, set after set.
# status: \"started\" or \"stopped\". options: all that differ from their defaults; what is not listed is reset.
# `mortar volume get VOL` lists all options with what they mean.
";

const CLIENTS: &str = "
# The keys of clients. One that the pool lacks is made, and its file written: `mortar config apply FILE --keys DIR`. None is
# changed or ended: see `mortar client --help`. squash: \"UID:GID\". users: \"UID:GID+GID\". expires: \"90d\", for a new one.
";

/// The document of the whole pool. `now`, in seconds since 1970: keys that have ended by then are left out.
pub fn export(state: &State, now: u64) -> String {
    let mut text = HEAD.to_string();
    // Writing into a String does not fail.
    let _ = write(state, now, &mut text);
    text
}

fn write(state: &State, now: u64, to: &mut String) -> std::fmt::Result {
    writeln!(to, "format = {FORMAT}")?;
    writeln!(to, "{POOL}[pool]\nid = {}\nversion = {}", quote(&state.pool), state.version)?;
    to.push_str(SERVERS);
    for s in state.servers.values() {
        let (host, address, role) = (quote(&s.host), quote(&s.address), s.role);
        writeln!(to, "[server.{host}]\nid = {}\naddress = {address}\nrole = \"{role}\"\n", s.id)?;
    }
    to.push_str(VOLUMES.trim_start());
    let mut volumes: Vec<&Volume> = state.volumes.values().collect();
    volumes.sort_by(|a, b| a.name.cmp(&b.name));
    for v in volumes {
        write_volume(state, v, to)?;
    }
    // What ends by itself would be made anew by a document of before.
    let lasting = client_keys(state, now).into_iter().filter(|(_, key)| key.until.is_none());
    for (n, (client, _)) in lasting.enumerate() {
        if n == 0 {
            to.push_str(CLIENTS);
        }
        write_client(state, client, to)?;
    }
    Ok(())
}

fn write_client(state: &State, client: &ClientKey, to: &mut String) -> std::fmt::Result {
    let volume = state.volumes.get(&client.volume).map_or("", |v| v.name.as_str());
    writeln!(to, "\n[client.{}]\nvolume = {}", quote(&client.name), quote(volume))?;
    if client.read_only {
        writeln!(to, "read_only = true")?;
    }
    if let Some(user) = client.squash {
        writeln!(to, "squash = \"{}:{}\"", user.uid, user.gid)?;
    }
    if !client.users.is_empty() {
        let users: Vec<String> = client.users.iter().map(|user| quote(&user.to_string())).collect();
        writeln!(to, "users = [{}]", users.join(", "))?;
    }
    match &client.subdir {
        Some(subdir) => writeln!(to, "subdir = {}", quote(&subdir.path)),
        None => Ok(()),
    }
}

fn write_volume(state: &State, v: &Volume, to: &mut String) -> std::fmt::Result {
    let name = quote(&v.name);
    writeln!(
        to,
        "\n[volume.{name}]\nreplica = {}\narbiter = {}\nstatus = \"{}\"",
        v.replica, v.arbiter, v.status
    )?;
    writeln!(to, "bricks = [")?;
    for brick in state.bricks_of_volume(v) {
        writeln!(to, "  {},", quote(&state.brick_name(brick)))?;
    }
    writeln!(to, "]\n[volume.{name}.options]")?;
    for (key, value) in &v.options {
        if let Some(info) = options::info(key) {
            writeln!(to, "# {} (default {})", info.help, quote(info.default))?;
        }
        writeln!(to, "{} = {}", quote(key), quote(value))?;
    }
    Ok(())
}

/// A TOML basic string.
fn quote(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            c if c.is_control() => quoted.push_str(&format!("\\u{:04X}", c as u32)),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

//! `mortar support bundle`: what somebody who helps from afar has to know.

use crate::ask;
use crate::cli::Global;
use crate::error::usage;
use crate::output;
use anyhow::{Context, anyhow};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use std::fs::OpenOptions;
use std::io::{ErrorKind, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

/// Help from afar.
#[derive(Subcommand, Debug)]
pub(crate) enum Support {
    Bundle(Bundle),
}

impl Support {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<()> {
        match self {
            Support::Bundle(c) => c.run(global),
        }
    }
}

/// Write what is known of the pool into one file of JSON, to send to somebody who helps.
///
/// Servers, volumes, their options, status, clients, queues and profiles, events, and what the doctor finds. It has names of
/// hosts, volumes and bricks and addresses of clients, but no keys and nothing of what files hold; names of files only
/// where an event tells one. Only its owner can read the file.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples: mortar support bundle /tmp/mortar.json; mortar support bundle - | gzip > /tmp/mortar.json.gz"
)]
pub(crate) struct Bundle {
    /// The file to make; it must not be there. With - it goes to the standard output.
    #[arg(value_name = "FILE|-")]
    file: PathBuf,
}

impl Bundle {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<()> {
        if self.file.as_os_str() == "-" {
            return to_stdout(global, std::io::stdout().is_terminal());
        }
        let about = || format!("{}: make it", self.file.display());
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&self.file).map_err(
            |e| match e.kind() {
                ErrorKind::AlreadyExists => {
                    anyhow!("{} is there already: name a file that is to be made", self.file.display())
                }
                _ => anyhow::Error::new(e).context(about()),
            },
        )?;
        let written = collect(global).and_then(|bundle| {
            file.write_all(&serde_json::to_vec_pretty(&bundle)?)
                .and_then(|()| file.sync_all())
                .with_context(about)?;
            Ok(bundle)
        });
        let bundle = written.inspect_err(|_| {
            // What is not whole would only be in the way of the next try.
            let _stays = std::fs::remove_file(&self.file);
        })?;
        let note = missing(&bundle).map_or_else(String::new, |missing| format!(", {missing}"));
        output::line(&format!("{} holds what is known of the pool{note}", self.file.display()))
    }
}

fn to_stdout(global: &Global, is_terminal: bool) -> anyhow::Result<()> {
    if is_terminal {
        return usage("support bundle -: the standard output is a terminal: send it to a file or a program");
    }
    let bundle = collect(global)?;
    output::json(&bundle)?;
    missing(&bundle).iter().for_each(|missing| output::complain(missing));
    Ok(())
}

/// How many parts are missing, if any is.
fn missing(bundle: &Value) -> Option<String> {
    let missing = bundle["missing"].as_array().map_or(0, Vec::len);
    (missing > 0).then(|| format!("{missing} parts could not be had"))
}

/// All that can be had; a part that cannot is named in `missing`.
fn collect(global: &Global) -> anyhow::Result<Value> {
    let mut missing = Vec::new();
    let peers = serde_json::to_value(ask::ask(global, admin::GetPeerStatus {})?)?;
    let mut bundle = json!({ "bundle": 1, "version": env!("CARGO_PKG_VERSION"), "peers": peers });
    let mut add = |bundle: &mut Value, name: &str, part: anyhow::Result<Value>| match part {
        Ok(part) => bundle[name] = part,
        Err(e) => missing.push(format!("{name}: {e:#}")),
    };
    add(&mut bundle, "doctor", asked(global, admin::GetDoctor {}));
    add(&mut bundle, "configuration", asked(global, admin::ConfigExport {}));
    add(&mut bundle, "volumes", asked(global, admin::VolumeInfo { name: None }));
    add(&mut bundle, "status", asked(global, admin::VolumeStatus { name: None }));
    add(&mut bundle, "events", asked(global, admin::GetEvents { since_ms: 0, most: 2000 }));
    let names = ask::ask(global, admin::VolumeList {}).map(|v| v.names).unwrap_or_default();
    for name in names {
        let part = |what: &str| format!("{what} of {name}");
        add(&mut bundle, &part("clients"), asked(global, admin::VolumeClients { name: name.clone() }));
        add(&mut bundle, &part("queues"), asked(global, admin::VolumeQueues { name: name.clone() }));
        let info = admin::VolumeProfile { name: name.clone(), action: admin::ProfileAction::Info };
        // Mostly there is none.
        if let Ok(profile) = asked(global, info) {
            bundle[part("profile")] = profile;
        }
    }
    bundle["missing"] = json!(missing);
    Ok(bundle)
}

fn asked<R: admin::Ask>(global: &Global, request: R) -> anyhow::Result<Value>
where
    R::Answer: serde::Serialize,
{
    Ok(serde_json::to_value(ask::ask(global, request)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nowhere() -> Global {
        let server = Some("127.0.0.1:1".to_owned());
        Global { server, context: None, key_file: None, json: false, yes: false }
    }

    #[test]
    fn no_terminal_is_filled_with_a_bundle() {
        let refused = |is_terminal| to_stdout(&nowhere(), is_terminal).unwrap_err().to_string();
        assert!(refused(true).contains("is a terminal"), "{}", refused(true));
        assert!(refused(false).contains("connection refused"), "{}", refused(false));
    }

    #[test]
    fn a_bundle_that_cannot_be_had_leaves_no_file() {
        let file = std::env::temp_dir().join(format!("mortar-bundle-{}", std::process::id()));
        let failed = Bundle { file: file.clone() }.run(&nowhere()).unwrap_err().to_string();
        assert!(failed.contains("connection refused") && !file.exists(), "{failed}");
        std::fs::write(&file, "mine").unwrap();
        Bundle { file: file.clone() }.run(&nowhere()).unwrap_err();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
        std::fs::remove_file(&file).unwrap();
    }
}

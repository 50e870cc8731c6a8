//! What applying a document would change, for --dry-run.

use std::{collections::BTreeSet, fmt};

use super::client::client_keys;
use super::{ClientDoc, Document, ServerDoc, VolumeDoc, lacking};
use crate::{State, Status};

/// One change; its `Display` is a line for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// A server that the pool lacks is taken in, before anything else.
    TakeIn(ServerDoc),
    /// A volume that the pool lacks.
    Create {
        /// Its name.
        volume: String,
        /// How many bricks it gets.
        bricks: usize,
    },
    /// A volume gets more sets.
    AddBricks {
        /// Its name.
        volume: String,
        /// How many bricks are added.
        bricks: usize,
    },
    /// An option gets a value, or none.
    Option {
        /// Of which volume.
        volume: String,
        /// Which.
        key: String,
        /// What was set; `None`: the default.
        from: Option<String>,
        /// What will be.
        to: Option<String>,
    },
    /// It will serve.
    Start {
        /// Its name.
        volume: String,
    },
    /// It will not serve any more.
    Stop {
        /// Its name.
        volume: String,
    },
    /// A key that the pool lacks is made, after everything else.
    MakeKey(ClientDoc),
    /// The pool has a key of this name that is another one. Nothing makes it the document's.
    KeyDiffers {
        /// Its name.
        name: String,
        /// In what.
        what: &'static str,
    },
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let show = |v: &Option<String>| v.as_ref().map_or("default".to_string(), |v| format!("'{v}'"));
        match self {
            Change::Create { volume, bricks } => write!(f, "create volume {volume} with {bricks} bricks"),
            Change::AddBricks { volume, bricks } => write!(f, "add {bricks} bricks to volume {volume}"),
            Change::Option { volume, key, from, to } => {
                write!(f, "set {key} of volume {volume} from {} to {}", show(from), show(to))
            }
            Change::Start { volume } => write!(f, "start volume {volume}"),
            Change::Stop { volume } => write!(f, "stop volume {volume}"),
            Change::TakeIn(server) => write!(f, "take server {} into the pool", server.host),
            Change::MakeKey(client) => write!(f, "make key {} for volume {}", client.name, client.volume),
            Change::KeyDiffers { name, what } => write!(
                f,
                "key {name} is there with another {what}: end it first (mortar client revoke {name})"
            ),
        }
    }
}

/// The changes that applying the document would make. Whether it would be refused, only applying it to a copy tells.
///
/// `now`, in seconds since 1970: keys that have ended by then are none.
pub fn diff(state: &State, document: &Document, now: u64) -> Vec<Change> {
    let servers = lacking(state, document).cloned().map(Change::TakeIn);
    let volumes = document.volumes.iter().flat_map(|doc| volume(state, doc));
    let keys = client_keys(state, now);
    let client = |doc: &ClientDoc| match keys.iter().find(|(key, _)| key.name == doc.name) {
        None => Some(Change::MakeKey(doc.clone())),
        Some((key, _)) => {
            doc.differs(state, key).map(|what| Change::KeyDiffers { name: doc.name.clone(), what })
        }
    };
    servers.chain(volumes).chain(document.clients.iter().filter_map(client)).collect()
}

fn volume(state: &State, doc: &VolumeDoc) -> Vec<Change> {
    let mut changes = Vec::new();
    let name = || doc.name.clone();
    let current = state.volume(&doc.name);
    match current {
        None => changes.push(Change::Create { volume: name(), bricks: doc.bricks.len() }),
        Some(known) => {
            let has = state.bricks_of_volume(known).count();
            if doc.bricks.len() > has {
                changes.push(Change::AddBricks { volume: name(), bricks: doc.bricks.len() - has });
            }
        }
    }
    let set = |key: &str| current.and_then(|v| v.options.get(key));
    let keys: BTreeSet<&String> =
        current.into_iter().flat_map(|v| v.options.keys()).chain(doc.options.keys()).collect();
    for key in keys {
        let (from, to) = (set(key), doc.options.get(key));
        if from != to {
            let (from, to) = (from.cloned(), to.cloned());
            changes.push(Change::Option { volume: name(), key: key.clone(), from, to });
        }
    }
    let started = current.is_some_and(|v| v.status == Status::Started);
    match (started, doc.status) {
        (false, Some(Status::Started)) => changes.push(Change::Start { volume: name() }),
        (true, Some(Status::Stopped | Status::Created)) => changes.push(Change::Stop { volume: name() }),
        (true, Some(Status::Started) | None) | (false, Some(Status::Stopped | Status::Created) | None) => {}
    }
    changes
}

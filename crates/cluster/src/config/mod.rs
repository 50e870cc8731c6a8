//! The pool as one TOML document: export, parse, compare, and the command that applies it.
//!
//! Always true: applying what was just exported changes nothing.
//! Deliberately absent: deleting volumes, removing and replacing bricks, letting servers go, ending and changing keys. A
//! document that lacks a volume, a server or a key leaves it alone.

mod client;
mod diff;
mod export;
mod parse;

use std::collections::BTreeMap;

pub use client::ClientDoc;
pub use diff::{Change, diff};
pub use export::export;
pub use parse::parse;

use crate::{Command, ConfigVolume, NewVolume, Refusal, Role, Server, State, Status};
use ids::ServerId;

/// The document's format that this program writes, and the newest it reads.
pub const FORMAT: u64 = 1;

/// A parsed document.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Document {
    /// In the order of their names.
    pub servers: Vec<ServerDoc>,
    /// Likewise.
    pub volumes: Vec<VolumeDoc>,
    /// Likewise.
    pub clients: Vec<ClientDoc>,
}

/// One server of a document: one that the pool lacks is taken in.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ServerDoc {
    /// The name that bricks are written with.
    pub host: String,
    /// Its port, if its address names one.
    pub port: Option<u16>,
    /// The fingerprint of its authority, which somebody has compared with the one in its log.
    pub fingerprint: Option<String>,
}

/// One volume of a document.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct VolumeDoc {
    /// Its name.
    pub name: String,
    /// Bricks in each set; `None`: 1 for a new volume, as it is for one that exists.
    pub replica: Option<u32>,
    /// Arbiters in each set, likewise.
    pub arbiter: Option<u32>,
    /// HOST:/PATH; empty leaves an existing volume's as they are.
    pub bricks: Vec<String>,
    /// Allows two bricks of one set on one server.
    pub force: bool,
    /// Whether it is to serve; `None` leaves that.
    pub status: Option<Status>,
    /// What differs from the defaults.
    pub options: BTreeMap<String, String>,
}

/// A document that cannot be read, and where.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct ParseError {
    /// Counted from 1.
    pub line: usize,
    /// What is wrong and what would be right.
    pub message: String,
}

/// The command that brings the volumes of the pool to what the document says. `created`: seconds since 1970, for new volumes.
pub fn to_command(state: &State, document: &Document, created: u64) -> Result<Command, Refusal> {
    let volumes = document.volumes.iter().map(|v| resolve(state, v, created)).collect::<Result<_, _>>()?;
    Ok(Command::ApplyConfig { volumes, expect_brick: Some(state.next_brick) })
}

/// The pool with the servers that it lacks of a document, to see what it would refuse then.
pub fn with_servers(state: &State, document: &Document) -> State {
    let mut planned = state.clone();
    for server in lacking(state, document) {
        let (id, host) = (planned.next_server, server.host.clone());
        // Nobody draws such an identity.
        let identity = format!("planned{:025x}", id.0);
        let newcomer = Server { id, identity, address: host.clone(), host, role: Role::Learner, lost: false };
        planned.servers.insert(id, newcomer);
        planned.next_server = ServerId(id.0.saturating_add(1));
    }
    planned
}

/// The servers of a document that the pool lacks.
fn lacking<'a>(state: &State, document: &'a Document) -> impl Iterator<Item = &'a ServerDoc> {
    document.servers.iter().filter(|doc| state.server_by_host(&doc.host).is_none())
}

fn resolve(state: &State, doc: &VolumeDoc, created: u64) -> Result<ConfigVolume, Refusal> {
    let known = state.volume(&doc.name);
    let bricks = doc.bricks.iter().map(|b| state.resolve_brick(b)).collect::<Result<_, _>>()?;
    let replica = doc.replica.unwrap_or_else(|| known.map_or(1, |v| v.replica));
    let arbiter = doc.arbiter.unwrap_or_else(|| known.map_or(0, |v| v.arbiter));
    let (name, force) = (doc.name.clone(), doc.force);
    // A document has all options that a volume is to have: applied again it changes nothing.
    let options = BTreeMap::new();
    let volume = NewVolume { name, replica, arbiter, bricks, force, created, expect_brick: None, options };
    Ok(ConfigVolume { volume, status: doc.status, options: doc.options.clone() })
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;

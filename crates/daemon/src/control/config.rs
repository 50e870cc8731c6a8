//! The whole pool as one document: what it says otherwise, and bringing the pool to it.
//!
//! Volumes are changed here, in one transaction. Servers that the pool lacks are taken in before, and keys made after that, each
//! by a request of its own: an administrator may have to look at a server, and a key's file goes to whoever asks for it.

use super::Control;
use super::answers::{asked_client, conflict, refused, told_squash};
use super::hosts;
use super::secure::key_name;
use super::volumes::volume;
use crate::clock::unix_now;
use admin::{AdminError, Changes, ClientAdd, ConfigApply, ErrorCode, PeerProbe};
use cluster::config::{self, Change, ClientDoc, Document, ServerDoc};
use cluster::{Command, Key, KeyHolder, State};
use std::sync::Arc;

/// The document, or where it is wrong.
fn parse(text: &str) -> Result<Document, AdminError> {
    config::parse(text).map_err(|e| AdminError::new(ErrorCode::Invalid, e.to_string()))
}

fn command(state: &State, document: &Document) -> Result<Command, AdminError> {
    config::to_command(state, document, unix_now()).map_err(|e| refused(&e))
}

fn probe(server: &ServerDoc) -> PeerProbe {
    PeerProbe { host: server.host.clone(), port: server.port, fingerprint: server.fingerprint.clone() }
}

fn client_add(client: &ClientDoc) -> ClientAdd {
    ClientAdd {
        name: client.name.clone(),
        volume: client.volume.clone(),
        read_only: client.read_only,
        squash: client.squash.map(told_squash),
        users: client.users.clone(),
        subdir: client.subdir.clone(),
        expires: client.expires,
    }
}

fn told(changes: &[Change], dry_run: bool) -> Changes {
    let mut told = Changes {
        changes: changes.iter().map(ToString::to_string).collect(),
        dry_run,
        stopped: Vec::new(),
        servers: Vec::new(),
        keys: Vec::new(),
    };
    for change in changes {
        match change {
            Change::TakeIn(server) => told.servers.push(probe(server)),
            Change::Stop { volume } => told.stopped.push(volume.clone()),
            Change::MakeKey(client) => told.keys.push(client_add(client)),
            Change::Create { .. }
            | Change::AddBricks { .. }
            | Change::Option { .. }
            | Change::Start { .. }
            | Change::KeyDiffers { .. } => {}
        }
    }
    told
}

/// What no request makes as the document has it.
fn check_keys(changes: &[Change]) -> Result<(), AdminError> {
    match changes.iter().find(|change| matches!(change, Change::KeyDiffers { .. })) {
        Some(change) => Err(conflict(change.to_string())),
        None => Ok(()),
    }
}

impl Control {
    /// What a document says otherwise than the pool is. Whether it can be done is not looked at.
    pub(super) async fn config_diff(&self, text: &str) -> Result<Changes, AdminError> {
        let document = parse(text)?;
        Ok(told(&config::diff(&*self.linearizable().await?, &document, unix_now()), true))
    }

    /// Brings the volumes of the pool to what a document says. A dry run finds what would be refused, at the pool and at its
    /// disks, also of servers that are to be taken in and of keys that are to be made.
    pub(super) async fn config_apply(self: &Arc<Self>, request: ConfigApply) -> Result<Changes, AdminError> {
        let ConfigApply { document, dry_run, plan } = request;
        let _one = self.changing.lock().await;
        let document = parse(&document)?;
        let state = self.linearizable().await?;
        let changes = config::diff(&state, &document, unix_now());
        check_keys(&changes)?;
        let told = told(&changes, dry_run);
        if plan.is_some_and(|plan| plan != told.changes) {
            let line =
                "the pool has changed since the plan was shown: look at the new one and apply it again";
            return Err(AdminError::new(ErrorCode::Stale, line));
        }
        if dry_run {
            self.check_document(&state, &document, &told).await?;
        } else if let Some(server) = told.servers.first() {
            let host = ids::bracketed(&server.host);
            return Err(conflict(format!(
                "server {host} is not in the pool: take it in first (mortar peer probe {host})"
            )));
        } else {
            if let Some(note) = hosts::note_before(&state, &command(&state, &document)?).await? {
                self.propose(note).await?;
            }
            self.propose_with_bricks(false, |state: &State| command(state, &document)).await?;
        }
        Ok(told)
    }

    /// What would be refused.
    async fn check_document(
        &self,
        state: &State,
        document: &Document,
        changes: &Changes,
    ) -> Result<(), AdminError> {
        for server in &changes.servers {
            self.check_probe(state, server).await?;
        }
        let mut planned = config::with_servers(state, document);
        let command = command(&planned, document)?;
        if let Some(note) = hosts::note_before(&planned, &command).await? {
            planned.apply(&note).map_err(|e| refused(&e))?;
        }
        let (mut after, _) = self.check_new_bricks(state, (&planned, &command), false).await?;
        for key in &changes.keys {
            self.check_key(&mut after, key)?;
        }
        Ok(())
    }

    /// Whether the pool takes such a key. The directory that it is for is not looked at.
    fn check_key(&self, state: &mut State, key: &ClientAdd) -> Result<(), AdminError> {
        let before = |e: AdminError| e.before(&format!("key {}: ", key.name));
        self.own_keys().map_err(before)?;
        key_name(&key.name)?;
        let volume = volume(state, &key.volume).map_err(before)?.id;
        let client = asked_client(key.clone(), volume, None);
        let key = Key { holder: KeyHolder::Client(client), created: unix_now(), until: None };
        state.apply(&Command::AddKey(key)).map(drop).map_err(|e| before(refused(&e)))
    }
}

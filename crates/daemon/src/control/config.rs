//! The whole pool as one document: what it says otherwise, and bringing the pool to it.

use super::Control;
use super::answers::refused;
use crate::clock::unix_now;
use admin::{AdminError, Changes, ConfigApply, ErrorCode};
use cluster::config::{self, Change, Document};
use cluster::{Command, State};
use std::sync::Arc;

/// The document, or where it is wrong.
fn parse(text: &str) -> Result<Document, AdminError> {
    config::parse(text).map_err(|e| AdminError::new(ErrorCode::Invalid, e.to_string()))
}

fn command(state: &State, document: &Document) -> Result<Command, AdminError> {
    config::to_command(state, document, unix_now()).map_err(|e| refused(&e))
}

fn changes(state: &State, document: &Document, dry_run: bool) -> Changes {
    let changes = config::diff(state, document);
    let stopped = changes.iter().filter_map(|c| match c {
        Change::Stop { volume } => Some(volume.clone()),
        Change::Create { .. } | Change::AddBricks { .. } | Change::Option { .. } | Change::Start { .. } => {
            None
        }
    });
    Changes {
        stopped: stopped.collect(),
        changes: changes.iter().map(ToString::to_string).collect(),
        dry_run,
    }
}

impl Control {
    /// What a document says otherwise than the pool is. Whether it can be done is not looked at.
    pub(super) async fn config_diff(&self, text: &str) -> Result<Changes, AdminError> {
        let document = parse(text)?;
        Ok(changes(&*self.linearizable().await?, &document, true))
    }

    /// Brings the pool to what a document says. A dry run finds what would be refused, at the pool and at its disks.
    pub(super) async fn config_apply(self: &Arc<Self>, request: ConfigApply) -> Result<Changes, AdminError> {
        let ConfigApply { document, dry_run, plan } = request;
        let _one = self.changing.lock().await;
        let document = parse(&document)?;
        let state = self.linearizable().await?;
        let changes = changes(&state, &document, dry_run);
        if plan.is_some_and(|plan| plan != changes.changes) {
            let line =
                "the pool has changed since the plan was shown: look at the new one and apply it again";
            return Err(AdminError::new(ErrorCode::Stale, line));
        }
        if dry_run {
            self.check_new_bricks(&state, &command(&state, &document)?, false).await?;
        } else {
            self.propose_with_bricks(false, |state: &State| command(state, &document)).await?;
        }
        Ok(changes)
    }
}

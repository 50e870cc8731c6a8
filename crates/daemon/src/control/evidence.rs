//! What this server can say of its own bricks, for the arbitration.

use super::Control;
use crate::clock;
use crate::shard::ShardMessage;
use crate::shared::lock;
use cluster::arbitration::{Evidence, Holding};
use ids::{BrickId, SetId};
use std::time::Duration;
use tokio::sync::oneshot;

/// A shard that does not answer within this time says nothing of its bricks: its disk may hang.
const LOOK: Duration = Duration::from_secs(1);

impl Control {
    /// Whether a brick of this server is open, and what it holds.
    pub(super) async fn own_evidence(&self, set: SetId, brick: BrickId) -> Evidence {
        let unopened = lock(&self.shared.unopened).get(&brick).copied();
        match unopened {
            Some(unopened) => unopened.evidence(clock::now()),
            None => self.evidence_of_open(set, brick).await.unwrap_or_default(),
        }
    }

    /// `None`: the brick is not open, or its shard says nothing.
    async fn evidence_of_open(&self, set: SetId, brick: BrickId) -> Option<Evidence> {
        let (to, from) = oneshot::channel();
        self.shared.shard_of(set)?.send(ShardMessage::Report(to)).ok()?;
        let reports = tokio::time::timeout(LOOK, from).await.ok()?.ok()?;
        let report = reports.into_iter().find(|r| r.brick == brick)?;
        let holding = Holding { epoch: report.last_epoch, last: report.lsn, durable: report.durable };
        Some(server_core::evidence_of_open(report.role, report.uncertain, holding))
    }
}

//! What this server can say of its own bricks, for the arbitration.

use super::Control;
use crate::clock;
use crate::shard::ShardMessage;
use crate::shared::lock;
use cluster::arbitration::{Evidence, Holding};
use ids::{BrickId, SetId};
use server_core::OpenBrick;
use std::time::Duration;
use tokio::sync::oneshot;

/// A shard that does not answer within this time says nothing of its bricks: its disk may hang.
const LOOK: Duration = Duration::from_secs(1);
/// How often it is asked meanwhile whether the disk has done its work.
const AGAIN: Duration = Duration::from_millis(10);

impl Control {
    /// Whether a brick of this server is open, and what it holds.
    pub(super) async fn own_evidence(&self, set: SetId, brick: BrickId) -> Evidence {
        let unopened = lock(&self.shared.unopened).get(&brick).copied();
        match unopened {
            Some(unopened) => unopened.evidence(clock::now()),
            None => self.evidence_of_open(set, brick).await.unwrap_or_default(),
        }
    }

    /// `None`: the brick is not open, or its shard or its disk says nothing in time.
    async fn evidence_of_open(&self, set: SetId, brick: BrickId) -> Option<Evidence> {
        tokio::time::timeout(LOOK, self.look(set, brick, clock::now())).await.ok()?
    }

    async fn look(&self, set: SetId, brick: BrickId, asked: Duration) -> Option<Evidence> {
        let mut looks = false;
        loop {
            let (to, from) = oneshot::channel();
            let shard = self.shared.shard_of(set)?;
            shard.send(ShardMessage::Report(to)).ok()?;
            let report = from.await.ok()?.into_iter().find(|r| r.brick == brick)?;
            let holding = Holding { epoch: report.last_epoch, last: report.lsn, durable: report.durable };
            let (role, uncertain, disk_answered) = (report.role, report.uncertain, report.disk_answered);
            let open = OpenBrick { role, uncertain, holding, disk_answered };
            if let Some(evidence) = open.evidence(asked) {
                return Some(evidence);
            }
            if !std::mem::replace(&mut looks, true) {
                shard.send(ShardMessage::LookAtDisk(set)).ok()?;
            }
            tokio::time::sleep(AGAIN).await;
        }
    }
}

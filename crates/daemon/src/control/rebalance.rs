//! `volume rebalance`: files move from fuller sets to emptier ones while `cluster.rebalance` says so; how far that is.

use super::Control;
use super::answers::conflict;
use super::volumes::volume;
use admin::{
    AdminError, MovedFiles, PlannedMove, RebalanceAction, RebalanceReport, RebalanceState, SetMoves,
    VolumeRebalance, VolumeReport,
};
use cluster::options::{Rebalance, RebalanceThrottle};
use cluster::{Command, OptionChange, Set, State, Status, Volume};
use ids::SetId;
use namespace::placement::{self, SetRoom};

impl Control {
    /// Begins or ends it where that is asked for, and tells how far it is.
    pub(super) async fn volume_rebalance(
        &self,
        request: VolumeRebalance,
    ) -> Result<RebalanceReport, AdminError> {
        let VolumeRebalance { name, action, dry_run } = request;
        let before = self.linearizable().await?;
        let stopped = volume(&before, &name)?.status != Status::Started;
        if stopped && action == RebalanceAction::Start {
            return Err(conflict(format!("volume {name} is not started: mortar volume start {name}")));
        }
        let value = match action {
            _ if dry_run => None,
            RebalanceAction::Start => Some("on"),
            RebalanceAction::Status => None,
            RebalanceAction::Stop => Some("off"),
            RebalanceAction::Pause => Some("paused"),
        };
        if let Some(value) = value {
            let (key, value) = ("cluster.rebalance".to_owned(), Some(value.to_owned()));
            let changes = vec![OptionChange { volume: name.clone(), key, value }];
            self.propose(Command::SetOptions { changes }).await?;
        }
        let state = self.linearizable().await?;
        let volume = volume(&state, &name)?;
        let status = self.status_of(&state, volume).await;
        Ok(RebalanceReport { dry_run, ..report(&state, volume, &status) })
    }
}

fn report(state: &State, volume: &Volume, status: &VolumeReport) -> RebalanceReport {
    let options = volume.typed_options();
    let mut out = RebalanceReport {
        name: volume.name.clone(),
        state: match options.rebalance {
            Rebalance::Off => RebalanceState::Off,
            Rebalance::On => RebalanceState::On,
            Rebalance::Paused => RebalanceState::Paused,
        },
        throttle: match options.rebalance_throttle {
            RebalanceThrottle::Gentle => "gentle",
            RebalanceThrottle::Normal => "normal",
            RebalanceThrottle::Fast => "fast",
        }
        .to_owned(),
        ..RebalanceReport::default()
    };
    let mut rooms = Vec::new();
    for set in state.sets_of(volume) {
        let Some(of) = set_moves(set, status) else {
            out.notes.push(format!(
                "set {} is not led by anybody: how it does is not known; see mortar volume status {}",
                set.name(),
                volume.name
            ));
            continue;
        };
        rooms.push(SetRoom {
            writable: !options.drain.contains(&set.id),
            ..SetRoom::new(set.id, of.free_bytes, of.total_bytes)
        });
        add(&mut out.moved, &of.moved);
        out.sets.push(of);
    }
    let number = |id: SetId| state.sets.get(&id).map_or(0, |set| set.number);
    let planned = |p: placement::PlannedMove| PlannedMove {
        from: p.from,
        from_number: number(p.from),
        to: p.to,
        to_number: number(p.to),
        bytes: p.bytes,
    };
    out.plan = placement::plan(&rooms).into_iter().map(planned).collect();
    out.remaining_bytes = out.plan.iter().map(|p| p.bytes).sum();
    let rate = out.moved.bytes_per_second;
    let moves = out.state == RebalanceState::On && rate > 0;
    out.remaining_seconds = moves.then(|| out.remaining_bytes / rate.max(1));
    out
}

/// Room of a set, by its fullest brick with data, and what its primary counted.
pub(super) fn set_moves(set: &Set, status: &VolumeReport) -> Option<SetMoves> {
    let mut holders = Vec::new();
    let mut moved = None;
    for b in set.bricks.iter().filter(|b| set.view.in_sync.contains(&b.id)) {
        let Some(s) = status.bricks.iter().find(|s| s.brick == b.id && s.total_bytes > 0) else { continue };
        moved = moved.or_else(|| s.moved.clone());
        if !b.arbiter {
            holders.push((s.free_bytes, s.total_bytes));
        }
    }
    let (free_bytes, total_bytes) = holders.into_iter().min()?;
    Some(SetMoves { set: set.name(), free_bytes, total_bytes, moved: moved? })
}

fn add(all: &mut MovedFiles, one: &MovedFiles) {
    all.files += one.files;
    all.bytes += one.bytes;
    all.left += one.left;
    all.directories += one.directories;
    all.files_per_second += one.files_per_second;
    all.bytes_per_second += one.bytes_per_second;
    all.none_can_move |= one.none_can_move;
    if all.problem.is_none() {
        all.problem.clone_from(&one.problem);
    }
}

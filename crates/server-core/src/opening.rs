//! Opening a set's brick: what its journal tells, and where it stands if it may have lost changes.

use crate::settings;
use brick::{Brick, OpenError, Options};
use cluster::State;
use cluster::arbitration::{Evidence, Holding};
use disk_format::Identity;
use file_system::FileSystem;
use ids::{BrickId, Epoch, Lsn, SetId, Time, VolumeId};
use set_core::{Pending, Start};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use wire::peer::Stamp;

/// Where bricks lie.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    /// Their file systems.
    pub fs: &'a dyn FileSystem,
    /// Where the file system of a directory is mounted.
    pub mount_point: &'a dyn Fn(&Path) -> io::Result<PathBuf>,
    /// Hears how many objects of existing data have become the brick's.
    pub adopted: &'a dyn Fn(u64),
}

/// Where a brick stands that may have lost changes, by the newest view.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecoveryVerdict {
    /// The view's epoch.
    pub epoch: Epoch,
    /// No other brick with data is in sync: what this one holds is the set's history from here on.
    pub last: bool,
}

/// What is needed to open a brick. Made where the pool's state is, used where a disk may be waited for.
#[derive(Clone, Debug)]
pub struct OpenSet {
    set: SetId,
    brick: BrickId,
    volume: VolumeId,
    path: String,
    floor: Epoch,
    identity: Identity,
    made: Time,
    /// Where its file system was mounted when it was last opened; empty: not known.
    mount: String,
    /// An empty directory may be made the brick again: others hold what belongs into it.
    refill: bool,
    options: Options,
}

/// A brick that was opened.
pub struct OpenedBrick {
    set: SetId,
    id: BrickId,
    volume: VolumeId,
    floor: Epoch,
    brick: Brick,
    results: replica::Results,
    pending: Pending,
    history: BTreeMap<Epoch, Lsn>,
    moved: Option<String>,
}

impl fmt::Debug for OpenedBrick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = self.brick.last();
        f.debug_struct("Opened")
            .field("set", &self.set)
            .field("brick", &self.id)
            .field("last", &last)
            .finish()
    }
}

impl OpenSet {
    /// `base`: what the volume's options do not say of how the brick is run. `knows_all`: the state is as new as this
    /// server's lease, so that no newer view can name the brick. `None`: the pool knows no such brick of that set.
    pub fn new(
        set: SetId,
        brick: BrickId,
        state: &State,
        base: &Options,
        knows_all: bool,
    ) -> Option<OpenSet> {
        let info = state.sets.get(&set)?;
        let volume = state.volumes.get(&info.volume)?;
        let b = info.brick(brick)?;
        Some(OpenSet {
            set,
            brick,
            volume: volume.id,
            path: b.path.clone(),
            floor: info.view.epoch,
            mount: b.mount.clone(),
            refill: knows_all && info.view.primary.is_some() && !info.view.in_sync.contains(&brick),
            made: settings::made(volume),
            identity: settings::identity(settings::pool_bytes(state), volume, info, b),
            options: settings::brick_options(volume, base),
        })
    }

    /// The brick's directory.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Opens the brick. Existing data that is to be adopted becomes one. One that lost its identity file gets it back; where
    /// there is nothing any more a new one begins, to be filled from the set.
    fn open_or_refill(&self, place: Place<'_>) -> Result<Brick, String> {
        let path = Path::new(&self.path);
        let open = || Brick::open_on(place.fs, path, &self.identity, self.options.clone());
        match open() {
            Err(OpenError::NotBrick { .. }) if brick::is_adopting(place.fs, path, &self.identity) => {
                brick::adopt_on(place.fs, path, &self.identity, place.adopted).map_err(|e| e.to_string())?;
                open().map_err(|e| e.to_string())
            }
            Err(OpenError::Sealed { .. } | OpenError::NotBrick { .. })
                if brick::restore_identity_on(place.fs, path, &self.identity)? =>
            {
                open().map_err(|e| e.to_string())
            }
            Err(OpenError::NotBrick { .. }) if self.refill => {
                self.check_place(place)?;
                brick::format_again(place.fs, path, &self.identity, self.made).map_err(|e| {
                    format!("it has no .mortar/identity and cannot be made a brick again: {e}; empty it, and it is filled again")
                })?;
                tracing::warn!("{}: there was nothing: brick {} is filled again", self.path, self.brick);
                let mut brick = open().map_err(|e| e.to_string())?;
                brick.begin_heal(Lsn(0), &[], Lsn(0)).map_err(|e| format!("{}: {e}", self.path))?;
                Ok(brick)
            }
            other => other.map_err(|e| e.to_string()),
        }
    }

    /// An empty directory is the brick without its files only where the brick was: else its disk is missing.
    fn check_place(&self, place: Place<'_>) -> Result<(), String> {
        if self.mount.is_empty() {
            return Ok(());
        }
        let there = (place.mount_point)(Path::new(&self.path)).map_err(|e| {
            format!(
                "{}: {e}: mount its file system, or make the directory if the brick is lost and is to be filled again",
                self.path
            )
        })?;
        if there != Path::new(&self.mount) {
            return Err(format!(
                "{}: it is empty, and its file system is not the one at {} where the brick was: mount that one; if the \
                 brick is lost, mount another one there, and it is filled again",
                self.path, self.mount
            ));
        }
        Ok(())
    }

    /// Opens the brick: reads its journal, which takes a while.
    ///
    /// # Errors
    /// One line that says why it cannot be used.
    pub fn run(self, place: Place<'_>, now: Duration) -> Result<OpenedBrick, String> {
        let brick = self.open_or_refill(place)?;
        // What lies beyond may not have been done.
        let consistent_to = if has_lost_memory(&brick) { brick.durable().lsn } else { brick.last().lsn };
        let mut results = replica::Results::default();
        let mut pending = Pending::default();
        let mut history = BTreeMap::new();
        // What the first record follows is held, too: a journal may begin with a healing.
        let base = Lsn(brick.journal_start().0.saturating_sub(1));
        if let Some(base) = brick.stamp_at(base).map_err(|e| e.to_string())?.filter(|at| at.lsn > Lsn(0)) {
            history.insert(base.epoch, base.lsn);
        }
        for record in brick.iterate(brick.journal_start()) {
            let record = record.map_err(|e| e.to_string())?;
            if record.stamp.lsn <= consistent_to {
                let (lsn, result_fid, amount) = (record.stamp.lsn, record.result_fid, record.change.amount());
                results.record(record.op, replica::Outcome { lsn, result_fid, amount });
            }
            let certain = record.stamp.lsn <= consistent_to;
            pending.note_earlier(now, record.op, &record.change, certain);
            history.insert(record.stamp.epoch, record.stamp.lsn);
        }
        let last = brick.last();
        if last.lsn > Lsn(0) {
            history.insert(last.epoch, last.lsn);
        }
        let found = (place.mount_point)(Path::new(&self.path)).ok();
        let found = found.and_then(|m| m.into_os_string().into_string().ok());
        let moved = found.filter(|m| *m != self.mount);
        let OpenSet { set, brick: id, volume, floor, .. } = self;
        Ok(OpenedBrick { set, id, volume, floor, brick, results, pending, history, moved })
    }
}

/// Whether a power cut may have taken changes that were done, from this process or from an earlier one.
///
/// The stale set outlives the process that found the loss: a second restart does not bring memory back. After a loss no
/// version says what is in its object; a mark for a change that was not finished leaves the older ones.
fn has_lost_memory(brick: &Brick) -> bool {
    let found = brick.found();
    let unversioned = brick.stale_set().is_some_and(|s| s.versions_valid_to == Lsn(0));
    found.rebooted || found.marked && unversioned
}

impl OpenedBrick {
    /// Its volume.
    pub fn volume(&self) -> VolumeId {
        self.volume
    }

    /// Where its file system is mounted, if the pool does not know.
    pub fn moved(&self) -> Option<&str> {
        self.moved.as_deref()
    }

    /// What it can say of itself, unless it holds everything that it acknowledged: a power cut may have taken changes from
    /// it, or something is stale. It does nothing before the pool has said where it stands
    /// ([`OpenedBrick::apply_verdict`]).
    pub fn uncertainty(&self) -> Option<Evidence> {
        let last = self.brick.last();
        let holding = Holding { epoch: last.epoch, last: last.lsn, durable: self.brick.durable().lsn };
        if has_lost_memory(&self.brick) {
            Some(Evidence::LostMemory(holding))
        } else if self.is_uncertain() {
            Some(Evidence::Uncertain(holding))
        } else {
            None
        }
    }

    fn is_uncertain(&self) -> bool {
        let found = self.brick.found();
        self.brick.stale_set().is_some() || found.incomplete.is_some() && !found.rebooted
    }

    /// What the core of the set begins with.
    pub fn start(self) -> Start<Brick> {
        // After a power cut the pool has said where the brick stands (see `OpenedBrick::apply_verdict`).
        let uncertain = self.is_uncertain();
        Start {
            set: self.set,
            me: self.id,
            floor: self.floor,
            uncertain,
            brick: self.brick,
            results: self.results,
            pending: self.pending,
            history: self.history,
        }
    }

    /// The pool has said where a brick stands that lost changes.
    ///
    /// The last one goes on with what it has. Nothing tells the others what of the changes beyond its durable position is
    /// in its tree: its journal begins anew, so that they compare everything with it. So do those that its set does not have
    /// yet. It begins in the epoch of the view that the verdict made: nobody serves in that one, so it is in no other's
    /// journal. The next one may be another brick's, by `volume promote`.
    ///
    /// # Errors
    /// One line that says what could not be written.
    pub fn apply_verdict(mut self, verdict: RecoveryVerdict) -> Result<OpenedBrick, String> {
        self.floor = verdict.epoch;
        if verdict.last {
            let shown = self.brick.path().display().to_string();
            let start = Stamp { epoch: verdict.epoch, lsn: self.brick.last().lsn.next() };
            self.history = BTreeMap::from([(start.epoch, start.lsn)]);
            self.brick.reset_journal(start).map_err(|e| e.to_string())?;
            let ended = self.brick.begin_end().and_then(|job| job.run()).and_then(|_| self.brick.end_heal());
            ended.map_err(|e| format!("{shown}: {e}"))?;
            tracing::warn!(
                "{shown}: changes that were not synced may be lost in a power cut; the set goes on from here"
            );
        }
        Ok(self)
    }
}

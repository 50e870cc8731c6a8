//! Files that somebody put into bricks of a running volume join it: `mortar volume adopt VOL [PATH]` (docs/design/0020).
//!
//! One thread a volume looks through this server's bricks of it. What has no tag is taken out of the tree by the brick
//! ([`brick::ForeignFiles`]) and made anew through the volume, as any client would make it: that is how all copies get it,
//! on whatever set it belongs.

mod take;

use crate::shared::lock;
use admin::{AdoptReport, NotAdopted};
use brick::{ForeignFiles, FoundForeign};
use client::{Client, Key, Object, Options};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use take::Taker;
use wire::Errno;

/// So many of those that were left are named.
const NAMED: usize = 100;
/// What is too new is looked at again after this.
const LATER: Duration = Duration::from_millis(3100);
/// So often.
const TRIES: u32 = 3;
/// So much that is too new is remembered.
const NEW: usize = 100_000;
/// A call of the volume that is not answered for so long ends the run.
const CALL_LIMIT: Duration = Duration::from_secs(60);

/// What is being adopted on this server, by volume.
#[derive(Debug, Default)]
pub(crate) struct Adoptions {
    runs: Mutex<BTreeMap<String, Arc<Run>>>,
}

/// A brick to look through.
#[derive(Clone, Debug)]
pub(crate) struct BrickToAdopt {
    /// As it is shown.
    pub(crate) name: String,
    /// Where it is.
    pub(crate) path: PathBuf,
    /// Which one leads its set, if another one does.
    pub(crate) leader: Option<String>,
}

/// One look through a volume's bricks.
#[derive(Debug)]
pub(crate) struct Run {
    /// Beneath which path of the volume it looks.
    below: PathBuf,
    report: Mutex<AdoptReport>,
}

impl Adoptions {
    /// Begins a run, unless one is at work. `below`: a path from the volume's top.
    pub(crate) fn begin(
        &self,
        (address, key): (&str, Option<Key>),
        volume: &str,
        below: &Path,
        bricks: Vec<BrickToAdopt>,
    ) {
        let mut runs = lock(&self.runs);
        if runs.get(volume).is_some_and(|run| lock(&run.report).running) {
            return;
        }
        let name = volume.to_owned();
        let report = AdoptReport { name, running: true, absent: true, ..AdoptReport::default() };
        let run = Arc::new(Run { below: below.to_owned(), report: Mutex::new(report) });
        runs.insert(volume.to_owned(), run.clone());
        let (address, volume, below) = (address.to_owned(), volume.to_owned(), below.to_owned());
        let work = {
            let run = run.clone();
            move || {
                let options = Options { soft: Some(CALL_LIMIT), key, ..Options::default() };
                match Client::connect(&[address], &volume, options) {
                    Ok(client) => run.work(&client, &below, &bricks),
                    Err(e) => run.left(Path::new(""), &format!("the volume cannot be used: {e}")),
                }
                lock(&run.report).running = false;
            }
        };
        if let Err(e) = std::thread::Builder::new().name("adopt".to_owned()).spawn(work) {
            run.left(Path::new(""), &format!("start a thread: {e}"));
            lock(&run.report).running = false;
        }
    }

    /// How far the last run has come. Who asks means that path.
    pub(crate) fn report(&self, volume: &str, below: &Path) -> AdoptReport {
        let runs = lock(&self.runs);
        let Some(run) = runs.get(volume) else {
            return AdoptReport { name: volume.to_owned(), ..AdoptReport::default() };
        };
        let report = lock(&run.report).clone();
        AdoptReport { absent: report.absent && run.below == below, ..report }
    }
}

impl Run {
    fn work(&self, client: &Client, below: &Path, bricks: &[BrickToAdopt]) {
        for brick in bricks {
            if let Err(e) = self.look_through(client, below, brick) {
                self.left(Path::new(&brick.name), &format!("it cannot be looked through: {e}"));
            }
        }
    }

    fn look_through(&self, client: &Client, below: &Path, brick: &BrickToAdopt) -> Result<(), Errno> {
        let files = ForeignFiles::open(&brick.path)?;
        let taker = Taker::new(client, self);
        // What an earlier run left.
        for (place, object) in files.kept()? {
            taker.take(Object { fid: place.dir, home: place.home }, &place.name, object);
        }
        if let Some(leader) = &brick.leader {
            return self.name_strangers(&files, below, brick, leader);
        }
        let mut fresh = Vec::new();
        let take = |found: FoundForeign, fresh: &mut Vec<FoundForeign>| match files.take_out(&found) {
            Ok(Some(object)) => {
                taker.take(
                    Object { fid: found.place.dir, home: found.place.home },
                    &found.place.name,
                    object,
                );
            }
            Ok(None) if fresh.len() < NEW => fresh.push(found),
            Ok(None) => self.left(&brick.path.join(&found.path), "it is too new: run this again"),
            Err(e) => {
                self.left(&brick.path.join(&found.path), &format!("it cannot be taken out of its place: {e}"))
            }
        };
        self.find(&files, below, &mut |found| {
            take(found, &mut fresh);
            true
        })?;
        for _ in 0..TRIES {
            if fresh.is_empty() {
                break;
            }
            std::thread::sleep(LATER);
            for found in std::mem::take(&mut fresh) {
                take(found, &mut fresh);
            }
        }
        for found in fresh.iter().filter(|found| brick.path.join(&found.path).symlink_metadata().is_ok()) {
            self.left(
                &brick.path.join(&found.path),
                "it changes all the time: run this again when it does not",
            );
        }
        // Folders of what is done go.
        files.kept().map(drop)
    }

    /// What lies in a brick that does not lead its set is left there.
    fn name_strangers(
        &self,
        files: &ForeignFiles,
        below: &Path,
        brick: &BrickToAdopt,
        leader: &str,
    ) -> Result<(), Errno> {
        let mut any = false;
        self.find(files, below, &mut |_| {
            any = true;
            false
        })?;
        if !any {
            return Ok(());
        }
        // By then what changes at work have made has its tag.
        std::thread::sleep(LATER);
        self.find(files, below, &mut |found| {
            if !found.fresh {
                let path = brick.path.join(&found.path);
                let remedy = "put it there and run this again, or copy it through a mount";
                self.left(&path, &format!("its brick does not lead its set, {leader} does: {remedy}"));
            }
            true
        })
    }

    /// What lies beneath the path in a brick, if that has it: not every brick has every directory.
    fn find(
        &self,
        files: &ForeignFiles,
        below: &Path,
        each: &mut dyn FnMut(FoundForeign) -> bool,
    ) -> Result<(), Errno> {
        match files.find(below, each) {
            Err(Errno::ENOENT) => Ok(()),
            found => {
                self.took(|report| report.absent = false);
                found
            }
        }
    }

    fn took(&self, add: impl FnOnce(&mut AdoptReport)) {
        add(&mut lock(&self.report));
    }

    fn left(&self, path: &Path, why: &str) {
        tracing::warn!(path = %path.display(), why, "not adopted");
        let mut report = lock(&self.report);
        report.left += 1;
        if report.named.len() < NAMED {
            report.named.push(NotAdopted { path: path.display().to_string(), why: why.to_owned() });
        }
    }
}

//! Striped files: how they are laid out in a run, what happened to them, and what is left of them on the bricks at the end.

use crate::check::{Seen, tree};
use crate::history::nanos;
use crate::process::To;
use crate::trace::say;
use crate::world::World;
use crate::{Config, Family, Prng};
use brick::Brick;
use core::time::Duration;
use file_history::Parted;
use ids::{Fid, SetId};
use namespace::TreeState;
use set_core::SetCore;
use std::collections::{BTreeMap, BTreeSet};
use wire::Op;
use wire::stripes::{Layout, PIECE, PieceOf, STRIPES, Stripes as Kept};

/// How often it is looked whether pieces whose files are gone have gone too.
const LOOK: Duration = Duration::from_secs(5);

/// Bytes of a unit: the least that a volume may have.
pub(crate) const UNIT: u64 = 64 << 10;

/// How files become striped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Settings {
    /// Pieces.
    pub(crate) count: u64,
    /// From how many bytes on.
    pub(crate) large: u64,
}

/// A cut that was begun by some process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Begun {
    generation: u64,
    by: (usize, u32),
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Stripes {
    settings: Option<Settings>,
    /// Where clients were told that files lie, and where they would have lain.
    parted: BTreeMap<Fid, Parted>,
    /// All pieces that a layout was to name, with their files.
    pieces: BTreeMap<Fid, Fid>,
    told: BTreeSet<Fid>,
    cuts: BTreeMap<Fid, Begun>,
    next_look: Duration,
}

impl Stripes {
    pub(crate) fn draw(seed: u64, config: &Config) -> Stripes {
        let mut rng = Prng::new(seed ^ 0x73_7472_6970_6573);
        let settings = Settings { count: 2 + rng.below(2) as u64, large: 1 << (10 + rng.below(8)) };
        let works = config.faults.contains(&Family::Stripes);
        Stripes { settings: works.then_some(settings), ..Stripes::default() }
    }

    pub(crate) fn settings(&self) -> Option<Settings> {
        self.settings
    }

    /// A client was told where a file's data lies.
    pub(crate) fn told(&mut self, now: Duration, file: Fid, layout: &Layout) {
        self.note(now, file, layout);
        let order: Vec<SetId> = layout.pieces.iter().map(|piece| piece.set).collect();
        let Some(parted) = self.parted.get_mut(&file) else { return };
        if self.told.insert(file) {
            (parted.told, parted.order) = (Some(nanos(now)), order);
        } else if parted.order != order {
            parted.order.clear();
        }
    }

    /// A layout is, or is about to be, a file's.
    fn note(&mut self, now: Duration, file: Fid, layout: &Layout) {
        let new = || Parted { unit: layout.unit, base: layout.base, ..Parted::default() };
        let parted = self.parted.entry(file).or_insert_with(new);
        parted.base = parted.base.max(layout.base);
        for piece in &layout.pieces {
            parted.sets.entry(piece.set).or_insert(nanos(now));
        }
        self.pieces.extend(layout.pieces.iter().map(|piece| (*piece, file)));
    }

    pub(crate) fn parted(&self) -> &BTreeMap<Fid, Parted> {
        &self.parted
    }
}

/// What the bricks have of striped files.
#[derive(Debug, Default)]
pub(crate) struct OnBricks {
    files: BTreeMap<Fid, Kept>,
    pieces: BTreeMap<Fid, PieceOf>,
    nameless: BTreeSet<Fid>,
}

impl OnBricks {
    /// Takes in what a brick of a set has.
    pub(crate) fn add(&mut self, set: SetId, tree: &BTreeMap<String, Seen>) -> Result<(), String> {
        for (path, seen) in tree.iter().filter(|(_, seen)| seen.home == Some(set)) {
            let Some(fid) = seen.fid else { continue };
            if let Some(bytes) = seen.xattrs.get(STRIPES.as_bytes()) {
                let kept = Kept::decode(bytes).map_err(|e| format!("the layout of {path}: {e}"))?;
                self.files.insert(fid, kept);
            }
            if let Some(bytes) = seen.xattrs.get(PIECE.as_bytes()) {
                let piece = PieceOf::decode(bytes).map_err(|e| format!("whose piece {path} is: {e}"))?;
                self.pieces.insert(fid, piece);
            }
            if path.starts_with(".mortar/orphans") {
                self.nameless.insert(fid);
            }
        }
        Ok(())
    }

    /// A piece that no file has.
    fn left_over(&self) -> Option<(Fid, PieceOf)> {
        let has = |piece: &Fid, of: &PieceOf| {
            self.files.get(&of.file).is_some_and(|kept| kept.layout.pieces.contains(piece))
        };
        self.pieces.iter().find(|(piece, of)| !has(piece, of)).map(|(piece, of)| (*piece, of.clone()))
    }

    /// What is not as it has to be at rest. All files with names have been read: what was begun with them is over.
    fn wrong(&self) -> Option<String> {
        if let Some((piece, of)) = self.left_over() {
            return Some(format!("piece {piece} of {} is left over", of.file));
        }
        for (file, kept) in &self.files {
            if kept.cut.is_some() && !self.nameless.contains(file) {
                return Some(format!("the cut of {file} is not over: {kept:?}"));
            }
            for piece in &kept.layout.pieces {
                match self.pieces.get(piece) {
                    Some(of) if of.file != *file => {
                        return Some(format!("piece {piece} of {file} belongs to {}", of.file));
                    }
                    Some(of) if kept.cut.is_none() && of.generation != kept.layout.generation => {
                        return Some(format!("piece {piece} has another generation: {of:?}, {kept:?}"));
                    }
                    Some(_) => {}
                    None => return Some(format!("piece {piece} of {file} is not there")),
                }
            }
        }
        None
    }
}

impl World {
    /// A set asks another one for something: what it says of striped files is counted.
    pub(crate) fn note_stripes(&mut self, m: usize, core: &mut SetCore<Brick, To>, op: &Op) {
        match op {
            Op::Stripe { fid, layout } => {
                self.count("file about to be striped");
                self.stripes.note(self.now, *fid, layout);
            }
            Op::FencePiece { fid, generation } => {
                let Some(file) = self.stripes.pieces.get(fid).copied() else { return };
                let by = (m, self.machines[m].life);
                let Some(kept) = core.brick_mut().stripes(file).ok().flatten() else { return };
                let Some(cut) = kept.cut.filter(|cut| cut.generation == *generation) else { return };
                let begun = Begun { generation: *generation, by };
                let before = self.stripes.cuts.insert(file, begun);
                if before == Some(begun) {
                    // Another piece of the same cut.
                    return;
                }
                self.count(if cut.then.is_some() { "striped file cut" } else { "append fenced" });
                if let Some(before) = before.filter(|b| b.generation > kept.layout.generation) {
                    self.count(if before.by == by {
                        "cut begun anew"
                    } else {
                        "cut resumed by another primary"
                    });
                }
            }
            _ => {}
        }
    }

    /// What the bricks have; an error tells what cannot be read.
    fn on_bricks(&mut self) -> Result<OnBricks, String> {
        let mut all = OnBricks::default();
        let state = self.store.state().clone();
        for (set, places) in self.places() {
            let has_data = |brick| state.brick(brick).is_some_and(|(_, b)| !b.arbiter);
            let Some((m, brick)) = places.into_iter().find(|(_, brick)| has_data(*brick)) else { continue };
            let Some(disk) = self.machines[m].disks.get(&brick) else { continue };
            let seen = tree(disk, set, false).map_err(|e| format!("brick {brick} cannot be read: {e}"))?;
            all.add(set, &seen)?;
        }
        Ok(all)
    }

    /// Whether pieces have still to go; if so, when to look again.
    pub(crate) fn pieces_unrest(&mut self) -> Option<(Duration, String)> {
        self.stripes.settings?;
        if self.now < self.stripes.next_look {
            return Some((self.stripes.next_look, "pieces".to_owned()));
        }
        self.stripes.next_look = self.now + LOOK;
        let (piece, of) = self.on_bricks().ok()?.left_over()?;
        say!(self, "piece {piece} has still to go: {of:?}");
        Some((self.stripes.next_look, format!("piece {piece} of {} does not go", of.file)))
    }

    /// At rest the pieces on the bricks are those of the files.
    pub(crate) fn check_stripes(&mut self) {
        if self.stripes.settings.is_none() {
            return;
        }
        let all = match self.on_bricks() {
            Ok(all) => all,
            Err(why) => return self.fail(why),
        };
        self.coverage.add("striped file at rest", all.files.len() as u64);
        let gone = self.stripes.pieces.keys().filter(|piece| !all.pieces.contains_key(piece)).count();
        self.coverage.add("piece gone", gone as u64);
        self.coverage.add("file striped", self.stripes.told.len() as u64);
        if let Some(why) = all.wrong() {
            self.fail(why);
        }
    }
}

#[cfg(test)]
mod tests;

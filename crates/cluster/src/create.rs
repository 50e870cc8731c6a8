//! Making a volume: which bricks form which set, what refuses a brick, and who leads at first.

use std::collections::BTreeMap;

use ids::{BrickId, Epoch, ServerId, SetId, VolumeId};

use crate::apply::check_length;
use crate::{
    Brick, BrickSpec, FILES_ARE_STRIPED, NEW_VOLUMES_HAVE_OPTIONS, NewVolume, Refusal, Set, State, Status,
    View, Volume, limits, names,
};

impl State {
    /// The options that a volume begins with which is made now. They are part of the command that makes it: a volume of before
    /// keeps the defaults of the table, which its clients know.
    pub fn options_of_new_volumes(&self) -> BTreeMap<String, String> {
        if self.level < NEW_VOLUMES_HAVE_OPTIONS {
            return BTreeMap::new();
        }
        [("cluster.large-file-size".to_owned(), "1MB".to_owned())].into()
    }

    /// Whether all servers know of striped files.
    ///
    /// # Errors
    /// They do not.
    pub fn check_stripes(&self) -> Result<(), Refusal> {
        if self.level < FILES_ARE_STRIPED { Err(Refusal::StripesTooEarly) } else { Ok(()) }
    }

    /// The brick that a user wrote as HOST:/PATH.
    pub fn resolve_brick(&self, text: &str) -> Result<BrickSpec, Refusal> {
        let syntax = || Refusal::BrickSyntax { brick: text.to_string() };
        let (host, path) = text.split_once(":/").ok_or_else(syntax)?;
        if host.is_empty() {
            return Err(syntax());
        }
        let unknown = || Refusal::UnknownHost { host: host.to_string() };
        let server = self.server_by_host(host).ok_or_else(unknown)?;
        Ok(BrickSpec { server: server.id, path: names::normal_path(&format!("/{path}"))? })
    }

    pub(crate) fn create_volume(&mut self, new: &NewVolume) -> Result<VolumeId, Refusal> {
        self.make_volume(new, false)
    }

    /// A brick that is filled from another one cannot be on the same server: a server serves one brick of a set.
    pub(crate) fn adopt_volume(&mut self, new: &NewVolume) -> Result<VolumeId, Refusal> {
        self.make_volume(&NewVolume { force: false, ..new.clone() }, true)
    }

    fn make_volume(&mut self, new: &NewVolume, adopt: bool) -> Result<VolumeId, Refusal> {
        names::check_volume_name(&new.name)?;
        if self.volume(&new.name).is_some() {
            return Err(Refusal::VolumeExists { name: new.name.clone() });
        }
        if self.volumes.len() >= limits::VOLUMES {
            return Err(Refusal::TooManyVolumes { max: limits::VOLUMES });
        }
        if let Some(expected) = new.expect_brick {
            self.check_next_brick(expected)?;
        }
        check_shape(new)?;
        let bricks = self.check_bricks(new)?;
        self.check_ids_left(bricks.len() as u32, new.replica)?;
        let id = self.next_volume;
        let mut volume = Volume {
            id,
            name: new.name.clone(),
            status: Status::Created,
            replica: new.replica,
            arbiter: new.arbiter,
            sets: Vec::new(),
            options: new.options.clone(),
            created: new.created,
            numbered: 0,
        };
        for (key, value) in &new.options {
            self.check_option(&volume, key, Some(value))?;
        }
        check_length(&new.name, &new.options)?;
        self.next_volume = VolumeId(id.0 + 1);
        for (at, of_set) in bricks.chunks(new.replica as usize).enumerate() {
            match of_set.split_first() {
                Some((first, others)) if adopt && at == 0 => {
                    let set = self.add_set(&mut volume, std::slice::from_ref(first), 0);
                    self.add_members(set, others, new.arbiter as usize);
                }
                _ => drop(self.add_set(&mut volume, of_set, new.arbiter)),
            }
        }
        self.volumes.insert(id, volume);
        Ok(id)
    }

    /// Refuses so many bricks, in sets of `replica`, if there are no numbers for them.
    pub(crate) fn check_ids_left(&self, bricks: u32, replica: u32) -> Result<(), Refusal> {
        let left = SetId::MAX.0.saturating_sub(self.next_set.0) + 1;
        if bricks / replica >= left || self.next_brick.0.checked_add(bricks + 1).is_none() {
            return Err(Refusal::OutOfIds);
        }
        Ok(())
    }

    /// The bricks with normal paths, or why they cannot be a volume's.
    pub(crate) fn check_bricks(&self, new: &NewVolume) -> Result<Vec<BrickSpec>, Refusal> {
        let bricks = self.check_new(&new.bricks)?;
        if !new.force {
            for of_set in bricks.chunks(new.replica as usize) {
                self.check_servers_differ(of_set)?;
            }
        }
        Ok(bricks)
    }

    /// The directories with normal paths, or why they cannot be bricks of anything.
    pub(crate) fn check_new(&self, given: &[BrickSpec]) -> Result<Vec<BrickSpec>, Refusal> {
        let mut bricks = Vec::new();
        for spec in given {
            if !self.servers.contains_key(&spec.server) {
                return Err(Refusal::UnknownServer { id: spec.server });
            }
            bricks.push(BrickSpec { server: spec.server, path: names::normal_path(&spec.path)? });
        }
        self.check_apart(&bricks)?;
        self.check_free(&bricks)?;
        Ok(bricks)
    }

    fn check_apart(&self, bricks: &[BrickSpec]) -> Result<(), Refusal> {
        let mut sorted: Vec<&BrickSpec> = bricks.iter().collect();
        sorted.sort_by(|a, b| names::path_order((a.server, &a.path), (b.server, &b.path)));
        for pair in sorted.windows(2) {
            if pair[0] == pair[1] {
                return Err(Refusal::DuplicateBrick { brick: self.spec_name(pair[0]) });
            }
            if pair[0].server == pair[1].server && names::overlap(&pair[0].path, &pair[1].path) {
                let (brick, other) = (self.spec_name(pair[1]), self.spec_name(pair[0]));
                return Err(Refusal::NestedBrick { brick, other });
            }
        }
        Ok(())
    }

    pub(crate) fn check_free(&self, bricks: &[BrickSpec]) -> Result<(), Refusal> {
        for spec in bricks {
            for (set, used) in self.bricks_of(spec.server) {
                if used.path == spec.path {
                    let volume = self.volumes.get(&set.volume).map(|v| v.name.clone()).unwrap_or_default();
                    return Err(Refusal::BrickInUse { brick: self.spec_name(spec), volume });
                }
                if names::overlap(&used.path, &spec.path) {
                    let (brick, other) = (self.spec_name(spec), self.brick_name(used));
                    return Err(Refusal::NestedBrick { brick, other });
                }
            }
        }
        Ok(())
    }

    fn check_servers_differ(&self, of_set: &[BrickSpec]) -> Result<(), Refusal> {
        for (at, spec) in of_set.iter().enumerate() {
            if let Some(other) = of_set[..at].iter().find(|o| o.server == spec.server) {
                let (brick, other) = (self.spec_name(other), self.spec_name(spec));
                return Err(Refusal::SameServer { brick, other });
            }
        }
        Ok(())
    }

    /// A brick that is to be, as users write it.
    pub fn spec_name(&self, spec: &BrickSpec) -> String {
        let host = self.servers.get(&spec.server).map(|s| s.host.as_str()).unwrap_or_default();
        names::brick_name(host, &spec.path)
    }

    /// A further set of a volume, whose last bricks are arbiters.
    pub(crate) fn add_set(&mut self, volume: &mut Volume, specs: &[BrickSpec], arbiters: u32) -> SetId {
        let (id, number) = (self.next_set, self.next_number(volume));
        self.next_set = SetId(id.0 + 1);
        let data = specs.len() - arbiters as usize;
        let mut bricks = Vec::new();
        for (at, spec) in specs.iter().enumerate() {
            let brick = self.next_brick;
            self.next_brick = BrickId(brick.0 + 1);
            bricks.push(Brick {
                id: brick,
                server: spec.server,
                path: spec.path.clone(),
                arbiter: at >= data,
                mount: String::new(),
                replaces: None,
                joining: false,
                leaving: false,
            });
        }
        let primary = self.least_loaded(bricks.iter().filter(|b| !b.arbiter));
        assert!(primary.is_some(), "a set has a data brick");
        let in_sync = bricks.iter().map(|b| b.id).collect();
        let view = View { epoch: Epoch(1), primary, in_sync };
        self.sets.insert(id, Set { id, volume: volume.id, number, bricks, view, lost_before: Epoch(0) });
        volume.sets.push(id);
        volume.numbered = number;
        id
    }

    /// The first of these bricks whose server leads the fewest sets.
    pub(crate) fn least_loaded<'a>(&self, bricks: impl Iterator<Item = &'a Brick>) -> Option<BrickId> {
        let load = self.primaries();
        let of = |server: &ServerId| load.get(server).copied().unwrap_or_default();
        bricks.min_by_key(|b| of(&b.server)).map(|b| b.id)
    }

    /// Whether a volume is built of exactly these bricks.
    pub(crate) fn same_bricks(&self, volume: &Volume, wanted: &NewVolume) -> bool {
        let count = self.bricks_of_volume(volume).count();
        wanted.bricks.is_empty() || wanted.bricks.len() == count && self.begins_with(volume, wanted)
    }

    /// Whether all bricks of a volume are the first of these, in the same sets.
    pub(crate) fn begins_with(&self, volume: &Volume, wanted: &NewVolume) -> bool {
        let mut given = wanted.bricks.iter();
        let same = self.bricks_of_volume(volume).all(|b| {
            let is_it = |w: &BrickSpec| {
                w.server == b.server && names::normal_path(&w.path).is_ok_and(|path| path == b.path)
            };
            given.next().is_some_and(is_it)
        });
        same && volume.replica == wanted.replica && volume.arbiter == wanted.arbiter
    }
}

/// Refuses what no set can be.
pub(crate) fn check_copies(replica: u32, arbiter: u32) -> Result<(), Refusal> {
    if replica == 0 || replica > limits::REPLICA {
        return Err(Refusal::Replica { replica, max: limits::REPLICA });
    }
    if arbiter > 1 || (arbiter == 1 && replica != 3) {
        return Err(Refusal::Arbiter { replica, arbiter });
    }
    Ok(())
}

pub(crate) fn check_shape(new: &NewVolume) -> Result<(), Refusal> {
    let (replica, arbiter, count) = (new.replica, new.arbiter, new.bricks.len());
    check_copies(replica, arbiter)?;
    if count == 0 {
        return Err(Refusal::NoBricks { name: new.name.clone() });
    }
    if count > limits::VOLUME_BRICKS {
        return Err(Refusal::TooManyBricks { count, max: limits::VOLUME_BRICKS });
    }
    if !count.is_multiple_of(replica as usize) {
        return Err(Refusal::BrickCount { count, replica });
    }
    Ok(())
}

#[cfg(test)]
#[path = "create_tests.rs"]
mod tests;

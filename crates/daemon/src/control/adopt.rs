//! `volume adopt`: every server that has bricks of the volume takes in what lies in them and is not the volume's.

use super::Control;
use super::answers::{conflict, failed, not_found};
use super::protocol::{ClusterReply, ClusterRequest};
use super::volumes::volume;
use crate::adoption::BrickToAdopt;
use admin::{AdminError, AdoptReport, NotAdopted, VolumeAdopt};
use cluster::{Brick, Set, State, Status};
use ids::ServerId;
use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

impl Control {
    /// Begins where that is asked for, and tells how far all servers have come.
    pub(super) async fn volume_adopt(&self, request: VolumeAdopt) -> Result<AdoptReport, AdminError> {
        let VolumeAdopt { name, path, begin } = request;
        let state = self.linearizable().await?;
        let volume = volume(&state, &name)?;
        if volume.status != Status::Started {
            return Err(conflict(format!("volume {name} is not started: mortar volume start {name}")));
        }
        let below = path.unwrap_or_default();
        below_top(&below)?;
        let servers: BTreeSet<ServerId> =
            state.sets_of(volume).flat_map(|s| s.bricks.iter().map(|b| b.server)).collect();
        let mut all = AdoptReport { name: name.clone(), absent: true, ..AdoptReport::default() };
        for server in servers.iter().filter_map(|s| state.servers.get(s)) {
            let request = ClusterRequest::Adopt { volume: name.clone(), below: below.clone(), begin };
            match self.ask_cluster(&server.address, request).await {
                Ok(ClusterReply::Adopt(report)) => add(&mut all, report),
                Ok(_) => {}
                Err(e) => {
                    all.absent = false;
                    all.left += 1;
                    all.named.push(NotAdopted {
                        path: format!("{}:", ids::bracketed(&server.host)),
                        why: e.message,
                    });
                }
            }
        }
        let AdoptReport { running, absent, files, directories, left, .. } = all;
        if absent && !running && (files, directories, left) == (0, 0, 0) {
            return Err(not_found(format!(
                "no brick of volume {name} has {below}: write the path from the top of the volume, and put the files into \
                 the brick that leads its set (mortar volume status {name})"
            )));
        }
        Ok(AdoptReport { absent: false, ..all })
    }

    /// Begins on this server where that is asked for, and tells how far it has come.
    pub(super) fn own_adoption(
        &self,
        name: &str,
        below: &str,
        begin: bool,
    ) -> Result<AdoptReport, AdminError> {
        let state = self.state();
        let volume = volume(&state, name)?;
        let me = self.shared.me();
        if begin {
            let mine = |set: &'_ Set| -> Vec<BrickToAdopt> {
                set.bricks.iter().filter(|b| b.server == me).map(|b| to_adopt(&state, set, b)).collect()
            };
            let bricks = state.sets_of(volume).flat_map(mine).collect();
            // This server may get another key meanwhile.
            let shared = self.shared.clone();
            let another = move |_| shared.dials().ok().flatten();
            let key = self.shared.dials().map_err(failed)?;
            let key = key.map(|first| client::Key::Given(client::GivenKey::new(first, another)));
            self.adoptions.begin((&self.address, key), name, &below_top(below)?, bricks);
        }
        let mut report = self.adoptions.report(name, &below_top(below)?);
        let host = state.servers.get(&me).map(|s| ids::bracketed(&s.host)).unwrap_or_default();
        for left in &mut report.named {
            left.path = format!("{host}:{}", left.path);
        }
        Ok(report)
    }
}

fn to_adopt(state: &State, set: &Set, b: &Brick) -> BrickToAdopt {
    let leader = set.view.primary.filter(|p| *p != b.id).and_then(|p| set.brick(p));
    BrickToAdopt {
        name: state.brick_name(b),
        path: PathBuf::from(&b.path),
        leader: leader.map(|l| state.brick_name(l)),
    }
}

fn add(all: &mut AdoptReport, one: AdoptReport) {
    all.running |= one.running;
    all.absent &= one.absent;
    all.files += one.files;
    all.directories += one.directories;
    all.bytes += one.bytes;
    all.left += one.left;
    all.named.extend(one.named);
}

/// A path in the volume, from its top.
fn below_top(path: &str) -> Result<PathBuf, AdminError> {
    let mut below = PathBuf::new();
    for part in Path::new(path).components() {
        match part {
            Component::RootDir | Component::CurDir => {}
            Component::Normal(name) => below.push(name),
            Component::ParentDir | Component::Prefix(_) => {
                return Err(conflict(format!(
                    "{path}: write the path from the top of the volume, without .."
                )));
            }
        }
    }
    Ok(below)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_one_of_the_volume() {
        for (given, below) in [("", ""), ("/", ""), ("/a/b", "a/b"), ("a//b/.", "a/b")] {
            assert_eq!(below_top(given), Ok(PathBuf::from(below)));
        }
        assert!(below_top("/a/../../etc").is_err());
    }
}

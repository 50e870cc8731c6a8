//! Where a brick of a set that is emptied goes (docs/design/0022): beside a brick of the same volume that stays.

use crate::{Brick, BrickSpec, Set, State, Volume};

impl State {
    /// A place for what `old` holds: beside the brick with most room, of a set that is not emptied, on a server that has none of
    /// this set. With `same_server` the brick's own server will do if there is no other one. `room`: bytes free at a brick.
    pub fn place_for(
        &self,
        volume: &Volume,
        set: &Set,
        old: &Brick,
        same_server: bool,
        room: &dyn Fn(&Brick) -> u64,
    ) -> Option<BrickSpec> {
        let emptied = volume.typed_options().drain;
        let stay = self.sets_of(volume).filter(|s| s.id != set.id && !emptied.contains(&s.id));
        // Beside a mount point lies another file system.
        let hosts = stay.flat_map(|s| &s.bricks).filter(|b| !b.leaving && b.mount != b.path);
        let has_other = |b: &Brick| set.bricks.iter().any(|o| o.server == b.server && o.id != old.id);
        let fits = |b: &&Brick| !has_other(b) && (same_server || b.server != old.server);
        let host = hosts.filter(fits).max_by_key(|b| (b.server != old.server, room(b), b.id))?;
        // What lay beside it before has left its directory there: no two places have the same name.
        let path = format!("{}-{}", beside(host, set.number), self.next_brick);
        Some(BrickSpec { server: host.server, path })
    }

    /// Bricks of sets that were emptied for which a place was found beside this one.
    pub fn guests_of<'a>(&'a self, host: &'a Brick) -> impl Iterator<Item = &'a Brick> {
        let all = self.bricks_of(host.server);
        all.filter(|(set, b)| is_beside(host, set, &b.path)).map(|(_, b)| b)
    }
}

fn beside(host: &Brick, number: u32) -> String {
    format!("{}-set{number}", host.path)
}

/// Whether the path is one that was found beside a brick. Places of before bear the set's id, and the oldest no number of the
/// new brick.
fn is_beside(host: &Brick, set: &Set, path: &str) -> bool {
    [set.number, set.id.0].into_iter().any(|number| {
        let brick = path.strip_prefix(&beside(host, number));
        brick.is_some_and(|b| b.is_empty() || b.strip_prefix('-').is_some_and(is_number))
    })
}

fn is_number(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
#[path = "places_tests.rs"]
mod tests;

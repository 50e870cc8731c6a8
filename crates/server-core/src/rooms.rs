//! Room of the pool's sets, as their primaries last said: carried by heartbeats, used to place new directories.

use cluster::State;
use ids::{ServerId, SetId};
use namespace::placement::SetRoom;
use std::collections::BTreeMap;

/// What a server knows of the room of all sets.
#[derive(Clone, Debug, Default)]
pub struct Rooms(BTreeMap<SetId, SetRoom>);

impl Rooms {
    /// Of one set.
    pub fn get(&self, set: SetId) -> Option<SetRoom> {
        self.0.get(&set).copied()
    }

    /// Of all sets that are known.
    pub fn all(&self) -> impl Iterator<Item = SetRoom> + '_ {
        self.0.values().copied()
    }

    /// This server leads the set and says so.
    pub fn set(&mut self, set: SetId, room: SetRoom) {
        self.0.insert(set, room);
    }

    /// A directory was placed there, which will want room.
    pub fn promise(&mut self, set: SetId) {
        self.0.get_mut(&set).into_iter().for_each(|room| room.promised += 1);
    }

    /// Takes over what `by` says of the sets that it leads; `None`: the leader of the pool's store said it, of all sets.
    /// This server knows better of the sets that it leads itself.
    pub fn learn(
        &mut self,
        state: &State,
        me: ServerId,
        by: Option<ServerId>,
        rooms: impl Iterator<Item = SetRoom>,
    ) {
        let led_by = |set, server| {
            let set: Option<&cluster::Set> = state.sets.get(&set);
            set.and_then(|s| s.brick(s.view.primary?)).is_some_and(|b| b.server == server)
        };
        self.0.retain(|set, _| state.sets.contains_key(set));
        let counts = |r: &SetRoom| {
            state.sets.contains_key(&r.set) && !led_by(r.set, me) && by.is_none_or(|by| led_by(r.set, by))
        };
        for room in rooms.filter(counts) {
            self.0.insert(room.set, room);
        }
    }
}

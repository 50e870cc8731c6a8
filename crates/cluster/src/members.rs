//! How bricks become members of a set that count, and how they cease to be members.
//!
//! Always true:
//! - A brick that comes into a set holds nothing. It is no part of the view before it is healed, and does not count for the
//!   write quorum before it was in sync: the rule changes in the view change that brings it in.
//! - A brick that leaves is a member for as long as the view has it. One that leads may be answering: no command takes the
//!   lead from it. It ends its service first, and then asks for the view without itself (crate `replica`).
//! - The last brick in sync with the data never leaves.

use ids::{BrickId, Epoch, SetId};

use crate::State;

impl State {
    /// These bricks of a set are to leave it. Those that are not in sync go at once, and so do those that do not lead.
    pub(crate) fn begin_leaving(&mut self, id: SetId, gone: &[BrickId]) -> Vec<(SetId, Epoch)> {
        let Some(set) = self.sets.get_mut(&id) else { return Vec::new() };
        for brick in set.bricks.iter_mut().filter(|b| gone.contains(&b.id)) {
            brick.leaving = true;
        }
        let primary = set.view.primary;
        let views = self.leave_views(|b| gone.contains(&b.id) && Some(b.id) != primary);
        self.update_members(id);
        views
    }

    /// After a view changed: who is in sync counts, and takes the place that was meant for it; who is to leave and does not
    /// lead goes.
    pub(crate) fn update_members(&mut self, id: SetId) {
        let Some(set) = self.sets.get_mut(&id) else { return };
        let view = &mut set.view;
        let mut replaced = Vec::new();
        for brick in set.bricks.iter_mut().filter(|b| view.in_sync.contains(&b.id)) {
            brick.joining = false;
            replaced.extend(brick.replaces.take());
        }
        for brick in set.bricks.iter_mut().filter(|b| replaced.contains(&b.id)) {
            brick.leaving = true;
        }
        // While nobody leads, any brick in sync may be needed.
        set.bricks.retain(|b| {
            let needed = view.primary.is_none_or(|p| p == b.id) && view.in_sync.contains(&b.id);
            !b.leaving || needed
        });
        view.in_sync.retain(|id| set.bricks.iter().any(|b| b.id == *id));
    }
}

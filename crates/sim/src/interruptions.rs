//! At which steps of transactions between sets servers were killed: each step is a question of one set to another.

use crate::world::World;
use wire::Op;

/// Which of the two servers died.
#[derive(Clone, Copy)]
enum Died {
    Asker,
    Asked,
}

/// The counters of each step.
macro_rules! steps {
    ($($op:ident)*) => {
        fn counter(op: &Op, died: Died) -> Option<&'static str> {
            match (op, died) {
                $((Op::$op { .. }, Died::Asker) => Some(concat!(stringify!($op), ": asker killed")),
                (Op::$op { .. }, Died::Asked) => Some(concat!(stringify!($op), ": asked server killed")),)*
                _ => None,
            }
        }
    };
}

steps! {
    // Of directories on other sets, and of those that move.
    PrepareMkdir PrepareRmdir EndTransaction Relocate CheckEntry CheckOutcome LockTree UnlockTree Lineage
    // Of names, links and stubs elsewhere.
    PrepareFile PrepareExchange EndFile CheckMark
    // Of files that move.
    Arrive Land Depart DepartAll Retarget PrepareLeave Redirect PathOf
    // Of files that become striped, and are cut.
    Stripe FencePiece TrimPiece CheckCut CheckPiece
}

impl World {
    /// The process of a machine is about to end: which questions are under way that it asks, or was asked?
    pub(crate) fn note_interruptions(&mut self, machine: usize) {
        let mut found = Vec::new();
        for (m, other) in self.machines.iter().enumerate() {
            let Some(process) = &other.process else { continue };
            for (op, asked) in process.questions.under_way(m) {
                let asker = (m == machine).then_some(Died::Asker);
                let asked = (asked == Some(machine)).then_some(Died::Asked);
                found.extend(asker.into_iter().chain(asked).filter_map(|died| counter(op, died)));
            }
        }
        found.into_iter().for_each(|what| self.count(what));
    }
}

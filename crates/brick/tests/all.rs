//! Tests of bricks in temporary directories, as one program. `bounds` and `large` look at their whole process, and `memory` has
//! bricks of another kind: they are programs of their own.

mod adopt;
mod changes;
mod check;
mod closed;
mod common;
mod crash;
mod damaged_index;
mod displaced;
mod failing;
mod far_names;
mod foreign;
mod format;
mod hand_over;
mod heal;
mod journal;
mod power;
mod replicas;
mod stubs;

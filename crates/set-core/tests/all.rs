//! All tests as one program: each would compile a core of its own.

mod beneath;
mod between_sets;
mod common;
mod departures;
mod directories_between_sets;
mod exchanges_between_sets;
mod files_between_sets;
mod hand_over;
mod joining;
mod paths;
mod promises;
mod requests;
mod rights;
mod striping;
mod swaps_between_sets;

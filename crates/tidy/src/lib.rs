//! House rules that a machine can check. The checks themselves are in `tests/tidy.rs`; here is how they read the tree.
//!
//! Owns: finding files, measuring files and functions, reading tables and lists.
//! Always true: nothing here changes a file, but [`List::save`] when a test is run with UPDATE=1.

mod files;
mod list;
mod manifest;
mod measure;
mod mutant;
mod plant;
mod table;
mod words;

pub use files::{Source, named_paths, root, samples, sources};
pub use list::{List, updates};
pub use manifest::dependencies;
pub use measure::{Function, empty_checks, functions, product_lines};
pub use mutant::{Mutant, find, parse as mutants};
pub use plant::{Classic, Planted, all_mutants, classics, plant};
pub use table::{bold_words, crates_table, section};
pub use words::{replaced, words};

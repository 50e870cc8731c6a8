//! All tests as one program: it is compiled and linked once.

mod directory_exchanges;
mod exchanges;
mod files;
mod permission;
mod rights;
mod rules;
mod search;
mod three_sets;
mod two_sets;

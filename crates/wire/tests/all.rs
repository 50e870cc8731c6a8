//! All tests as one program: it is compiled and linked once.

mod document;
mod locks;
mod sample;
mod samples;
mod schema;
mod two_sets;

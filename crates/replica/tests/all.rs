//! All tests as one program: it is compiled and linked once.

mod common;
mod edges;
mod failover;
mod healing;
mod histories;
mod leaving;
mod set;

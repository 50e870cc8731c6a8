//! All tests as one program: it is compiled and linked once.

mod handshakes;
mod samples;

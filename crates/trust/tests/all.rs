//! All tests as one program: it is compiled and linked once.

mod channel;
mod handshakes;
mod samples;

//! All tests as one program: it is compiled and linked once.

mod crashes;
mod like_linux;

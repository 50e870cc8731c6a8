//! All tests as one program: it is compiled and linked once.

mod calls;
mod fake;
mod page;

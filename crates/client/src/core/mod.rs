//! Decisions of the client: no clock, no thread, no socket. Whoever carries them out passes in what happened, and when.

pub(crate) mod call;

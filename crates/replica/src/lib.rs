//! replica.

//! namespace.

//! config-store.

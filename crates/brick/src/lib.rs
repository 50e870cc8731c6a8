//! brick.

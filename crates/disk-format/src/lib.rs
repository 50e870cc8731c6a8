//! disk-format.

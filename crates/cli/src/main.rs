//! The `mortar` command.
fn main() {}

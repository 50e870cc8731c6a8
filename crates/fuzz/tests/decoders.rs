//! Some seconds of what `make fuzz` does for a minute.
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

use fuzz::targets;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Each decoder takes so many inputs, and reads some of them: otherwise it is not tested at all.
#[test]
fn every_decoder_takes_any_bytes() {
    for target in targets() {
        let mut last = Vec::new();
        let run = || target.run(1, 3000, |input| input.clone_into(&mut last));
        match catch_unwind(AssertUnwindSafe(run)) {
            Ok(count) => {
                assert_eq!(count.inputs, 3000);
                assert!(count.read > 0, "{}: {count:?}: inputs are refused at once", target.name);
            }
            Err(_) => panic!("{}: b\"{}\"", target.name, last.escape_ascii()),
        }
    }
}

/// The samples themselves are read: what is mutated is near to what is right.
#[test]
fn every_decoder_has_samples() {
    for target in targets() {
        assert!(target.reads_a_sample(), "{} reads none of its samples", target.name);
    }
}

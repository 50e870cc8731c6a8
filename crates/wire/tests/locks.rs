//! The bytes of the right to grant locks.

use wire::op::LockClaim;
use wire::{Op, Wire};

#[test]
fn frozen_bytes() {
    let term = [7, 0, 0, 0, 0, 0, 0, 1];
    let hold = |claim| Op::HoldLocks { term: 0x0100_0000_0000_0007, claim };
    for (op, tag, rest) in [
        (hold(LockClaim::New), 25, &[1][..]),
        (hold(LockClaim::Held), 25, &[2]),
        (hold(LockClaim::Expired), 25, &[3]),
        (Op::DropLocks { term: 0x0100_0000_0000_0007 }, 26, &[]),
    ] {
        let frozen = [&[tag], &term[..], rest].concat();
        assert_eq!(op.to_bytes()[..], frozen[..], "{op:?}");
        assert_eq!(Op::from_bytes(&frozen), Ok(op));
    }
    assert!(Op::from_bytes(&[&[25], &term[..], &[4]].concat()).is_err(), "no such claim");
}

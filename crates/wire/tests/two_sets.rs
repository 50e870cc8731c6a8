//! The bytes of what the primaries of two sets say to each other.

use ids::{Epoch, Fid, Lsn, OpId, SessionId, SetId};
use wire::{Body, Op, Wire};

const FID: Fid = Fid { set: SetId(2), epoch: Epoch(3), lsn: Lsn(4) };
const FID_BYTES: [u8; 16] = [2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0];
const TX: OpId = OpId { session: SessionId(5), seq: 6 };
const TX_BYTES: [u8; 16] = [5, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0];

fn bytes(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

#[test]
fn frozen_bytes() {
    let ops = [
        (
            Op::EndTransaction { fid: FID, tx: Some(TX), keep: true },
            bytes(&[&[45], &FID_BYTES, &[1], &TX_BYTES, &[1]]),
        ),
        (Op::EndTransaction { fid: FID, tx: None, keep: false }, bytes(&[&[45], &FID_BYTES, &[0, 0]])),
        (Op::LockTree { tx: TX }, bytes(&[&[46], &TX_BYTES])),
        (Op::UnlockTree { tx: TX }, bytes(&[&[47], &TX_BYTES])),
        (Op::Lineage { fid: FID }, bytes(&[&[48], &FID_BYTES])),
        (Op::PathOf { fid: FID }, bytes(&[&[62], &FID_BYTES])),
    ];
    for (op, frozen) in ops {
        assert_eq!(op.to_bytes()[..], frozen[..], "{op:?}");
        assert_eq!(Op::from_bytes(&frozen), Ok(op));
    }
    let body = Body::Lineage { own: vec![FID], other: Some((FID, SetId(7))) };
    let frozen = bytes(&[&[11, 1, 0, 0, 0], &FID_BYTES, &[1], &FID_BYTES, &[7, 0, 0, 0]]);
    assert_eq!(body.to_bytes()[..], frozen[..]);
    assert_eq!(Body::from_bytes(&frozen), Ok(body));
    let frozen = bytes(&[&[12], &FID_BYTES]);
    assert_eq!(Body::Moved { fid: FID }.to_bytes()[..], frozen[..]);
    assert_eq!(Body::from_bytes(&frozen), Ok(Body::Moved { fid: FID }));
}

#[test]
fn an_end_without_a_name_is_refused() {
    assert!(Op::from_bytes(&bytes(&[&[42], &FID_BYTES, &[1]])).is_err(), "tag 42 is out of use");
}

use super::*;
use ids::{Epoch, Lsn, OpId};
use wire::op::SetAttr;
use wire::stripes::{Cut, CutBy};

fn fid(set: u32, n: u64) -> Fid {
    Fid { set: SetId(set), epoch: Epoch(1), lsn: Lsn(n) }
}

const FILE: u64 = 4;

/// A file with two pieces, as it has to be.
fn right() -> OnBricks {
    let file = fid(1, FILE);
    let pieces: Vec<Fid> = [1, 2].map(|set| fid(set, 7)).into();
    let of = PieceOf { file, generation: 5 };
    let pieces_on_bricks = pieces.iter().map(|piece| (*piece, of.clone())).collect();
    let layout = Layout { generation: 5, base: UNIT, unit: UNIT, pieces };
    let files = [(file, Kept { layout, cut: None })].into();
    OnBricks { files, pieces: pieces_on_bricks, nameless: BTreeSet::new() }
}

/// What is told of a mistake in it.
fn told(plant: impl Fn(&mut OnBricks)) -> String {
    let mut all = right();
    plant(&mut all);
    all.wrong().unwrap_or_default()
}

fn cut(all: &mut OnBricks) {
    let (mode, uid, gid, atime, mtime) = (None, None, None, None, None);
    let set = SetAttr { mode, uid, gid, size: Some(1), atime, mtime, kill_suid: false };
    let then = Some(CutBy { op: OpId::default(), set });
    all.files
        .values_mut()
        .for_each(|kept| kept.cut = Some(Cut { generation: 6, end: 1, then: then.clone() }));
}

#[test]
fn what_is_wrong_at_rest_is_noticed() {
    assert_eq!(right().wrong(), None);
    let gone = told(|all| {
        all.pieces.remove(&fid(2, 7));
    });
    assert!(gone.contains("is not there"), "{gone}");
    let other = PieceOf { file: fid(1, 9), generation: 5 };
    let extra = told(|all| {
        all.pieces.insert(fid(2, 8), other.clone());
    });
    assert!(extra.contains("left over"), "{extra}");
    let strange = told(|all| {
        all.pieces.insert(fid(2, 7), other.clone());
    });
    assert!(strange.contains("left over"), "{strange}");
    let old = PieceOf { file: fid(1, FILE), generation: 4 };
    let old = told(|all| {
        all.pieces.insert(fid(2, 7), old.clone());
    });
    assert!(old.contains("another generation"), "{old}");
    let no_file = told(|all| all.files.clear());
    assert!(no_file.contains("left over"), "{no_file}");
    assert!(told(cut).contains("is not over"));
    let nameless = told(|all| {
        cut(all);
        all.nameless.insert(fid(1, FILE));
    });
    assert_eq!(nameless, "", "nobody need have asked for it");
}

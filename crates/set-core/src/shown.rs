//! Which answers show a file that is about to leave its set: nobody may keep those any more (docs/design/0018).

use ids::Fid;
use wire::{Name, Op};

/// Whether the answer to an operation may show the file, or the entry that leads to it.
pub(crate) fn shows(op: &Op, file: Fid, (dir, entry): (Fid, &Name)) -> bool {
    let leads = |parent: &Fid, name: &Name| (*parent, name) == (dir, entry);
    match op {
        Op::Lookup { parent, name }
        | Op::Create { parent, name, .. }
        | Op::Unlink { parent, name }
        | Op::Rmdir { parent, name } => leads(parent, name),
        Op::ReadDir { fid, .. } => *fid == dir,
        Op::Link { fid, parent, name } => *fid == file || leads(parent, name),
        Op::Rename { parent, name, to_parent, to_name, .. } => {
            leads(parent, name) || leads(to_parent, to_name)
        }
        Op::GetAttrs { fids } => fids.contains(&file),
        Op::StatFs | Op::SyncFs => false,
        // Those without an object are rare.
        op => op.object().is_none_or(|fid| fid == file),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ids::{Epoch, Lsn, SetId};

    #[test]
    fn answers_show_a_file_by_its_number_its_name_and_its_directory() {
        let fid = |n| Fid { set: SetId(1), epoch: Epoch(1), lsn: Lsn(n) };
        let name = |s: &str| Name::new(s.as_bytes()).unwrap_or_else(|_| unreachable!("a name"));
        let (dir, file, entry) = (fid(1), fid(2), name("a"));
        let shown = |op: &Op| shows(op, file, (dir, &entry));
        let lookup = |parent, s| Op::Lookup { parent, name: name(s) };
        let read_dir = |fid| Op::ReadDir { fid, cookie: 0, plus: true };
        let unlink = |parent, s| Op::Unlink { parent, name: name(s) };
        for op in [lookup(dir, "a"), read_dir(dir), Op::GetAttr { fid: file }, unlink(dir, "a")] {
            assert!(shown(&op), "{op:?}");
        }
        let others = [
            lookup(dir, "b"),
            lookup(fid(3), "a"),
            read_dir(fid(3)),
            Op::GetAttr { fid: dir },
            Op::Open { fid: fid(3) },
            Op::StatFs,
        ];
        for op in others {
            assert!(!shown(&op), "{op:?}");
        }
        assert!(shown(&Op::GetAttrs { fids: [fid(3), file].into() }));
        assert!(!shown(&Op::GetAttrs { fids: [fid(3), dir].into() }));
        assert!(shown(&Op::LinkIn { fid: file, home: SetId(1), parent: fid(3), name: name("b") }));
    }
}

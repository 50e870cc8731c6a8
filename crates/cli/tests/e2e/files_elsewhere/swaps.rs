//! Exchanges of directories with what has a name in a directory of another set (docs/design/0019).

use super::exchanges::{change_places_while_servers_are_killed, exchange};
use super::*;
use rustix::io::Errno;

/// What has a name.
#[derive(Clone, Copy, PartialEq, Debug)]
enum What {
    File,
    Empty,
    /// A directory with a file and a directory in it.
    Full,
}

/// Makes it on one set, and gives it a name in the directory of another one.
fn make(rig: &Rig, mount: &Mounted, what: What, (home, at): (usize, usize), name: &str) {
    let path = rig.at(mount, home, name);
    match what {
        What::File => fs::write(&path, name).unwrap(),
        What::Empty => fs::create_dir(&path).unwrap(),
        What::Full => {
            fs::create_dir_all(path.join("deep")).unwrap();
            fs::write(path.join("in"), name).unwrap();
            fs::write(path.join("deep/er"), name).unwrap();
        }
    }
    if home != at {
        fs::rename(path, rig.at(mount, at, name)).unwrap();
    }
}

fn is_there(what: What, path: &Path, name: &str) {
    let text = |path: &Path| fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    match what {
        What::File => assert_eq!(text(path), name),
        What::Empty => assert_eq!(files::names(path), Vec::<String>::new()),
        What::Full => {
            assert_eq!(files::names(path), ["deep", "in"]);
            assert_eq!((text(&path.join("in")).as_str(), text(&path.join("deep/er")).as_str()), (name, name));
        }
    }
}

fn remove(path: &Path) {
    if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
}

/// Each of the two may be of the set that has its name, of that which has the other one, or of a third set; one of them at least is
/// a directory.
#[test]
fn directories_change_places_wherever_they_live() {
    let rig = Rig::new(3, &THREE);
    let (one, two) = (rig.mount(), rig.mount());
    let kinds = [What::File, What::Empty, What::Full];
    let all = || kinds.into_iter().flat_map(|what| (0..3).map(move |home| (what, home)));
    let mut n = 0;
    for (a_kind, a_home) in all() {
        for (b_kind, b_home) in all().filter(|(b_kind, _)| [a_kind, *b_kind] != [What::File; 2]) {
            // The sets with the names differ, and each is of each part in turn.
            n += 1;
            let (from, to) = [(0, 1), (1, 2), (2, 0)][n % 3];
            let what = format!("{a_kind:?} of {a_home} at {from} and {b_kind:?} of {b_home} at {to}");
            println!("{what}");
            make(&rig, &one, a_kind, (a_home, from), "a");
            make(&rig, &one, b_kind, (b_home, to), "b");
            let (a, b) = (rig.at(&one, from, "a"), rig.at(&one, to, "b"));
            let inode = |path: &Path| fs::metadata(path).unwrap().ino();
            let before = (inode(&a), inode(&b));
            exchange(&a, &b).unwrap_or_else(|e| panic!("{what}: {e}"));
            for mount in [&one, &two] {
                let (a, b) = (rig.at(mount, from, "a"), rig.at(mount, to, "b"));
                is_there(b_kind, &a, "b");
                is_there(a_kind, &b, "a");
                assert_eq!((inode(&b), inode(&a)), before, "{what}");
            }
            exchange(&rig.at(&two, to, "b"), &rig.at(&two, from, "a")).unwrap();
            is_there(a_kind, &a, "a");
            is_there(b_kind, &b, "b");
            remove(&a);
            remove(&b);
        }
    }
    two.end();
    rig.leaves_copies_at_most(one);
}

/// What a directory holds lives on, and is used meanwhile; none comes beneath itself, whoever has moved what lies above.
#[test]
fn a_directory_that_is_exchanged_is_used_and_comes_nowhere_beneath_itself() {
    let rig = Rig::new(3, &THREE);
    let (one, two) = (rig.mount(), rig.mount());
    make(&rig, &one, What::Full, (0, 0), "a");
    make(&rig, &one, What::Full, (1, 1), "b");
    let a = |mount: &Mounted, set| rig.at(mount, set, "a");
    let mut open = fs::File::options().append(true).open(a(&one, 0).join("in")).unwrap();
    exchange(&a(&one, 0), &rig.at(&one, 1, "b")).unwrap();
    std::io::Write::write_all(&mut open, b" and more").unwrap();
    assert_eq!(fs::read_to_string(rig.at(&two, 1, "b").join("in")).unwrap(), "a and more");
    fs::write(a(&two, 0).join("new"), "new").unwrap();
    assert_eq!(files::names(&a(&one, 0)), ["deep", "in", "new"]);
    // Beneath it lies a directory of another set by now, with a name to exchange.
    fs::rename(rig.at(&one, 1, "b"), a(&one, 0).join("deep/b")).unwrap();
    fs::write(a(&one, 0).join("deep/b/x"), "x").unwrap();
    assert_eq!(exchange(&a(&two, 0), &a(&two, 0).join("deep/b/x")), Err(Errno::INVAL));
    assert_eq!(exchange(&a(&two, 0).join("deep/b/deep"), &a(&two, 0)), Err(Errno::INVAL));
    // From a directory upwards it is none.
    make(&rig, &one, What::Empty, (2, 2), "c");
    exchange(&a(&one, 0).join("deep/b"), &rig.at(&one, 2, "c")).unwrap();
    assert_eq!(files::names(&rig.at(&two, 2, "c")), ["deep", "in", "x"]);
    assert_eq!(files::names(&a(&two, 0).join("deep/b")), Vec::<String>::new());
    drop(open);
    two.end();
    rig.leaves_copies_at_most(one);
}

/// Nobody sees a name that is missing, or one directory under both names, while they change places and servers are killed.
#[test]
fn directories_change_places_while_servers_are_killed() {
    let make = |rig: &Rig, mount: &Mounted, at: (usize, usize), name: &str| {
        make(rig, mount, What::Full, at, name);
    };
    let (rig, seen) = change_places_while_servers_are_killed(make, |path| {
        fs::read_to_string(path.join("deep/er")).unwrap()
    });
    rig.leaves_copies_at_most(seen);
}

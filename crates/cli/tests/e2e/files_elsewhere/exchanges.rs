//! Exchanges of names in directories of two sets (docs/design/0019).

use super::*;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

pub(crate) fn exchange(one: &Path, two: &Path) -> Result<(), Errno> {
    renameat_with(CWD, one, CWD, two, RenameFlags::EXCHANGE)
}

/// Makes a file on one set, and gives it a name in the directory of another one.
fn make(rig: &Rig, mount: &Mounted, (home, at): (usize, usize), name: &str) {
    fs::write(rig.at(mount, home, name), name).unwrap();
    if home != at {
        fs::rename(rig.at(mount, home, name), rig.at(mount, at, name)).unwrap();
    }
}

/// Each of the two files may be of the set that has its name, of that which has the other one, or of a third set.
#[test]
fn names_of_two_sets_change_places_wherever_their_files_live() {
    let rig = Rig::new(3, &THREE);
    let (one, two) = (rig.mount(), rig.mount());
    let homes = || (0..3).flat_map(|a| (0..3).map(move |b| (a, b)));
    for (from, to) in homes().filter(|(from, to)| from != to) {
        for (a_home, b_home) in homes() {
            let what = format!("{from} and {to}, of files of {a_home} and {b_home}");
            println!("names of {what}");
            make(&rig, &one, (a_home, from), "a");
            make(&rig, &one, (b_home, to), "b");
            // Another name of one of them stays as it is.
            fs::hard_link(rig.at(&one, to, "b"), rig.at(&one, b_home, "also")).unwrap();
            let (a, b) = (rig.at(&one, from, "a"), rig.at(&one, to, "b"));
            let inode = |path: &Path| fs::metadata(path).unwrap().ino();
            let before = (inode(&a), inode(&b));
            exchange(&a, &b).unwrap_or_else(|e| panic!("{what}: {e}"));
            for mount in [&one, &two] {
                let at = |set, name: &str| rig.at(mount, set, name);
                is_one_file(b"b", &[at(from, "a"), at(b_home, "also")], 2);
                is_one_file(b"a", &[at(to, "b")], 1);
                assert_eq!((inode(&at(to, "b")), inode(&at(from, "a"))), before, "{what}");
            }
            assert_eq!(rig.dirs.names(&two, from).iter().filter(|name| *name == "a").count(), 1, "{what}");
            exchange(&rig.at(&two, to, "b"), &rig.at(&two, from, "a")).unwrap();
            is_one_file(b"a", std::slice::from_ref(&a), 1);
            is_one_file(b"b", &[b.clone(), rig.at(&one, b_home, "also")], 2);
            for path in [&a, &b, &rig.at(&one, b_home, "also")] {
                fs::remove_file(path).unwrap();
            }
        }
    }
    two.end();
    rig.leaves_nothing(one);
}

/// Files that are open stay so, and links and what is empty go like files; what cannot be exchanged stays as it is.
#[test]
fn what_is_exchanged_stays_open_and_keeps_its_kind() {
    let rig = Rig::new(3, &THREE);
    let (one, two) = (rig.mount(), rig.mount());
    let (a, b) = (rig.at(&one, 0, "a"), rig.at(&one, 1, "b"));
    make(&rig, &one, (0, 0), "a");
    make(&rig, &one, (1, 1), "b");
    let mut open = [(&one, 0, "a"), (&two, 1, "b")].map(|(m, set, name)| {
        fs::File::options().read(true).append(true).open(rig.at(m, set, name)).unwrap()
    });
    exchange(&a, &b).unwrap();
    open.iter_mut().for_each(|file| file.write_all(b" and more").unwrap());
    let read = |file: &mut fs::File| {
        let mut text = String::new();
        file.rewind().and_then(|()| file.read_to_string(&mut text)).map(|_| text)
    };
    assert_eq!(open.each_mut().map(|file| read(file).unwrap()), ["a and more", "b and more"]);
    is_one_file(b"a and more", &[b.clone(), rig.at(&two, 1, "b")], 1);
    is_one_file(b"b and more", &[a.clone(), rig.at(&two, 0, "a")], 1);
    drop(open);
    // A symbolic link of each set.
    for (set, name) in [(0, "one"), (2, "three")] {
        symlink(format!("to {name}"), rig.at(&one, set, name)).unwrap();
    }
    let link = |set, name| fs::read_link(rig.at(&two, set, name)).unwrap();
    exchange(&rig.at(&one, 0, "one"), &rig.at(&one, 2, "three")).unwrap();
    assert_eq!((link(0, "one"), link(2, "three")), (PathBuf::from("to three"), PathBuf::from("to one")));
    exchange(&rig.at(&one, 0, "one"), &b).unwrap();
    is_one_file(b"a and more", &[rig.at(&two, 0, "one")], 1);
    assert_eq!(link(1, "b"), Path::new("to three"));
    // Two names of one file, and what is not there.
    fs::hard_link(rig.at(&one, 0, "one"), rig.at(&one, 1, "same")).unwrap();
    exchange(&rig.at(&one, 0, "one"), &rig.at(&one, 1, "same")).unwrap();
    is_one_file(b"a and more", &[rig.at(&two, 0, "one"), rig.at(&two, 1, "same")], 2);
    assert_eq!(exchange(&a, &rig.at(&one, 1, "none")), Err(Errno::NOENT));
    assert_eq!(exchange(&rig.at(&one, 0, "none"), &b), Err(Errno::NOENT));
    is_one_file(b"b and more", &[rig.at(&two, 0, "a")], 1);
    two.end();
    rig.leaves_nothing(one);
}

/// Nobody sees a name that is missing, or one file under both names, while they change places and servers are killed.
#[test]
fn names_change_places_while_servers_are_killed() {
    let text = |path: &Path| fs::read_to_string(path).unwrap();
    let (rig, seen) = change_places_while_servers_are_killed(make, text);
    rig.leaves_nothing(seen);
}

/// What `make` makes with a name in it, which `text` reads. Answers the volume, with all that is there, and a mount.
pub(crate) fn change_places_while_servers_are_killed(
    make: fn(&Rig, &Mounted, (usize, usize), &str),
    text: fn(&Path) -> String,
) -> (Rig, Mounted) {
    let mut rig = Rig::new(3, &THREE);
    let mounts: Vec<Mounted> = (0..3).map(|_| rig.mount()).collect();
    let pairs = [(0, 1), (1, 2), (2, 0)];
    for (n, (a, b)) in pairs.into_iter().enumerate() {
        make(&rig, &mounts[0], (a, a), &format!("a{n}"));
        make(&rig, &mounts[0], (a, b), &format!("b{n}"));
    }
    let (done, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (dirs, pool) = (&rig.dirs, &mut rig.pool);
    let exchanged: Vec<usize> = std::thread::scope(|scope| {
        let (done, over) = (&done, &over);
        let works = pairs.into_iter().enumerate().map(|(n, (a, b))| {
            let mount = &mounts[n];
            scope.spawn(move || {
                let (one, two) = (dirs.at(mount, a, &format!("a{n}")), dirs.at(mount, b, &format!("b{n}")));
                let mut times = 0;
                while !over.load(Ordering::Relaxed) {
                    exchange(&one, &two).unwrap_or_else(|e| panic!("pair {n}, time {times}: {e}"));
                    times += 1;
                    done.fetch_add(1, Ordering::Relaxed);
                    let wanted = if times % 2 == 1 { ("b", "a") } else { ("a", "b") };
                    let wanted = (format!("{}{n}", wanted.0), format!("{}{n}", wanted.1));
                    assert_eq!((text(&one), text(&two)), wanted, "pair {n}, time {times}");
                }
                times
            })
        });
        let works: Vec<_> = works.collect();
        let goes_on = |what: &str| {
            let before = done.load(Ordering::Relaxed);
            eventually(what, || (done.load(Ordering::Relaxed) > before + 6).then_some(()));
        };
        for server in [1, 0, 2] {
            goes_on("names change places");
            pool.kill(server);
            goes_on("names change places without a server");
            pool.start(server);
            killed::in_sync(pool);
        }
        goes_on("names change places");
        over.store(true, Ordering::Relaxed);
        works.into_iter().map(|work| work.join().unwrap()).collect()
    });
    println!("{exchanged:?} exchanges");
    let seen = rig.mount();
    for (n, (a, b)) in pairs.into_iter().enumerate() {
        let (mut one, mut two) = (format!("a{n}"), format!("b{n}"));
        let (at_one, at_two) = (rig.at(&seen, a, &one), rig.at(&seen, b, &two));
        if exchanged[n] % 2 == 1 {
            std::mem::swap(&mut one, &mut two);
        }
        assert_eq!((text(&at_one), text(&at_two)), (one, two), "pair {n}");
        for set in 0..3 {
            let names = rig.dirs.names(&seen, set);
            let once = |name: &String| names.iter().filter(|other| *other == name).count() == 1;
            assert!(names.iter().all(once), "{names:?}");
        }
    }
    mounts.into_iter().for_each(Mounted::end);
    (rig, seen)
}

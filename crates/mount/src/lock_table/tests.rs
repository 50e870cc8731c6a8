use super::*;

const F: Place = (7, Family::Ranges);
const W: Place = (7, Family::Whole);
const END: u64 = i64::MAX as u64;

fn ask(owner: u64, start: u64, end: u64, exclusive: bool) -> Ask {
    Ask { owner, range: (start, end), exclusive, pid: owner as u32 + 100, handle: owner * 10 }
}

/// What one owner has, as text: `r` shared, `w` exclusive.
fn shown(t: &LockTable, place: Place, owner: u64) -> String {
    let ranges = t.files.get(&place).and_then(|f| f.get(&owner)).map(|o| o.ranges.values());
    let one = |r: &Range| {
        let end = if r.end == END { "..".to_owned() } else { format!("-{}", r.end) };
        format!("{}{}{end}", if r.exclusive { "w" } else { "r" }, r.start)
    };
    ranges.into_iter().flatten().map(one).collect::<Vec<_>>().join(" ")
}

/// Steps of one owner, and what it has afterwards.
#[test]
fn ranges_are_merged_and_split() {
    type Step = (char, u64, u64);
    let table: &[(&[Step], &str)] = &[
        (&[('r', 0, 9), ('r', 10, 19)], "r0-19"),
        (&[('r', 10, 19), ('r', 0, 9)], "r0-19"),
        (&[('r', 0, 9), ('r', 20, 29), ('r', 10, 19)], "r0-29"),
        (&[('r', 0, 9), ('w', 10, 19)], "r0-9 w10-19"),
        (&[('r', 0, 99), ('w', 10, 19)], "r0-9 w10-19 r20-99"),
        (&[('w', 0, 99), ('w', 10, 19)], "w0-99"),
        (&[('w', 0, 99), ('u', 10, 19)], "w0-9 w20-99"),
        (&[('w', 0, 99), ('u', 0, 0), ('u', 99, 99)], "w1-98"),
        (&[('w', 10, 19), ('r', 15, 30), ('w', 31, END)], "w10-14 r15-30 w31.."),
        (&[('w', 10, 19), ('w', 30, 39), ('w', 50, 59), ('r', 15, 55)], "w10-14 r15-55 w56-59"),
        (&[('w', 10, 19), ('w', 30, 39), ('w', 5, 45)], "w5-45"),
        (&[('w', 0, END), ('u', 5, END)], "w0-4"),
        (&[('w', 0, END), ('u', 0, END)], ""),
        (&[('u', 3, 4)], ""),
    ];
    for (steps, expect) in table {
        let mut t = LockTable::default();
        for (what, start, end) in *steps {
            match what {
                'u' => t.unset(F, 1, (*start, *end)).unwrap(),
                kind => t.set(F, &ask(1, *start, *end, *kind == 'w')).unwrap(),
            }
        }
        assert_eq!(shown(&t, F, 1), *expect, "{steps:?}");
        let count = t.files.values().flat_map(BTreeMap::values).map(|o| o.ranges.len()).sum();
        assert_eq!((t.ranges, t.files()), (count, usize::from(count > 0)), "{steps:?}");
    }
}

#[test]
fn what_is_in_the_way_of_what() {
    let mut t = LockTable::default();
    t.set(F, &ask(1, 10, 19, false)).unwrap();
    t.set(F, &ask(2, 15, 29, false)).unwrap();
    t.set(F, &ask(3, 40, 49, true)).unwrap();
    for (owner, start, end, exclusive, free) in [
        (9, 0, 9, true, true),
        (9, 0, 10, true, false),
        (9, 0, 39, false, true),
        (9, 29, 29, true, false),
        (9, 30, 39, true, true),
        (9, 49, END, false, false),
        (1, 10, 14, true, true),
        (1, 10, 19, true, false),
        (3, 40, END, false, true),
    ] {
        let asked = ask(owner, start, end, exclusive);
        assert_eq!(t.test(F, &asked).is_none(), free, "{asked:?}");
    }
    assert_eq!(t.set(F, &ask(1, 10, 19, true)), Err(Refused::Conflict));
    assert_eq!(shown(&t, F, 1), "r10-19", "it keeps what it had");
    let found = t.test(F, &ask(9, 45, 60, false)).unwrap();
    assert_eq!(found, Range { start: 40, end: 49, exclusive: true, pid: 103 });
    assert!(t.test(W, &ask(9, 0, END, true)).is_none(), "the families do not see each other");
    assert!(t.test((8, Family::Ranges), &ask(9, 0, END, true)).is_none(), "another file");
}

#[test]
fn locks_of_whole_files_are_dropped_before_they_change() {
    let mut t = LockTable::default();
    t.set(W, &ask(1, 0, END, false)).unwrap();
    t.set(W, &ask(2, 0, END, false)).unwrap();
    t.set(W, &ask(1, 0, END, false)).unwrap();
    assert_eq!(t.set(W, &ask(1, 0, END, true)), Err(Refused::Conflict));
    assert_eq!((shown(&t, W, 1), shown(&t, W, 2)), (String::new(), "r0..".to_owned()));
    t.set(W, &ask(2, 0, END, true)).unwrap();
    assert_eq!(t.set(W, &ask(1, 0, END, false)), Err(Refused::Conflict));
    t.unset(W, 2, (0, END)).unwrap();
    assert_eq!(t.files(), 0);
}

#[test]
fn a_close_takes_all_of_an_owner_and_a_release_all_through_the_open_file() {
    let mut t = LockTable::default();
    t.set(F, &ask(1, 0, 9, true)).unwrap();
    t.set(F, &Ask { handle: 11, ..ask(1, 20, 29, true) }).unwrap();
    t.set(W, &ask(1, 0, END, true)).unwrap();
    t.set(F, &ask(2, 40, 49, true)).unwrap();
    assert!(t.has_handle(11) && t.has_handle(10) && !t.has_handle(12));
    assert_eq!(t.handles(), [10, 11, 20].into());
    assert!(!t.release(7, 12) && !t.release(8, 11));
    assert!(t.release(7, 11));
    assert_eq!((shown(&t, F, 1), shown(&t, W, 1)), (String::new(), "w0..".to_owned()));
    assert!(t.drop_owner(F, 2) && !t.drop_owner(F, 2));
    assert!(t.release(7, 10));
    assert_eq!((t.files(), t.ranges), (0, 0));
    t.set(F, &ask(1, 0, 9, true)).unwrap();
    t.clear();
    assert_eq!((t.files(), t.ranges), (0, 0));
}

#[test]
fn nobody_waits_for_somebody_who_waits_for_him() {
    let mut t = LockTable::default();
    for owner in 1..=3 {
        t.set(F, &ask(owner, owner * 10, owner * 10, true)).unwrap();
    }
    let one = t.begin_wait(F, &ask(1, 20, 20, true)).unwrap();
    let two = t.begin_wait(F, &ask(2, 30, 30, false)).unwrap();
    assert_eq!(
        t.begin_wait(F, &ask(3, 5, 15, false)),
        None,
        "3 waits for 1, who waits for 2, who waits for 3"
    );
    t.begin_wait(F, &ask(4, 10, 10, false)).unwrap();
    assert_eq!(t.waits.len(), 3);
    t.end_wait(two);
    let three = t.begin_wait(F, &ask(3, 5, 15, false)).unwrap();
    t.end_wait(one);
    t.end_wait(three);
    assert_eq!(t.waits.len(), 1);
}

#[test]
fn there_is_a_limit() {
    let mut t = LockTable { ranges: RANGES_MAX - 1, ..LockTable::default() };
    assert_eq!(t.set(F, &ask(1, 0, 9, true)), Err(Refused::TooMany));
    t.ranges = 0;
    t.set(F, &ask(1, 0, 9, true)).unwrap();
    t.ranges = RANGES_MAX;
    assert_eq!(t.unset(F, 1, (3, 4)), Err(Refused::TooMany), "it would be two");
    t.unset(F, 1, (0, END)).unwrap();
    assert_eq!(t.files(), 0);
}

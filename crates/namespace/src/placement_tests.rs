use super::*;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

const GB: u64 = 1 << 30;

fn room(set: u32, available: u64, total: u64) -> SetRoom {
    SetRoom::new(SetId(set), available * GB, total * GB)
}

fn parent(depth: u32, subdirectories: u32) -> Parent {
    Parent { set: SetId(1), depth, subdirectories }
}

/// How many of `count` directories of the root go to each set.
fn share(sets: &[SetRoom], count: u64) -> BTreeMap<u32, u64> {
    let mut share = BTreeMap::new();
    for turn in 1..=count {
        let set = choose(&parent(0, 0), sets, turn).unwrap_or(SetId(0));
        *share.entry(set.0).or_default() += 1;
    }
    share
}

#[test]
fn children_of_the_root_are_spread_in_proportion_to_free_room() {
    let equal: Vec<SetRoom> = (1..=4).map(|set| room(set, 500, 1000)).collect();
    for count in [8, 40, 400] {
        let got = share(&equal, count);
        let (least, most) = (got.values().min().copied(), got.values().max().copied());
        assert!(got.len() == 4 && most <= least.map(|n| n + 2 + count / 100), "{count}: {got:?}");
    }
    let small = |set| SetRoom { available: 60 << 20, total: 100 << 20, ..room(set, 0, 0) };
    assert_eq!(share(&[small(1), small(2)], 100).len(), 2, "sets of some megabytes");
    let got = share(&[room(1, 100, 100), room(2, 300, 300)], 400);
    assert!(
        got.get(&1).is_some_and(|n| (95..=105).contains(n)),
        "a set of three times the size gets three times as many: {got:?}"
    );
}

/// Sets of different size that are filled by what is placed on them are about equally full at any time.
#[test]
fn sets_of_different_size_fill_in_proportion() {
    let mut sets = [room(1, 1000, 1000), room(2, 250, 250), room(3, 500, 500)];
    for turn in 0..1600 {
        let set = choose(&parent(0, 0), &sets, turn).unwrap();
        let at = sets.iter_mut().find(|s| s.set == set).unwrap();
        at.available -= GB;
        if turn > 100 {
            let full: Vec<u64> = sets.iter().map(SetRoom::percent_full).collect();
            let (least, most) = (full.iter().min().unwrap(), full.iter().max().unwrap());
            assert!(most - least <= 3, "after {turn}: {full:?}");
        }
    }
}

#[test]
fn a_directory_keeps_the_more_subdirectories_the_deeper_it_is() {
    let sets = [room(1, 500, 1000), room(2, 500, 1000)];
    let spreads = |depth, count| choose(&parent(depth, count), &sets, 1).is_some();
    for (depth, kept) in [(0, 0), (1, 8), (2, 64), (3, 512), (4, 4096)] {
        assert!(kept == 0 || !spreads(depth, kept - 1), "{depth}");
        assert!(spreads(depth, kept), "{depth}");
    }
    assert!(!spreads(40, u32::MAX - 1), "no overflow");
    let spread = (0..4000).filter(|count| spreads(1, *count)).count();
    assert_eq!(spread, 64 + (4000 - 8) / 1024, "few of thousands in one directory");
    let many: Vec<SetRoom> = (0..40).map(|set| room(set, 500, 1000)).collect();
    let spread = (0..4000).filter(|count| choose(&parent(1, *count), &many, 1).is_some()).count();
    assert_eq!(spread, 8 * 40 + (4000 - 8) / 1024, "eight for each set");
    assert_eq!((0..4000).filter(|count| spreads(0, *count)).count(), 4000);
    let got: Vec<Option<SetId>> = (0..100).map(|turn| choose(&parent(1, 8), &sets, turn)).collect();
    let own = got.iter().filter(|set| **set == Some(SetId(1))).count();
    assert!((45..=55).contains(&own), "the own set is one of them: {own}");
}

#[test]
fn deep_directories_leave_a_set_that_is_clearly_fuller() {
    let deep = |own: u64, other: u64| choose(&parent(3, 0), &[room(1, own, 1000), room(2, other, 1000)], 0);
    assert_eq!(deep(500, 600), None);
    assert!(deep(100, 900).is_some());
    assert_eq!(deep(900, 100), None);
}

#[test]
fn full_sets_and_those_that_take_no_changes_get_nothing() {
    let mut sets = [room(1, 0, 1000), room(2, 900, 1000)];
    for turn in 0..50 {
        assert_eq!(choose(&parent(0, 0), &sets, turn), Some(SetId(2)));
        assert_eq!(choose(&parent(5, 0), &sets, turn), Some(SetId(2)), "the parent's set is full");
    }
    sets[0].available = 100 * GB;
    sets[1].writable = false;
    for turn in 0..50 {
        assert_eq!(choose(&parent(0, 0), &sets, turn), Some(SetId(1)));
    }
    sets[0].available = 0;
    assert_eq!(choose(&parent(0, 0), &sets, 0), None, "nobody has room: the parent's set refuses it");
}

#[test]
fn promises_count_until_the_figures_are_new() {
    let mut sets = [room(1, 100, 100), room(2, 100, 100)];
    sets[0].promised = 10_000;
    let got = share(&sets, 300);
    assert!(
        got.get(&1).is_some_and(|n| (95..=105).contains(n)),
        "half of the room at most is promised: {got:?}"
    );
}

#[test]
fn files_leave_a_set_that_is_clearly_fuller() {
    const K: u64 = 1000;
    let set = |set, available: u64| SetRoom::new(SetId(set), available * K, 1000 * K);
    let own = set(1, 500);
    let to = |others: &[SetRoom]| emptier(&own, &[&[own], others].concat());
    assert_eq!(to(&[set(2, 530), set(3, 532)]), Some((SetId(3), 8 * K)), "a quarter of 32");
    assert_eq!(to(&[set(2, 529)]), None, "that is alike");
    assert_eq!(
        to(&[SetRoom { writable: false, ..set(2, 900) }, set(3, 532)]).map(|(s, _)| s),
        Some(SetId(3))
    );
    assert_eq!(to(&[SetRoom { available: 300 * K, total: 400 * K, ..own }]), None, "it is this one");
    assert_eq!(to(&[]), None);
}

#[test]
fn a_plan_ends_when_no_set_is_clearly_fuller() {
    let rooms = [room(1, 100, 1000), room(2, 900, 1000), room(3, 500, 1000)];
    let plan = plan(&rooms);
    let moved = |from, to| -> u64 {
        plan.iter().filter(|p| (p.from, p.to) == (SetId(from), SetId(to))).map(|p| p.bytes / GB).sum()
    };
    let left = 900 - moved(1, 2) - moved(1, 3);
    assert!((500..540).contains(&left), "{plan:?}");
    assert!(plan.iter().all(|p| p.to != SetId(1)), "{plan:?}");
    assert_eq!(super::plan(&[room(1, 500, 1000), room(2, 520, 1000)]), [], "they are alike");
    assert_eq!(super::plan(&[room(1, 0, 1)]), []);
    let full = SetRoom { writable: false, ..room(2, 900, 1000) };
    assert_eq!(super::plan(&[room(1, 100, 1000), full]), [], "nothing can go there");
}

#[test]
fn what_leaves_an_emptied_set_goes_where_most_room_is() {
    let sets = [
        room(1, 900, 1000),
        room(2, 500, 1000),
        room(3, 600, 1000),
        SetRoom { writable: false, ..room(4, 800, 1000) },
    ];
    assert_eq!(roomiest(SetId(1), &sets), Some((SetId(3), 150 * GB)));
    assert_eq!(roomiest(SetId(1), &sets[..1]), None);
}

#[test]
fn large_files_take_turns_in_proportion_to_room() {
    let count = |sets: &[SetRoom], own, files: usize| {
        let mut turns = Turns::default();
        let mut count = BTreeMap::<u32, usize>::new();
        for _ in 0..files {
            *count.entry(turns.next(SetId(own), sets).unwrap().0).or_default() += 1;
        }
        count
    };
    let alike: Vec<SetRoom> = (1..=40).map(|set| room(set, 500, 1000)).collect();
    let once = count(&alike, 7, 40);
    assert!(once.len() == 40 && once.values().all(|n| *n == 1), "{once:?}");
    let sets = [room(1, 300, 1000), room(2, 100, 1000), room(3, 200, 1000)];
    assert_eq!(count(&sets, 1, 60), [(1, 30), (2, 10), (3, 20)].into());
    let closed = SetRoom { writable: false, ..room(2, 900, 1000) };
    assert_eq!(count(&[room(1, 300, 1000), closed], 2, 5), [(1, 5)].into());
    assert_eq!(Turns::default().next(SetId(7), &alike), Some(SetId(7)), "the own set comes first");
    assert_eq!(Turns::default().next(SetId(1), &[]), None);
}

/// A set that is added, or goes, owes nothing and is owed nothing for what was before.
#[test]
fn turns_go_on_when_sets_come_and_go() {
    let mut turns = Turns::default();
    let (one, two) = (room(1, 500, 1000), room(2, 500, 1000));
    for _ in 0..100 {
        turns.next(SetId(1), &[one]);
    }
    let next: Vec<u32> = (0..4).map(|_| turns.next(SetId(1), &[one, two]).unwrap().0).collect();
    assert_eq!(next, [1, 2, 1, 2]);
}

/// Sets of the same room: a busy one gets fewer files, but some; how busy all are does not matter.
#[test]
fn a_busy_set_gets_fewer_files() {
    let many = |busy: [u8; 3]| {
        let sets: Vec<SetRoom> =
            (1..=3).zip(busy).map(|(set, busy)| SetRoom { busy, ..room(set, 500, 1000) }).collect();
        let mut turns = Turns::default();
        let got: Vec<u32> = (0..300).filter_map(|_| turns.next(SetId(1), &sets)).map(|set| set.0).collect();
        [1, 2, 3].map(|set| got.iter().filter(|s| **s == set).count())
    };
    assert_eq!(many([0, 0, 0]), [100, 100, 100]);
    assert_eq!(many([90, 75, 80]), [100, 100, 100], "none is clearly busier");
    assert_eq!(many([60, 0, 0]), [69, 116, 115]);
    assert_eq!(many([100, 0, 0]), [34, 133, 133]);
    assert_eq!(many([255, 0, 255]), [50, 200, 50], "what a server says that is not so");
    let busy = SetRoom { busy: 100, ..room(1, 500, 1000) };
    let chosen = (0..300).filter_map(|turn| {
        choose(&Parent { set: SetId(2), depth: 0, subdirectories: 0 }, &[busy, room(2, 500, 1000)], turn)
    });
    assert_eq!(chosen.filter(|set| *set == SetId(1)).count(), 61, "directories likewise");
}

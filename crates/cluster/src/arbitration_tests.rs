use super::*;
use crate::{State, testing};
use ids::SetId;

const SILENT: Evidence = Evidence::Silent;
const DEAD: Evidence = Evidence::Refused { millis: 10_000 };
const LATE: Evidence = Evidence::Refused { millis: 9_999 };

fn holding(last: u64) -> Holding {
    Holding { epoch: Epoch(1), last: Lsn(last), durable: Lsn(last / 2) }
}

fn lost(last: u64) -> Evidence {
    Evidence::LostMemory(holding(last))
}

fn uncertain(last: u64) -> Evidence {
    Evidence::Uncertain(holding(last))
}

fn whole(last: u64) -> Evidence {
    Evidence::Whole(holding(last))
}

/// A set of three bricks, 1 to 3, all in sync, led by that one.
fn set(arbiter: u32, primary: Option<u32>) -> Set {
    let mut state = testing::pool(3);
    testing::create(&mut state, "v", 3, arbiter, 3);
    let mut set = state.sets[&SetId(1)].clone();
    set.view.primary = primary.map(BrickId);
    set
}

/// What each of the three says to do, in short: `wait 2 3`, `stand`, or the view: `1 of 1 3`, `1 of 1 lost`.
fn verdicts(set: &Set, evidence: [Evidence; 3]) -> [String; 3] {
    let evidence: BTreeMap<BrickId, Evidence> = (1..=3).map(BrickId).zip(evidence).collect();
    let list = |ids: &mut dyn Iterator<Item = BrickId>| ids.map(|b| format!(" {b}")).collect::<String>();
    [1, 2, 3].map(|me| match decide(set, BrickId(me), &evidence) {
        Verdict::Wait(bricks) => format!("wait{}", list(&mut bricks.into_iter())),
        Verdict::Stand => "stand".to_owned(),
        Verdict::Propose(change) => {
            let primary = change.primary.unwrap();
            let in_sync = list(&mut change.in_sync.iter().copied());
            format!("{primary} of{in_sync}{}", if change.lost { " lost" } else { "" })
        }
    })
}

#[test]
fn who_goes_on() {
    let table: [(&str, [Evidence; 3], [&str; 3]); 16] = [
        // Somebody kept everything: the others leave, and follow it.
        ("one came through", [lost(9), whole(5), lost(9)], ["2 of 2 3", "wait", "2 of 1 2"]),
        ("the primary came through", [whole(5), lost(5), SILENT], ["wait", "1 of 1 3", "wait"]),
        ("two came through", [lost(9), whole(5), whole(6)], ["3 of 2 3", "wait", "wait"]),
        ("equal ones", [lost(9), whole(6), whole(6)], ["2 of 2 3", "wait", "wait"]),
        ("a silent primary keeps the lead", [SILENT, lost(5), whole(5)], ["wait", "1 of 1 3", "wait"]),
        ("a dead primary does not", [DEAD, lost(5), whole(5)], ["3 of 2 3", "3 of 1 3", "wait"]),
        // Nobody did: the one with the most goes on, when it is known who that is.
        ("all are there", [lost(5), lost(7), lost(6)], ["wait 2", "2 of 2 lost", "wait 2"]),
        ("equal ones go by number", [lost(5), lost(5), lost(5)], ["1 of 1 lost", "wait 1", "wait 1"]),
        ("a silent one may have everything", [lost(5), SILENT, lost(6)], ["wait 2", "wait", "wait 2"]),
        ("a dead disk gets nothing", [lost(5), DEAD, lost(4)], ["1 of 1 lost", "wait 1 3", "wait 1"]),
        ("a late disk is waited for", [lost(5), LATE, lost(4)], ["wait 2", "wait 1 3", "wait 2"]),
        ("only one can be opened", [DEAD, DEAD, lost(4)], ["wait 2 3", "wait 1 3", "3 of 3 lost"]),
        ("none can be opened", [DEAD, DEAD, DEAD], ["wait 2 3", "wait 1 3", "wait 1 2"]),
        ("dead and silent", [DEAD, SILENT, lost(4)], ["wait 2 3", "wait", "wait 2"]),
        // Memory counts for more than a longer journal.
        ("one is uncertain", [lost(9), uncertain(5), lost(9)], ["wait 2", "2 of 2", "wait 2"]),
        ("uncertain follows whole", [uncertain(9), whole(5), DEAD], ["2 of 2 3", "wait", "2 of 1 2"]),
    ];
    for (name, evidence, expected) in table {
        assert_eq!(verdicts(&set(0, Some(1)), evidence), expected, "{name}");
    }
}

#[test]
fn a_set_that_nobody_leads_is_led_by_who_is_whole() {
    let set = set(0, None);
    assert_eq!(verdicts(&set, [lost(9), whole(5), SILENT])[0], "2 of 2 3");
    assert_eq!(verdicts(&set, [lost(9), lost(8), DEAD])[0], "1 of 1 lost");
}

#[test]
fn an_arbiter_neither_leads_nor_is_waited_for() {
    let set = set(1, Some(1));
    assert_eq!(verdicts(&set, [lost(5), lost(4), whole(9)]), ["1 of 1 lost", "wait 1", "wait"]);
    assert_eq!(verdicts(&set, [lost(5), lost(4), SILENT]), ["1 of 1 lost", "wait 1", "wait"]);
    assert_eq!(verdicts(&set, [lost(5), whole(4), lost(9)]), ["2 of 2 3", "wait", "2 of 1 2"]);
    assert_eq!(verdicts(&set, [DEAD, SILENT, lost(9)]), ["wait 2", "wait", "wait 2"]);
}

#[test]
fn who_is_alone_goes_on_in_an_epoch_of_its_own_if_it_lost_changes() {
    let mut set = set(0, Some(2));
    set.view.in_sync = BTreeSet::from([BrickId(2)]);
    assert_eq!(verdicts(&set, [whole(9), lost(5), whole(9)])[1], "2 of 2 lost");
    assert_eq!(verdicts(&set, [whole(9), uncertain(5), whole(9)])[1], "stand");
}

/// All evidence, all views: what is proposed is accepted, and leaves the set a brick in sync that is open; nothing that
/// was acknowledged is given up while a brick may still have it; if all is known and a brick can be opened, some brick
/// acts; and of those that act for the same view without a whole brick there is one.
#[test]
fn no_decision_ends_a_set() {
    let kinds = [SILENT, DEAD, LATE, lost(3), lost(4), uncertain(3), whole(3), whole(4)];
    let ids = [BrickId(1), BrickId(2), BrickId(3)];
    for (arbiter, primary) in [(0, Some(1)), (0, Some(2)), (0, None), (1, Some(1)), (1, None)] {
        for n in 0..kinds.len().pow(3) {
            let pick = |i: u32| kinds[n / kinds.len().pow(i) % kinds.len()];
            let evidence = [pick(0), pick(1), pick(2)];
            let mut state = testing::pool(3);
            testing::create(&mut state, "v", 3, arbiter, 3);
            state.sets.get_mut(&SetId(1)).unwrap().view.primary = primary.map(BrickId);
            check_one(&state, arbiter, &ids, evidence);
        }
    }
}

fn check_one(state: &State, arbiter: u32, ids: &[BrickId; 3], evidence: [Evidence; 3]) {
    let set = &state.sets[&SetId(1)];
    let known: BTreeMap<BrickId, Evidence> = ids.iter().copied().zip(evidence).collect();
    let data = &evidence[..if arbiter == 1 { 2 } else { 3 }];
    let open =
        |e: &Evidence| matches!(e, Evidence::LostMemory(_) | Evidence::Uncertain(_) | Evidence::Whole(_));
    let is_whole = |e: &Evidence| matches!(e, Evidence::Whole(_));
    let mut alone = 0;
    for me in ids {
        let Verdict::Propose(change) = decide(set, *me, &known) else { continue };
        let mut next = state.clone();
        next.apply(&crate::Command::ChangeView(change.clone())).unwrap();
        let stays = |wanted: &dyn Fn(&Evidence) -> bool| {
            ids.iter().zip(data).any(|(b, e)| change.in_sync.contains(b) && wanted(e))
        };
        assert!(stays(&open), "nobody who is open stays: {evidence:?} {change:?}");
        if data.iter().any(is_whole) {
            assert!(stays(&is_whole) && !change.lost, "what was acknowledged is given up: {evidence:?}");
            assert!(!is_whole(&known[me]), "who is whole stays: {evidence:?}");
        } else {
            assert!(data.iter().all(|e| *e != SILENT && *e != LATE), "too early: {evidence:?}");
            alone += 1;
        }
        let old = set.view.primary.filter(|p| change.primary != Some(*p));
        assert!(
            old.is_none_or(|p| !matches!(known[&p], Evidence::Silent | Evidence::Whole(_))),
            "the lead was taken from a brick that may serve: {evidence:?} {change:?}"
        );
    }
    let known_all = data.iter().all(|e| *e != SILENT && *e != LATE);
    if known_all && data.iter().any(open) && !data.iter().any(is_whole) {
        assert_eq!(alone, 1, "one of them goes on: {evidence:?}");
    }
}

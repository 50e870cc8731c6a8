//! The rounds of the arbitration: what is asked and proposed, and when it ends.
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

use crate::pool::{ME, MINE, OTHER, SET, THEIRS, pool, view};
use cluster::arbitration::{Evidence, Holding};
use cluster::{Command, ViewChange};
use ids::{BrickId, Epoch, Lsn};
use server_core::arbitration_run::{Proposed, Source, Step};
use server_core::{ArbitrationRun, OpenBrick, RecoveryVerdict, Unopened};
use std::time::Duration;

fn holding(last: u64) -> Holding {
    Holding { epoch: Epoch(1), last: Lsn(last), durable: Lsn(1) }
}

fn proposed(step: &Step) -> (BrickId, Vec<BrickId>, bool) {
    let Step::Propose(change) = step else { panic!("{step:?}") };
    (change.primary.unwrap(), change.in_sync.iter().copied().collect(), change.lost)
}

fn is_pause(step: &Step) -> bool {
    matches!(step, Step::Pause(time) if *time > Duration::ZERO)
}

#[test]
fn an_uncertain_brick_waits_for_the_others_and_then_goes_on() {
    let state = pool();
    let mut arbitration_run = ArbitrationRun::of_uncertain(SET, MINE);
    assert_eq!(arbitration_run.go_on(), Step::Read);
    assert!(is_pause(&arbitration_run.on_state(None, ME)));
    assert!(arbitration_run.why().unwrap().contains("most of the voters"), "{:?}", arbitration_run.why());
    assert_eq!(arbitration_run.go_on(), Step::Read);
    let asked = arbitration_run.on_state(Some(&state), ME);
    assert_eq!(asked, Step::Ask(vec![(MINE, Source::Here), (THEIRS, Source::Server(OTHER))]));
    let mine = (MINE, Evidence::LostMemory(holding(9)));
    assert!(is_pause(&arbitration_run.on_evidence([mine].into())), "the other one may have kept everything");
    assert!(
        arbitration_run.why().unwrap().ends_with("that may have kept them: h2:/b2"),
        "{:?}",
        arbitration_run.why()
    );
    arbitration_run.go_on();
    arbitration_run.on_state(Some(&state), ME);
    let step = arbitration_run.on_evidence([mine, (THEIRS, Evidence::LostMemory(holding(8)))].into());
    assert_eq!(proposed(&step), (MINE, vec![MINE], true));
    let epoch = state.sets.get(&SET).unwrap().view.epoch;
    let last = RecoveryVerdict { epoch: epoch.next(), last: true };
    assert_eq!(arbitration_run.on_proposed(Proposed::Agreed), Step::Done(Some(last)));
}

#[test]
fn a_proposal_that_came_to_nothing_is_made_anew_from_what_is_then_known() {
    let mut state = pool();
    let mut arbitration_run = ArbitrationRun::of_uncertain(SET, MINE);
    let whole = [(MINE, Evidence::LostMemory(holding(9))), (THEIRS, Evidence::Whole(holding(9)))];
    arbitration_run.on_state(Some(&state), ME);
    let step = arbitration_run.on_evidence(whole.into());
    assert_eq!(proposed(&step), (THEIRS, vec![THEIRS], false));
    assert!(is_pause(&arbitration_run.on_proposed(Proposed::Unknown)));
    assert_eq!(arbitration_run.go_on(), Step::Read, "it may have been agreed on");
    arbitration_run.on_state(Some(&state), ME);
    arbitration_run.on_evidence(whole.into());
    assert_eq!(arbitration_run.on_proposed(Proposed::Refused { stale: true }), Step::Read);
    arbitration_run.on_state(Some(&state), ME);
    arbitration_run.on_evidence(whole.into());
    assert_eq!(
        arbitration_run.on_proposed(Proposed::Agreed),
        Step::Read,
        "its own copy of the view may be old"
    );
    view(&mut state, THEIRS, &[THEIRS]);
    let epoch = state.sets.get(&SET).unwrap().view.epoch;
    let out = Step::Done(Some(RecoveryVerdict { epoch, last: false }));
    assert_eq!(arbitration_run.on_state(Some(&state), ME), out);
    state.sets.clear();
    assert_eq!(arbitration_run.on_state(Some(&state), ME), Step::Done(None));
}

/// Its primary may have asked to let in what it was before: that is to be refused from now on.
#[test]
fn a_brick_that_is_to_heal_waits_for_another_epoch() {
    let mut state = pool();
    view(&mut state, THEIRS, &[THEIRS]);
    let epoch = state.sets.get(&SET).unwrap().view.epoch;
    let mut run = ArbitrationRun::of_uncertain(SET, MINE);
    run.on_state(None, ME);
    let Step::Propose(change) = run.on_state(Some(&state), ME) else { panic!("the epoch has to end") };
    assert_eq!((change.expect_epoch, change.primary), (epoch, Some(THEIRS)));
    assert_eq!(change.in_sync, [THEIRS].into());
    assert!(is_pause(&run.on_proposed(Proposed::Unknown)));
    assert_eq!(run.go_on(), Step::Read);
    assert_eq!(run.on_state(Some(&state), ME), Step::Propose(change.clone()), "it was not agreed on");
    assert_eq!(run.on_proposed(Proposed::Agreed), Step::Read);
    let healed = ViewChange { in_sync: [MINE, THEIRS].into(), healed: [MINE].into(), ..change.clone() };
    state.apply(&Command::ChangeView(change)).unwrap();
    state.apply(&Command::ChangeView(healed)).unwrap_err();
    let out = Step::Done(Some(RecoveryVerdict { epoch: epoch.next(), last: false }));
    assert_eq!(run.on_state(Some(&state), ME), out);
    // One that is in sync leaves, which ends that epoch too.
    let (mut state, mut run) = (pool(), ArbitrationRun::of_uncertain(SET, MINE));
    assert!(matches!(run.on_state(Some(&state), ME), Step::Ask(_)));
    view(&mut state, THEIRS, &[THEIRS]);
    assert!(matches!(run.on_state(Some(&state), ME), Step::Done(Some(_))));
}

#[test]
fn a_brick_that_cannot_be_opened_asks_once() {
    let state = pool();
    let refused = Unopened::refused(None, Duration::from_secs(5));
    let mine = (MINE, refused.evidence(Duration::from_secs(7)));
    assert_eq!(mine.1, Evidence::Refused { millis: 2000 });
    let mut arbitration_run = ArbitrationRun::of_refusal(SET, MINE);
    assert_eq!(arbitration_run.go_on(), Step::Read);
    arbitration_run.on_state(Some(&state), ME);
    assert_eq!(
        arbitration_run.on_evidence([mine].into()),
        Step::Done(None),
        "nobody else is known to be open"
    );
    let mut arbitration_run = ArbitrationRun::of_refusal(SET, MINE);
    arbitration_run.on_state(Some(&state), ME);
    let step = arbitration_run.on_evidence([mine, (THEIRS, Evidence::Whole(holding(9)))].into());
    assert_eq!(proposed(&step), (THEIRS, vec![THEIRS], false));
    assert_eq!(arbitration_run.on_proposed(Proposed::Unknown), Step::Done(None));
    // Most of the voters were silent for a while. By now it is open, and asks for itself.
    for theirs in [Evidence::LostMemory(holding(8)), Evidence::Whole(holding(9))] {
        let mut arbitration_run = ArbitrationRun::of_refusal(SET, MINE);
        arbitration_run.on_state(Some(&state), ME);
        let both = [(MINE, Evidence::LostMemory(holding(9))), (THEIRS, theirs)];
        assert_eq!(arbitration_run.on_evidence(both.into()), Step::Done(None));
    }
}

#[test]
fn what_is_proposed_for_a_disk_that_hangs_has_a_definite_end() {
    let mut state = pool();
    let mut arbitration_run = ArbitrationRun::of_hang(SET, MINE);
    assert_eq!(arbitration_run.go_on(), Step::Look);
    let asked = arbitration_run.on_state(Some(&state), ME);
    assert_eq!(asked, Step::Ask(vec![(THEIRS, Source::Server(OTHER))]), "its own thread hangs");
    let step = arbitration_run.on_evidence([(THEIRS, Evidence::Whole(holding(9)))].into());
    assert_eq!(proposed(&step), (THEIRS, vec![THEIRS], false));
    assert!(is_pause(&arbitration_run.on_proposed(Proposed::Unknown)));
    assert_eq!(arbitration_run.go_on(), step, "the same again: it is for one epoch");
    assert_eq!(arbitration_run.on_proposed(Proposed::Refused { stale: false }), Step::Done(None));
    view(&mut state, MINE, &[MINE]);
    assert_eq!(
        ArbitrationRun::of_hang(SET, MINE).on_state(Some(&state), ME),
        Step::Done(None),
        "it is alone"
    );
}

#[test]
fn a_lost_server_is_not_asked() {
    let mut state = pool();
    state.apply(&Command::RecoverPool { server: ME }).unwrap();
    let mut arbitration_run = ArbitrationRun::of_uncertain(SET, MINE);
    let Step::Ask(asked) = arbitration_run.on_state(Some(&state), ME) else { panic!("it is in sync") };
    assert_eq!(asked, [(MINE, Source::Here)]);
}

#[test]
fn what_is_said_of_bricks() {
    let at = Duration::from_secs;
    let first = Unopened::refused(None, at(5));
    assert_eq!(Unopened::refused(Some(first), at(9)), first, "the first failure counts");
    let waits = Unopened::Waits(Evidence::LostMemory(holding(3)));
    assert_eq!(waits.evidence(at(9)), Evidence::LostMemory(holding(3)));
    assert_eq!(Unopened::refused(Some(waits), at(9)), Unopened::Refused(at(9)));
}

/// Who is told that a brick is whole gives its own place up for it: a disk that died while nobody used it must not be taken
/// for a brick that can go on.
#[test]
fn an_open_brick_is_whole_once_its_disk_has_answered() {
    use replica::Role;
    let at = Duration::from_secs;
    let of = |role, uncertain, disk_answered| {
        OpenBrick { role, uncertain, holding: holding(3), disk_answered }.evidence(at(60))
    };
    for unknown in [None, Some(at(7)), Some(at(58))] {
        assert_eq!(of(Role::Primary, false, unknown), None, "its disk is looked at first");
    }
    for known in [at(59), at(60), at(61)] {
        assert_eq!(of(Role::Secondary, false, Some(known)), Some(Evidence::Whole(holding(3))));
    }
    assert_eq!(of(Role::Failed, false, Some(at(60))), Some(Evidence::Silent));
    assert_eq!(of(Role::Idle, true, None), Some(Evidence::Uncertain(holding(3))));
}

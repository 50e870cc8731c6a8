use super::*;
use crate::{Command, testing};

fn b(ids: &[u32]) -> BTreeSet<BrickId> {
    ids.iter().map(|id| BrickId(*id)).collect()
}

fn view(state: &State, set: u32) -> (u32, Option<u32>, Vec<u32>) {
    let v = &state.sets[&SetId(set)].view;
    (v.epoch.0, v.primary.map(|p| p.0), v.in_sync.iter().map(|i| i.0).collect())
}

fn change(epoch: u32, primary: Option<u32>, in_sync: &[u32], healed: &[u32]) -> Command {
    Command::ChangeView(ViewChange {
        set: SetId(1),
        expect_epoch: Epoch(epoch),
        primary: primary.map(BrickId),
        in_sync: b(in_sync),
        healed: b(healed),
        lost: false,
        reason: "test".into(),
    })
}

fn down(server: u64) -> Command {
    Command::ServerDown { server: ServerId(server) }
}

fn three() -> State {
    let mut state = testing::pool(3);
    testing::create(&mut state, "v", 3, 0, 3);
    state
}

#[test]
fn a_secondary_leaves_and_returns_healed() {
    let mut state = three();
    assert_eq!(testing::views(&mut state, change(1, Some(1), &[1, 3], &[])), [(1, 2)]);
    assert_eq!(view(&state, 1), (2, Some(1), vec![1, 3]));
    let refusal = testing::refuse(&mut state, change(2, Some(1), &[1, 2, 3], &[]));
    assert_eq!(refusal, Refusal::NotHealed { set: state.named(SetId(1)), brick: BrickId(2) });
    testing::views(&mut state, change(2, Some(1), &[1, 2, 3], &[2]));
    assert_eq!(view(&state, 1), (3, Some(1), vec![1, 2, 3]));
}

#[test]
fn view_changes_are_compare_and_set() {
    let mut state = three();
    testing::views(&mut state, change(1, Some(2), &[2, 3], &[]));
    let refusal = testing::refuse(&mut state, change(1, Some(1), &[1], &[]));
    assert!(refusal.is_stale(), "{refusal}");
}

#[test]
fn unsound_views_are_refused() {
    let mut state = three();
    let set = state.named(SetId(1));
    let refusal = testing::refuse(&mut state, change(1, Some(1), &[2], &[]));
    assert_eq!(refusal, Refusal::BadPrimary { set: set.clone(), brick: BrickId(1) });
    let refusal = testing::refuse(&mut state, change(1, None, &[], &[]));
    assert_eq!(refusal, Refusal::DataWouldBeLost { set: set.clone() });
    let refusal = testing::refuse(&mut state, change(1, Some(1), &[1, 9], &[9]));
    assert_eq!(refusal, Refusal::NotMember { set: set.clone(), brick: BrickId(9) });
    testing::views(&mut state, change(1, Some(1), &[1], &[]));
    let refusal = testing::refuse(&mut state, change(2, Some(2), &[2], &[2]));
    assert_eq!(refusal, Refusal::DataWouldBeLost { set });
}

#[test]
fn a_dead_primary_is_followed_by_one_in_sync() {
    let mut state = three();
    testing::views(&mut state, change(1, Some(1), &[1, 3], &[]));
    assert_eq!(testing::views(&mut state, down(1)), [(1, 3)]);
    assert_eq!(view(&state, 1), (3, Some(3), vec![3]));
}

#[test]
fn the_last_in_sync_brick_is_waited_for() {
    let mut state = three();
    testing::views(&mut state, down(1));
    testing::views(&mut state, down(2));
    testing::views(&mut state, down(3));
    assert_eq!(view(&state, 1), (4, None, vec![3]));
    assert_eq!(testing::views(&mut state, down(3)), [], "nothing more to change");
    assert_eq!(testing::views(&mut state, down(1)), [], "it was out already");
    let refusal = testing::refuse(&mut state, change(4, Some(1), &[1], &[1]));
    assert_eq!(refusal, Refusal::DataWouldBeLost { set: state.named(SetId(1)) });
    testing::views(&mut state, change(4, Some(3), &[3], &[]));
    assert_eq!(view(&state, 1), (5, Some(3), vec![3]));
}

#[test]
fn a_loss_is_remembered() {
    let mut state = three();
    testing::views(&mut state, change(1, Some(1), &[1], &[]));
    let Command::ChangeView(going_on) = change(2, Some(1), &[1], &[]) else { unreachable!() };
    testing::views(&mut state, Command::ChangeView(ViewChange { lost: true, ..going_on }));
    testing::views(&mut state, change(3, Some(1), &[1, 2], &[2]));
    assert_eq!((state.sets[&SetId(1)].lost_before, state.sets[&SetId(1)].view.epoch), (Epoch(3), Epoch(4)));
    let Command::ChangeView(again) = change(4, Some(2), &[2], &[]) else { unreachable!() };
    testing::views(&mut state, Command::ChangeView(ViewChange { lost: true, ..again }));
    assert_eq!(state.sets[&SetId(1)].lost_before, Epoch(5), "and the next one");
}

#[test]
fn an_administrator_may_give_up_what_others_hold() {
    let mut state = three();
    testing::views(&mut state, change(1, Some(1), &[1], &[]));
    testing::views(&mut state, down(1));
    let (set, named) = (SetId(1), state.named(SetId(1)));
    let promote = |epoch, brick| Command::Promote { set, expect_epoch: Epoch(epoch), brick: BrickId(brick) };
    assert!(testing::refuse(&mut state, promote(2, 2)).is_stale());
    assert_eq!(
        testing::refuse(&mut state, promote(3, 9)),
        Refusal::NotMember { set: named.clone(), brick: BrickId(9) }
    );
    assert_eq!(testing::views(&mut state, promote(3, 2)), [(1, 4)]);
    assert_eq!(view(&state, 1), (4, Some(2), vec![2]));
    assert_eq!(state.sets[&set].lost_before, Epoch(4), "clients are told");
    let mut state = testing::pool(3);
    testing::create(&mut state, "v", 3, 1, 3);
    assert_eq!(
        testing::refuse(&mut state, promote(1, 3)),
        Refusal::BadPrimary { set: named, brick: BrickId(3) }
    );
}

#[test]
fn an_arbiter_never_leads() {
    let mut state = testing::pool(3);
    testing::create(&mut state, "v", 3, 1, 3);
    assert!(state.sets[&SetId(1)].bricks[2].arbiter);
    let refusal = testing::refuse(&mut state, change(1, Some(3), &[1, 2, 3], &[]));
    assert_eq!(refusal, Refusal::BadPrimary { set: state.named(SetId(1)), brick: BrickId(3) });
    testing::views(&mut state, down(1));
    assert_eq!(view(&state, 1), (2, Some(2), vec![2, 3]));
    testing::views(&mut state, down(2));
    assert_eq!(view(&state, 1), (3, None, vec![2, 3]), "the arbiter alone holds no data");
    testing::views(&mut state, down(3));
    assert_eq!(view(&state, 1), (4, None, vec![2]));
}

#[test]
fn an_arbiter_never_leads_however_idle_its_server_is() {
    let mut state = testing::pool(3);
    testing::create(&mut state, "v", 3, 1, 3);
    let mut other = testing::volume(&state, "w", 3, 0, 3);
    for brick in &mut other.bricks {
        brick.path = format!("/w{}", brick.path);
    }
    state.apply(&Command::CreateVolume(other)).unwrap();
    let led: BTreeSet<Option<u32>> = [1, 2].map(|set| view(&state, set).1).into();
    assert_eq!(led, [Some(1), Some(5)].into(), "servers 1 and 2 lead, server 3 with the arbiter is idle");
    testing::views(&mut state, down(1));
    assert_eq!(view(&state, 1), (2, Some(2), vec![2, 3]));
}

#[test]
fn load_moves_to_the_least_loaded() {
    let mut state = testing::pool(3);
    testing::create(&mut state, "v", 3, 0, 18);
    assert_eq!(state.primaries().into_values().collect::<Vec<_>>(), [2, 2, 2]);
    testing::views(&mut state, down(1));
    assert_eq!(state.primaries().into_values().collect::<Vec<_>>(), [0, 3, 3]);
}

#[test]
fn one_brick_fails() {
    let mut state = three();
    let fail = |id| Command::BrickFailed { brick: BrickId(id), reason: "EIO".into() };
    assert_eq!(testing::views(&mut state, fail(1)), [(1, 2)]);
    assert_eq!(view(&state, 1), (2, Some(2), vec![2, 3]));
    assert_eq!(testing::refuse(&mut state, fail(9)), Refusal::UnknownBrick { brick: BrickId(9) });
    assert_eq!(testing::refuse(&mut state, down(9)), Refusal::UnknownServer { id: ServerId(9) });
}

#[test]
fn two_bricks_of_a_set_on_one_server_go_together() {
    let mut state = testing::pool(1);
    let mut new = testing::volume(&state, "v", 2, 0, 2);
    new.force = true;
    state.apply(&Command::CreateVolume(new)).unwrap();
    testing::views(&mut state, down(1));
    assert_eq!(view(&state, 1), (2, None, vec![1, 2]));
}

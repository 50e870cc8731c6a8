use super::*;
use crate::{Command, testing};
use ids::{Epoch, ServerId, SetId};

fn replace(state: &State, old: u32, server: u64, path: &str) -> Command {
    let (set, _) = state.brick(BrickId(old)).unwrap();
    Command::ReplaceBrick(NewBrick {
        set: set.id,
        expect_epoch: set.view.epoch,
        old: BrickId(old),
        new: BrickSpec { server: ServerId(server), path: path.into() },
        force: false,
    })
}

fn forced(command: Command) -> Command {
    match command {
        Command::ReplaceBrick(new) => Command::ReplaceBrick(NewBrick { force: true, ..new }),
        other => other,
    }
}

/// The set's primary says that these are in sync now, with what was healed.
fn heal(state: &mut State, primary: u32, in_sync: &[u32], healed: u32) {
    testing::view(state, primary, in_sync, &[healed]).unwrap();
}

fn shown(state: &State) -> (u32, Vec<u32>, Vec<u32>, Option<u32>) {
    let set = &state.sets[&SetId(1)];
    let members = set.bricks.iter().map(|b| b.id.0).collect();
    let in_sync = set.view.in_sync.iter().map(|b| b.0).collect();
    (set.view.epoch.0, members, in_sync, set.view.primary.map(|p| p.0))
}

#[test]
fn a_brick_in_sync_stays_until_the_new_one_is() {
    let mut state = testing::pool(3);
    testing::create(&mut state, "v", 2, 0, 2);
    state.apply(&replace(&state, 2, 3, "/n")).unwrap();
    assert_eq!(shown(&state), (1, vec![1, 2, 3], vec![1, 2], Some(1)), "both are members");
    assert_eq!(state.bricks_of_volume(state.volume("v").unwrap()).count(), 2, "the volume keeps its shape");
    let twice = replace(&state, 2, 3, "/m");
    assert!(testing::refuse(&mut state, twice).to_string().contains("being replaced by h3:/n already"));
    heal(&mut state, 1, &[1, 2, 3], 3);
    assert_eq!(shown(&state), (2, vec![1, 3], vec![1, 3], Some(1)));
    assert_eq!(state.sets[&SetId(1)].bricks[1].replaces, None);
}

#[test]
fn a_primary_that_is_replaced_hands_over_and_the_only_copy_moves() {
    let mut state = testing::pool(3);
    testing::create(&mut state, "v", 2, 0, 2);
    state.apply(&replace(&state, 1, 3, "/n")).unwrap();
    heal(&mut state, 1, &[1, 2, 3], 3);
    // It may be answering: it asks for the view without itself when it has ended that.
    assert_eq!(shown(&state), (2, vec![1, 3, 2], vec![1, 2, 3], Some(1)));
    assert_eq!(state.sets[&SetId(1)].copies(), 2);
    heal(&mut state, 3, &[2, 3], 3);
    assert_eq!(shown(&state), (3, vec![3, 2], vec![2, 3], Some(3)));
    let mut alone = testing::pool(2);
    testing::create(&mut alone, "v", 1, 0, 1);
    alone.apply(&replace(&alone, 1, 2, "/n")).unwrap();
    heal(&mut alone, 1, &[1, 2], 2);
    assert_eq!(shown(&alone), (2, vec![1, 2], vec![1, 2], Some(1)));
    heal(&mut alone, 2, &[2], 2);
    assert_eq!(shown(&alone), (3, vec![2], vec![2], Some(2)));
}

#[test]
fn a_brick_that_is_not_in_sync_goes_at_once() {
    let mut state = testing::pool(3);
    testing::create(&mut state, "v", 2, 0, 2);
    state.apply(&Command::ServerDown { server: ServerId(2) }).unwrap();
    state.apply(&replace(&state, 2, 3, "/n")).unwrap();
    assert_eq!(shown(&state), (2, vec![1, 3], vec![1], Some(1)));
    // The new one fails before it is healed: another one takes over, at once as well.
    state.apply(&replace(&state, 3, 2, "/m")).unwrap();
    assert_eq!(shown(&state), (2, vec![1, 4], vec![1], Some(1)));
    heal(&mut state, 1, &[1, 4], 4);
    assert_eq!(shown(&state), (3, vec![1, 4], vec![1, 4], Some(1)));
}

#[test]
fn the_successor_of_a_brick_that_stays_can_be_replaced_itself() {
    let mut state = testing::pool(4);
    testing::create(&mut state, "v", 2, 0, 2);
    state.apply(&replace(&state, 2, 3, "/n")).unwrap();
    state.apply(&replace(&state, 3, 4, "/n")).unwrap();
    assert_eq!(shown(&state).1, [1, 2, 4]);
    heal(&mut state, 1, &[1, 2, 4], 4);
    assert_eq!(shown(&state), (2, vec![1, 4], vec![1, 4], Some(1)));
}

#[test]
fn on_one_server_a_copy_less_needs_force() {
    let mut state = testing::pool(2);
    testing::create(&mut state, "v", 2, 0, 2);
    let disk = replace(&state, 1, 1, "/n");
    let refusal = testing::refuse(&mut state, disk.clone()).to_string();
    assert!(refusal.contains("a copy less") && refusal.ends_with("or add --force"), "{refusal}");
    state.apply(&forced(disk)).unwrap();
    assert_eq!(shown(&state), (1, vec![1, 3, 2], vec![1, 2], Some(1)), "it leads, and hands over");
    heal(&mut state, 2, &[2], 2);
    assert_eq!(shown(&state), (2, vec![3, 2], vec![2], Some(2)));
    let mut state = testing::pool(2);
    testing::create(&mut state, "v", 2, 0, 2);
    state.apply(&forced(replace(&state, 2, 2, "/n"))).unwrap();
    assert_eq!(shown(&state), (2, vec![1, 3], vec![1], Some(1)), "it follows, and goes at once");
    let mut alone = testing::pool(1);
    testing::create(&mut alone, "v", 1, 0, 1);
    let only = forced(replace(&alone, 1, 1, "/n"));
    assert!(testing::refuse(&mut alone, only).to_string().contains("alone holds the data"));
}

#[test]
fn what_cannot_be_replaced_is_refused() {
    let mut state = testing::pool(3);
    testing::create(&mut state, "v", 2, 0, 2);
    let refuse = |state: &mut State, command| testing::refuse(state, command).to_string();
    let beside = replace(&state, 1, 2, "/n");
    assert!(refuse(&mut state, beside).contains("on the server of h2:/b2"));
    let used = replace(&state, 1, 2, "/b2");
    assert!(refuse(&mut state, used).contains("in use by volume 'v'"));
    let stranger = replace(&state, 1, 9, "/n");
    assert!(refuse(&mut state, stranger).contains("server 9 is not in the pool"));
    let stale = match replace(&state, 1, 3, "/n") {
        Command::ReplaceBrick(new) => Command::ReplaceBrick(NewBrick { expect_epoch: Epoch(7), ..new }),
        other => other,
    };
    assert!(testing::refuse(&mut state, stale).is_stale());
    state.apply(&Command::ServerDown { server: ServerId(2) }).unwrap();
    state.apply(&Command::ServerDown { server: ServerId(1) }).unwrap();
    let offline = replace(&state, 2, 3, "/n");
    assert!(refuse(&mut state, offline).contains("is offline"), "the stale brick may be all that is left");
}

use super::*;
use crate::{
    Command,
    testing::{self, specs, view},
};
use ids::ServerId;

fn more(replica: u32, arbiter: u32, bricks: &[(u64, &str)]) -> Command {
    Command::AddCopies(MoreCopies { volume: "v".into(), replica, arbiter, bricks: specs(bricks) })
}

fn fewer(replica: u32, bricks: &[(u64, &str)], force: bool) -> Command {
    Command::RemoveCopies(FewerCopies { volume: "v".into(), replica, bricks: specs(bricks), force })
}

/// Members, who of them is in sync, who leads, and how many have to be in sync for changes.
fn shown(state: &State) -> (Vec<u32>, Vec<u32>, Option<u32>, u32) {
    let set = &state.sets[&SetId(1)];
    let members = set.bricks.iter().map(|b| b.id.0).collect();
    let in_sync = set.view.in_sync.iter().map(|b| b.0).collect();
    let quorum = state.volume("v").unwrap().write_quorum(set.copies());
    (members, in_sync, set.view.primary.map(|p| p.0), quorum)
}

fn small(replica: u32, arbiter: u32) -> State {
    let mut state = testing::pool(5);
    testing::create(&mut state, "v", replica, arbiter, u64::from(replica));
    state
}

#[test]
fn a_new_copy_counts_when_it_is_in_sync() {
    let mut state = small(2, 0);
    state.apply(&more(3, 0, &[(3, "/n")])).unwrap();
    assert_eq!(state.volume("v").unwrap().replica, 3);
    assert_eq!(shown(&state), (vec![1, 2, 3], vec![1, 2], Some(1), 1), "two copies, as before");
    // One of the two is lost meanwhile: the other goes on as it would have before.
    view(&mut state, 1, &[1], &[]).unwrap();
    assert_eq!(shown(&state), (vec![1, 2, 3], vec![1], Some(1), 1));
    view(&mut state, 1, &[1, 3], &[3]).unwrap();
    assert_eq!(shown(&state), (vec![1, 2, 3], vec![1, 3], Some(1), 2), "a majority of three from now on");
    // It leaves and comes back: it counts for good.
    view(&mut state, 1, &[1], &[]).unwrap();
    assert_eq!(shown(&state).3, 2);
}

#[test]
fn one_copy_becomes_three_step_by_step() {
    let mut state = small(1, 0);
    state.apply(&more(3, 0, &[(2, "/n"), (3, "/n")])).unwrap();
    assert_eq!(shown(&state), (vec![1, 2, 3], vec![1], Some(1), 1));
    view(&mut state, 1, &[1, 3], &[3]).unwrap();
    assert_eq!(shown(&state).3, 1, "two copies");
    view(&mut state, 1, &[1, 2, 3], &[2]).unwrap();
    assert_eq!(shown(&state).3, 2);
}

#[test]
fn a_brick_that_holds_nothing_never_gets_in_nor_leads() {
    let mut state = small(2, 0);
    state.apply(&more(3, 0, &[(3, "/n")])).unwrap();
    let set = SetId(1);
    let named = state.named(set);
    let refused = Refusal::NotHealed { set: named.clone(), brick: BrickId(3) };
    assert_eq!(view(&mut state, 1, &[1, 2, 3], &[]), Err(refused));
    for server in [1, 2] {
        state.apply(&Command::ServerDown { server: ServerId(server) }).unwrap();
    }
    assert_eq!(shown(&state).2, None, "the set waits for the last holder");
    let promote = Command::Promote { set, expect_epoch: state.sets[&set].view.epoch, brick: BrickId(3) };
    assert_eq!(testing::refuse(&mut state, promote), Refusal::NeverInSync { set: named, brick: BrickId(3) });
}

#[test]
fn an_arbiter_comes_to_two_copies_and_goes_again() {
    let mut state = small(2, 0);
    state.apply(&more(3, 1, &[(3, "/n")])).unwrap();
    let arbiters =
        |state: &State| -> Vec<bool> { state.sets[&SetId(1)].bricks.iter().map(|b| b.arbiter).collect() };
    assert_eq!((arbiters(&state), state.volume("v").unwrap().arbiter), (vec![false, false, true], 1));
    view(&mut state, 1, &[1, 2, 3], &[3]).unwrap();
    assert_eq!(shown(&state).3, 2);
    let refused = testing::refuse(&mut state, fewer(2, &[(2, "/b2")], false)).to_string();
    assert!(refused.contains("h3:/n is the arbiter of its set"), "{refused}");
    state.apply(&fewer(2, &[(3, "/n")], false)).unwrap();
    assert_eq!(shown(&state), (vec![1, 2], vec![1, 2], Some(1), 1));
    assert_eq!(state.volume("v").unwrap().arbiter, 0);
    let mut one = small(1, 0);
    one.apply(&more(3, 1, &[(2, "/n"), (3, "/n")])).unwrap();
    assert_eq!(arbiters(&one), [false, false, true]);
}

#[test]
fn each_set_gets_its_own() {
    let mut state = testing::pool(4);
    testing::create(&mut state, "v", 1, 0, 2);
    let refused = testing::refuse(&mut state, more(2, 0, &[(3, "/n")])).to_string();
    assert!(refused.contains("2 sets, and 1 bricks are not 1 for each"), "{refused}");
    state.apply(&more(2, 0, &[(3, "/n"), (4, "/n")])).unwrap();
    let servers = |set: u32| state.sets[&SetId(set)].bricks.iter().map(|b| b.server.0).collect::<Vec<_>>();
    assert_eq!((servers(1), servers(2)), (vec![1, 3], vec![2, 4]));
}

#[test]
fn copies_that_cannot_be_are_refused() {
    let mut state = small(3, 1);
    let mut refused = |command| testing::refuse(&mut state, command).to_string();
    assert!(refused(more(3, 1, &[(4, "/n")])).contains("has replica 3: give a higher one"));
    assert!(refused(more(4, 1, &[(4, "/n")])).contains("arbiter 1 with replica 4 is not allowed"));
    assert!(refused(more(4, 0, &[(4, "/n")])).contains("arbiter 1 with replica 4 is not allowed"));
    assert!(refused(more(9, 0, &[(4, "/n")])).contains("use 1 to 8"));
    let mut state = small(2, 0);
    let mut refused = |command| testing::refuse(&mut state, command).to_string();
    assert!(refused(more(3, 0, &[(2, "/n")])).contains("on the server of h2:/b2"));
    assert!(refused(more(4, 0, &[(3, "/n"), (3, "/m")])).contains("h3:/m is on the server of h3:/n"));
    assert!(refused(more(3, 0, &[(2, "/b2")])).contains("in use by volume 'v'"));
    assert!(refused(more(3, 0, &[(9, "/n")])).contains("server 9 is not in the pool"));
    assert!(refused(fewer(2, &[(2, "/b2")], true)).contains("give a lower one"));
    assert!(refused(fewer(0, &[(1, "/b1"), (2, "/b2")], true)).contains("give a lower one"));
    assert!(refused(fewer(1, &[(3, "/x")], true)).contains("h3:/x is no brick of volume 'v'"));
    assert!(refused(fewer(1, &[(1, "/b1"), (1, "/b1")], true)).contains("is given twice"));
    assert!(refused(fewer(1, &[], true)).contains("of set 1 0 bricks are given"));
    assert!(refused(fewer(1, &[(1, "/b1"), (2, "/b2")], true)).contains("is to lose 1"));
}

#[test]
fn a_copy_that_follows_goes_at_once() {
    let mut state = small(3, 0);
    state.apply(&fewer(2, &[(3, "/b3")], false)).unwrap();
    assert_eq!(shown(&state), (vec![1, 2], vec![1, 2], Some(1), 1));
    assert_eq!(state.volume("v").unwrap().replica, 2);
}

/// It may be answering: nobody takes the lead from it.
#[test]
fn a_copy_that_leads_stays_until_it_has_handed_over() {
    let mut state = small(3, 0);
    state.apply(&fewer(2, &[(1, "/b1")], false)).unwrap();
    assert_eq!(shown(&state), (vec![1, 2, 3], vec![1, 2, 3], Some(1), 1), "two copies count");
    assert_eq!(state.bricks_of_volume(state.volume("v").unwrap()).count(), 2);
    let twice = testing::refuse(&mut state, fewer(1, &[(1, "/b1")], true)).to_string();
    assert!(twice.contains("leaves its set already"), "{twice}");
    view(&mut state, 2, &[2, 3], &[]).unwrap();
    assert_eq!(shown(&state), (vec![2, 3], vec![2, 3], Some(2), 1));
    // Two of three: the one that follows goes at once, the one that leads when it has handed over.
    let mut state = small(3, 0);
    state.apply(&fewer(1, &[(1, "/b1"), (2, "/b2")], false)).unwrap();
    assert_eq!(shown(&state), (vec![1, 3], vec![1, 3], Some(1), 1));
    // The one that is to stay fails first: the other one goes on, until it is back.
    view(&mut state, 1, &[1], &[]).unwrap();
    assert_eq!(shown(&state), (vec![1, 3], vec![1], Some(1), 1));
    view(&mut state, 1, &[1, 3], &[3]).unwrap();
    view(&mut state, 3, &[3], &[]).unwrap();
    assert_eq!(shown(&state), (vec![3], vec![3], Some(3), 1));
    // Its server dies: it is gone with that.
    let mut state = small(3, 0);
    state.apply(&fewer(2, &[(1, "/b1")], false)).unwrap();
    state.apply(&Command::ServerDown { server: ServerId(1) }).unwrap();
    assert_eq!(shown(&state).0, [2, 3]);
}

#[test]
fn what_is_left_has_to_be_in_sync() {
    let mut state = small(3, 0);
    view(&mut state, 1, &[1, 2], &[]).unwrap();
    let refused = testing::refuse(&mut state, fewer(2, &[(2, "/b2")], false)).to_string();
    assert!(refused.contains("h3:/b3 is not in sync") && refused.contains("force"), "{refused}");
    state.apply(&fewer(2, &[(2, "/b2")], true)).unwrap();
    assert_eq!(shown(&state), (vec![1, 3], vec![1], Some(1), 1));
    let refused = testing::refuse(&mut state, fewer(1, &[(1, "/b1")], true)).to_string();
    assert!(refused.contains("only h1:/b1 does") && refused.contains("heal v info"), "{refused}");
    // The one that is not in sync can always go.
    state.apply(&fewer(1, &[(3, "/b3")], false)).unwrap();
    assert_eq!(shown(&state), (vec![1], vec![1], Some(1), 1));
}

#[test]
fn nothing_goes_from_an_offline_set_or_one_with_a_replacement() {
    let mut state = small(2, 0);
    for server in [2, 1] {
        state.apply(&Command::ServerDown { server: ServerId(server) }).unwrap();
    }
    let refused = testing::refuse(&mut state, fewer(1, &[(2, "/b2")], true)).to_string();
    assert!(refused.contains("set 1 is offline"), "{refused}");
    let mut state = small(2, 0);
    state
        .apply(&Command::ReplaceBrick(crate::NewBrick {
            set: SetId(1),
            expect_epoch: ids::Epoch(1),
            old: BrickId(2),
            new: specs(&[(3, "/n")]).remove(0),
            force: false,
        }))
        .unwrap();
    let refused = testing::refuse(&mut state, fewer(1, &[(1, "/b1")], true)).to_string();
    assert!(refused.contains("h2:/b2 is being replaced by h3:/n"), "{refused}");
}

/// An addition can be taken back.
#[test]
fn a_new_copy_can_be_given_up() {
    let mut state = small(2, 0);
    state.apply(&more(3, 0, &[(3, "/n")])).unwrap();
    state.apply(&fewer(2, &[(3, "/n")], false)).unwrap();
    assert_eq!(shown(&state), (vec![1, 2], vec![1, 2], Some(1), 1));
    assert_eq!(state.sets[&SetId(1)].view.epoch.0, 1, "no view changed");
}

#[test]
fn a_quorum_that_cannot_be_met_is_lowered() {
    let mut state = small(3, 0);
    let set = |key: &str, value: &str| crate::OptionChange {
        volume: "v".into(),
        key: key.into(),
        value: Some(value.into()),
    };
    let changes = vec![set("cluster.quorum-type", "fixed"), set("cluster.quorum-count", "3")];
    state.apply(&Command::SetOptions { changes }).unwrap();
    state.apply(&fewer(2, &[(3, "/b3")], false)).unwrap();
    assert_eq!(shown(&state).3, 2);
    assert_eq!(state.volume("v").unwrap().options["cluster.quorum-count"], "2");
}

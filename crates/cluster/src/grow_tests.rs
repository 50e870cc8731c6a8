use super::*;
use crate::{Command, testing};
use ids::SetId;

fn more(state: &State, bricks: &[(u64, &str)]) -> NewBricks {
    NewBricks {
        volume: "v".into(),
        bricks: testing::specs(bricks),
        force: false,
        expect_brick: state.next_brick,
    }
}

fn refusal(state: &mut State, bricks: &[(u64, &str)]) -> String {
    let new = more(state, bricks);
    testing::refuse(state, Command::AddBricks(new)).to_string()
}

#[test]
fn added_sets_have_the_volumes_shape_and_come_last() {
    let mut state = testing::pool(3);
    testing::create(&mut state, "v", 3, 1, 3);
    state.apply(&Command::StartVolume { name: "v".into() }).unwrap();
    let new = more(&state, &[(1, "/n"), (2, "/n"), (3, "/n")]);
    state.apply(&Command::AddBricks(new.clone())).unwrap();
    assert_eq!(state.volume("v").unwrap().sets, [SetId(1), SetId(2)]);
    let set = &state.sets[&SetId(2)];
    assert_eq!(set.bricks[0].id, new.expect_brick);
    assert_eq!(set.bricks.iter().map(|b| b.arbiter).collect::<Vec<_>>(), [false, false, true]);
    assert_eq!(set.view.in_sync.len(), 3);
    // The server that leads less leads the new set.
    let led = |set: u32| state.sets[&SetId(set)].view.primary.and_then(|p| state.brick(p)).unwrap().1.server;
    assert_ne!(led(1), led(2));
    // Done once: the numbers are gone.
    let again = testing::refuse(&mut state, Command::AddBricks(new));
    assert!(again.is_stale() && again.to_string().contains("run the command again"), "{again}");
}

#[test]
fn what_creation_refuses_is_refused_here() {
    let mut state = testing::pool(2);
    testing::create(&mut state, "v", 2, 0, 2);
    let count = "1 bricks cannot be sets of 2: give a multiple of 2";
    assert_eq!(refusal(&mut state, &[(1, "/n")]), count);
    assert!(refusal(&mut state, &[]).contains("has no bricks"));
    assert!(refusal(&mut state, &[(1, "/b1"), (2, "/n")]).contains("h1:/b1 is in use by volume 'v'"));
    assert!(refusal(&mut state, &[(1, "/b1/x"), (2, "/n")]).contains("lies inside or around"));
    assert!(refusal(&mut state, &[(1, "/n"), (1, "/n")]).contains("is given twice"));
    assert!(refusal(&mut state, &[(1, "/n"), (1, "/m")]).ends_with("or add --force"));
    assert!(refusal(&mut state, &[(9, "/n"), (1, "/m")]).contains("server 9 is not in the pool"));
    let forced = NewBricks { force: true, ..more(&state, &[(1, "/n"), (1, "/m")]) };
    state.apply(&Command::AddBricks(forced)).unwrap();
    let mut unknown = more(&state, &[(1, "/o"), (2, "/o")]);
    unknown.volume = "w".into();
    let refused = testing::refuse(&mut state, Command::AddBricks(unknown)).to_string();
    assert!(refused.starts_with("there is no volume 'w'"), "{refused}");
}

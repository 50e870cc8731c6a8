//! When a pool counts on what older programs do not know.
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

use crate::pool;
use cluster::Command;
use ids::ServerId;
use server_core::levels::Levels;

const ME: (ServerId, u32) = (ServerId(1), 2);
const OTHER: ServerId = ServerId(2);

#[test]
fn a_level_is_counted_on_when_all_servers_have_said_it() {
    let mut state = pool::pool();
    let mut levels = Levels::default();
    assert_eq!(levels.next(ME, &state), None, "the other one has said nothing");
    assert!(levels.heard(OTHER, 0, &state));
    assert_eq!(levels.next(ME, &state), None, "it is older");
    assert!(levels.heard(OTHER, 2, &state));
    assert_eq!(levels.next(ME, &state), Some(2));
    levels.forget();
    assert_eq!(levels.next(ME, &state), None, "it may have been changed meanwhile");
    levels.heard(OTHER, 3, &state);
    assert_eq!(levels.next(ME, &state), Some(2));
    state.apply(&Command::RaiseLevel { level: 2 }).unwrap();
    assert_eq!(levels.next(ME, &state), None);
    assert!(!levels.heard(OTHER, 1, &state), "a program of before is not let in again");
    assert!(levels.heard(OTHER, 2, &state));
}

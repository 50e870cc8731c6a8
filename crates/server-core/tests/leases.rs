//! Leases, room and suspicion.
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

use crate::pool::{ME, MINE, OTHER, SET, THEIRS, pool, view};
use cluster::{State, hex};
use ids::{ServerId, SetId};
use namespace::placement::SetRoom;
use server_core::leases::{Grant, Heard, Judged, Leadership, LeaseGiver, grant, next_beat};
use server_core::suspicion::{Suspect, Suspicions, suspect};
use server_core::{Lease, Rooms};
use std::time::Duration;

fn at(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn identity(server: u64) -> String {
    hex::encode(u128::from(server) + 1000)
}

fn leader(leads: bool, changed: bool) -> Leadership {
    Leadership { me: ME, leads, changed }
}

#[test]
fn a_lease_counts_from_the_sending_and_for_those_who_know_the_state() {
    let granted = Grant { renewed: true, length: at(3000), version: 7 };
    assert_eq!(granted.lease(at(100), 6), None, "its views may be over");
    let lease = granted.lease(at(100), 8).unwrap();
    assert_eq!(lease, Lease { until: at(3100), version: 7 });
    assert_eq!((lease.of(6), lease.of(7)), (None, Some(at(3100))));
    assert_eq!(Grant { renewed: false, ..granted }.lease(at(100), 8), None);
    let state = pool();
    assert_eq!(grant(None, &state), Grant { renewed: false, length: state.lease_length(), version: 0 });
    assert!(grant(Some(5), &state).renewed && grant(Some(5), &state).version == 5);
    assert!(next_beat(false) < next_beat(true));
}

#[test]
fn a_leader_hears_servers_and_misses_those_that_fall_silent() {
    let state = pool();
    let mut giver = LeaseGiver::default();
    giver.begin(at(0), &state);
    assert_eq!(giver.on_beat(at(1), OTHER, &identity(2), &state), Heard::Denied, "it does not lead yet");
    assert!(giver.detect_failures(at(10), leader(true, false), &state).forget_reports);
    assert_eq!(giver.detect_failures(at(20), leader(true, false), &state), Judged::default());
    assert_eq!(giver.on_beat(at(1000), OTHER, &identity(2), &state), Heard::Confirm);
    assert_eq!(giver.on_beat(at(1000), OTHER, &identity(9), &state), Heard::Stranger);
    let lease = state.lease_length();
    assert_eq!(giver.detect_failures(at(1000) + lease, leader(true, false), &state).down, []);
    let late = at(1000) + lease + lease / 8;
    assert_eq!(giver.detect_failures(late, leader(true, false), &state).down, [OTHER]);
    assert_eq!(giver.down(), [OTHER].into());
    assert_eq!(giver.detect_failures(late, leader(true, false), &state).down, [OTHER], "until it is decided");
    assert_eq!(giver.on_beat(late, OTHER, &identity(2), &state), Heard::Denied, "it may be agreed any time");
    giver.decided(OTHER);
    assert_eq!(giver.detect_failures(late, leader(true, false), &state).down, [], "said once");
    assert_eq!(giver.on_beat(late, OTHER, &identity(2), &state), Heard::Confirm);
    assert_eq!(giver.down(), [].into());
}

/// What a leader proposed is agreed on before the next one's term, or never.
#[test]
fn a_new_term_decides_who_was_to_be_down() {
    let state = pool();
    for again in [leader(true, true), leader(false, true)] {
        let mut giver = LeaseGiver::default();
        giver.begin(at(0), &state);
        giver.detect_failures(at(0), leader(true, false), &state);
        let late = state.lease_length() * 2;
        assert_eq!(giver.detect_failures(late, leader(true, false), &state).down, [OTHER]);
        assert_eq!(giver.detect_failures(late, again, &state).down, []);
        giver.detect_failures(late, leader(true, true), &state);
        assert_eq!(giver.on_beat(late, OTHER, &identity(2), &state), Heard::Confirm);
    }
}

#[test]
fn somebody_else_may_have_led_between_two_looks() {
    let state = pool();
    let mut giver = LeaseGiver::default();
    giver.begin(at(0), &state);
    giver.detect_failures(at(0), leader(true, false), &state);
    let lease = state.lease_length();
    assert!(giver.detect_failures(lease, leader(true, true), &state).forget_reports);
    assert_eq!(
        giver.detect_failures(lease + lease, leader(true, false), &state).down,
        [],
        "the other one may have renewed"
    );
    assert_eq!(giver.detect_failures(lease * 3, leader(true, false), &state).down, [OTHER]);
    assert!(giver.detect_failures(lease * 3, leader(false, true), &state).forget_reports);
    assert_eq!(giver.detect_failures(lease * 9, leader(false, true), &state), Judged::default());
}

/// A server that was cut off hears at once that the leases were made longer, and shorter again: it has never seen the longer
/// length in force, and leads next.
#[test]
fn leases_that_were_longer_meanwhile_are_waited_for() {
    let mut state = pool();
    let mut giver = LeaseGiver::default();
    giver.begin(at(0), &state);
    giver.detect_failures(at(100), leader(false, false), &state);
    state.longest_lease_ms = 60_000;
    assert_eq!(giver.detect_failures(at(200), leader(true, false), &state).down, []);
    assert_eq!(
        giver.detect_failures(at(60_000), leader(true, false), &state).down,
        [],
        "given by another leader"
    );
    assert_eq!(giver.detect_failures(at(70_000), leader(true, false), &state).down, [OTHER]);
}

fn room(set: u32, available: u64) -> SetRoom {
    SetRoom::new(SetId(set), available, 100)
}

#[test]
fn room_is_believed_of_those_who_lead() {
    let mut state = pool();
    view(&mut state, THEIRS, &[MINE, THEIRS]);
    let mut rooms = Rooms::default();
    let said = |available| [room(1, available), room(9, 5)].into_iter();
    rooms.learn(&state, ME, Some(ServerId(3)), said(50));
    assert_eq!(rooms.all().count(), 0, "it does not lead the set, and there is no set 9");
    rooms.learn(&state, ME, Some(OTHER), said(50));
    assert_eq!(rooms.get(SET), Some(room(1, 50)));
    rooms.promise(SET);
    assert_eq!(rooms.get(SET).unwrap().promised, 1);
    rooms.learn(&state, ME, None, said(40));
    assert_eq!(rooms.get(SET), Some(room(1, 40)), "new figures know of it");
    view(&mut state, MINE, &[MINE, THEIRS]);
    rooms.set(SET, room(1, 30));
    rooms.learn(&state, ME, None, said(20));
    assert_eq!(rooms.get(SET), Some(room(1, 30)), "this server leads it");
    state.sets.clear();
    rooms.learn(&state, ME, None, said(20));
    assert_eq!(rooms.get(SET), None);
}

#[test]
fn who_looks_after_a_server_that_seems_dead() {
    let mut state = pool();
    view(&mut state, THEIRS, &[MINE, THEIRS]);
    let of = |state: &State, leader, replaced| suspect(state, OTHER, leader, ME, replaced);
    assert_eq!(of(&state, Some(OTHER), false), Suspect::ReplaceLeader);
    assert_eq!(of(&state, Some(OTHER), true), Suspect::Nothing);
    assert_eq!(of(&state, Some(ME), true), Suspect::DeclareDown);
    assert_eq!(of(&state, Some(ServerId(3)), false), Suspect::Tell(ServerId(3)));
    assert_eq!(of(&state, None, false), Suspect::Nothing);
    assert_eq!(suspect(&state, ServerId(9), Some(ME), ME, false), Suspect::Nothing);
    view(&mut state, MINE, &[MINE]);
    assert_eq!(of(&state, Some(ME), false), Suspect::Nothing, "no view counts on it");
    let mut all = Suspicions::default();
    let noted = [at(0), at(399), at(400)].map(|now| all.note(now, OTHER));
    assert_eq!(noted, [true, false, true]);
    assert!(all.note(at(401), ME));
}

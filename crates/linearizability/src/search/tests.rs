//! Small registers.

use super::*;

struct Register;

#[derive(Debug)]
enum Ask {
    Write(u64),
    Read,
}

impl Model for Register {
    type State = u64;
    type Input = Ask;
    type Output = u64;

    fn initial() -> u64 {
        0
    }

    fn step(state: &u64, input: &Ask) -> (u64, u64) {
        match input {
            Ask::Write(v) => (*v, 0),
            Ask::Read => (*state, *state),
        }
    }
}

fn write(v: u64, begun: u64, ended: u64) -> Operation<Register> {
    Operation { input: Ask::Write(v), begun, answer: Some((0, ended)) }
}

fn read(v: u64, begun: u64, ended: u64) -> Operation<Register> {
    Operation { input: Ask::Read, begun, answer: Some((v, ended)) }
}

#[test]
fn one_after_the_other() {
    assert_eq!(check(&[read(0, 0, 1), write(5, 2, 3), read(5, 4, 5)]), Ok(()));
    assert!(check(&[write(5, 2, 3), read(0, 4, 5)]).is_err(), "a stale read");
}

#[test]
fn overlapping_operations_may_have_either_order() {
    assert_eq!(check(&[write(5, 0, 10), read(0, 1, 2), read(5, 3, 4)]), Ok(()));
    let back = check(&[write(5, 0, 10), read(5, 1, 2), read(0, 3, 4)]);
    assert!(back.unwrap_err().text.contains("none of these can follow"));
    assert_eq!(check(&[write(1, 0, 10), write(2, 0, 10), read(2, 11, 12), read(2, 13, 14)]), Ok(()));
    assert!(check(&[write(1, 0, 10), write(2, 0, 10), read(2, 11, 12), read(1, 13, 14)]).is_err());
}

#[test]
fn an_operation_without_an_answer_was_done_some_time_or_never() {
    let lost = |v| Operation { input: Ask::Write(v), begun: 0, answer: None };
    assert_eq!(check(&[lost(5), read(0, 1, 2)]), Ok(()));
    assert_eq!(check(&[lost(5), read(0, 1, 2), read(5, 300, 301)]), Ok(()));
    assert!(check(&[lost(5), read(5, 1, 2), read(0, 3, 4)]).is_err());
    assert!(check(&[Operation { begun: 10, ..lost(5) }, read(5, 1, 2)]).is_err(), "it was not begun yet");
}

#[test]
fn long_histories_are_checked_in_reasonable_time() {
    let mut ops = Vec::new();
    for n in 0..20_000u64 {
        ops.push(write(n + 1, n * 10, n * 10 + 14));
        ops.push(read(n + 1, n * 10 + 5, n * 10 + 16));
    }
    assert_eq!(check(&ops), Ok(()));
}

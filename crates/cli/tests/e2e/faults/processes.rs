//! Servers that are killed, frozen and restarted.

use super::verify::{Kept, all_in_sync, verify};
use super::writer::{Pause, Writer};
use super::{KILLED, MIXED, SECONDARY_KILLED, SILENT, a_while, leader, primary};
use crate::harness::{Alone, Pool};
use std::time::{Duration, Instant};

/// A pool in which leader, primary and secondary are three servers.
const APART: [(usize, &str); 2] = [(1, "b"), (2, "b")];

fn check(what: &str, pause: &Pause, limit: Duration) {
    println!("{what}: longest pause {:?} ({})", pause.took, pause.what);
    assert!(pause.took < limit, "{what}: {:?} is more than {limit:?}", pause.took);
}

fn kill_and_return(pool: &mut Pool, writer: &Writer, victim: usize, what: &str, limit: Duration) {
    writer.longest();
    pool.kill(victim);
    writer.went_on();
    check(&format!("{what} killed"), &writer.longest(), limit);
    pool.start(victim);
    all_in_sync(pool);
    check(&format!("{what} back"), &writer.longest(), KILLED);
}

#[test]
fn one_server_killed_after_the_other() {
    let alone = Alone::after_set_up();
    let mut pool = Pool::new(3);
    pool.volume("v", 2, &MIXED);
    let mount = pool.mount("v");
    alone.measures();
    let writer = Writer::start(&mount, &[]);
    for victim in [2, 0, 1] {
        let leads = leader(&pool) == victim;
        kill_and_return(
            &mut pool,
            &writer,
            victim,
            if leads { "server with the leader" } else { "server" },
            KILLED,
        );
    }
    let model = writer.stop();
    alone.measured();
    verify(&pool, &MIXED, 2, &model, Kept::All);
}

#[test]
fn each_role_killed() {
    let alone = Alone::after_set_up();
    let mut pool = Pool::new(3);
    pool.volume("v", 2, &APART);
    let mount = pool.mount("v");
    alone.measures();
    let writer = Writer::start(&mount, &[]);
    for _ in 0..2 {
        let first = primary(&pool, 2, 0);
        let second = if first == 1 { 2 } else { 1 };
        kill_and_return(&mut pool, &writer, second, "secondary", SECONDARY_KILLED);
        let victim = leader(&pool);
        let what = if victim == first { "primary and leader" } else { "leader" };
        kill_and_return(&mut pool, &writer, victim, what, KILLED);
        let victim = primary(&pool, 2, 0);
        let what = if victim == leader(&pool) { "primary and leader" } else { "primary" };
        kill_and_return(&mut pool, &writer, victim, what, KILLED);
    }
    let model = writer.stop();
    alone.measured();
    verify(&pool, &APART, 2, &model, Kept::All);
}

fn freeze_and_return(pool: &mut Pool, writer: &Writer, victim: usize, what: &str) {
    writer.longest();
    pool.freeze(victim);
    let until = Instant::now() + a_while();
    writer.went_on();
    check(&format!("{what} frozen"), &writer.longest(), SILENT);
    std::thread::sleep(until.saturating_duration_since(Instant::now()));
    writer.went_on();
    pool.thaw(victim);
    writer.went_on();
    all_in_sync(pool);
    check(&format!("{what} thawed"), &writer.longest(), KILLED);
}

#[test]
fn each_role_frozen() {
    let alone = Alone::after_set_up();
    let mut pool = Pool::new(3);
    pool.volume("v", 2, &APART);
    let mount = pool.mount("v");
    alone.measures();
    let writer = Writer::start(&mount, &[]);
    let first = primary(&pool, 2, 0);
    freeze_and_return(&mut pool, &writer, if first == 1 { 2 } else { 1 }, "secondary");
    let victim = primary(&pool, 2, 0);
    let what = if victim == leader(&pool) { "primary and leader" } else { "primary" };
    freeze_and_return(&mut pool, &writer, victim, what);
    let victim = leader(&pool);
    let what = if victim == primary(&pool, 2, 0) { "primary and leader" } else { "leader" };
    freeze_and_return(&mut pool, &writer, victim, what);
    let model = writer.stop();
    alone.measured();
    verify(&pool, &APART, 2, &model, Kept::All);
}

/// The store's leader is a primary as well, and all of three sets are touched.
#[test]
fn the_leader_with_a_primary_frozen() {
    let alone = Alone::after_set_up();
    let mut pool = Pool::new(3);
    pool.volume("v", 2, &MIXED);
    let mount = pool.mount("v");
    alone.measures();
    let writer = Writer::start(&mount, &[]);
    let victim = leader(&pool);
    freeze_and_return(&mut pool, &writer, victim, "leader with a primary");
    let model = writer.stop();
    alone.measured();
    verify(&pool, &MIXED, 2, &model, Kept::All);
}

/// All servers end and come back, in different orders, by kill and in order.
#[test]
fn all_servers_restarted_in_any_order() {
    let mut pool = Pool::new(3);
    pool.volume("v", 2, &MIXED);
    let mount = pool.mount("v");
    let writer = Writer::start(&mount, &[]);
    for (round, (down, up)) in
        [([0, 1, 2], [2, 1, 0]), ([2, 0, 1], [0, 2, 1]), ([1, 2, 0], [1, 0, 2])].into_iter().enumerate()
    {
        for i in down {
            if round == 1 { pool.stop(i) } else { pool.kill(i) }
        }
        for i in up {
            pool.start(i);
        }
        writer.went_on();
        all_in_sync(&pool);
        println!("all restarted: longest pause {:?}", writer.longest().took);
    }
    let model = writer.stop();
    verify(&pool, &MIXED, 2, &model, Kept::All);
}

/// Two of three servers, and with them the majority of the pool's voters, are away for a while: calls wait, nothing is lost.
#[test]
fn a_majority_killed() {
    let mut pool = Pool::new(3);
    let bricks = [(0, "b"), (1, "b"), (2, "b")];
    pool.volume("v", 3, &bricks);
    pool.ok("volume set v cluster.quorum-type none");
    let mount = pool.mount("v");
    let writer = Writer::start(&mount, &[]);
    for away in [[0, 1], [1, 2]] {
        away.into_iter().for_each(|i| pool.kill(i));
        // Longer than the one that is left may answer by itself.
        std::thread::sleep(Duration::from_secs(4));
        away.into_iter().for_each(|i| pool.start(i));
        writer.went_on();
        all_in_sync(&pool);
        println!("majority away for 4 s: longest pause {:?}", writer.longest().took);
    }
    let model = writer.stop();
    verify(&pool, &bricks, 3, &model, Kept::All);
}

/// With three bricks any two servers may die, one after the other: writing needs two of three, reading goes on with one.
#[test]
fn replica_three_survives_each_death() {
    let alone = Alone::after_set_up();
    let mut pool = Pool::new(3);
    let bricks = [(0, "b"), (1, "b"), (2, "b")];
    pool.volume("v", 3, &bricks);
    let mount = pool.mount("v");
    alone.measures();
    let writer = Writer::start(&mount, &[]);
    for victim in [1, 0, 2] {
        kill_and_return(&mut pool, &writer, victim, "one of three", KILLED);
    }
    let model = writer.stop();
    alone.measured();
    verify(&pool, &bricks, 3, &model, Kept::All);
}

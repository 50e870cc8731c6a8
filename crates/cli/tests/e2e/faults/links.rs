//! Links that are cut, in one direction and in both, between servers and around one server.

use super::verify::{Kept, all_in_sync, verify};
use super::writer::Writer;
use super::{KILLED, MIXED, SILENT, leader, primary};
use crate::harness::{Alone, Pool};
use std::fs::File;
use std::time::{Duration, Instant};

/// How long a link stays cut: longer than a lease.
const CUT: Duration = Duration::from_millis(4500);

/// The bricks of one set lie on servers 1 and 2; server 0 has none.
const APART: [(usize, &str); 2] = [(1, "b"), (2, "b")];

fn cut_and_repair(pool: &Pool, writer: &Writer, what: &str, cut: impl FnOnce(&Pool)) {
    writer.longest();
    cut(pool);
    let until = Instant::now() + CUT;
    writer.went_on();
    std::thread::sleep(until.saturating_duration_since(Instant::now()));
    writer.went_on();
    let pause = writer.longest();
    println!("{what}: longest pause {:?} ({})", pause.took, pause.what);
    assert!(pause.took < SILENT, "{what}: {:?} is more than {SILENT:?}", pause.took);
    pool.network.as_ref().unwrap().repair();
    writer.went_on();
    all_in_sync(pool);
    let pause = writer.longest();
    println!("{what}, repaired: longest pause {:?} ({})", pause.took, pause.what);
    assert!(pause.took < KILLED, "{what}, repaired: {:?} is more than {KILLED:?}", pause.took);
}

/// Nobody hears a server, nor it anybody.
#[test]
fn servers_cut_off() {
    let alone = Alone::after_set_up();
    let pool = Pool::in_network(3);
    pool.volume("v", 2, &MIXED);
    let mount = pool.mount("v");
    alone.measures();
    let writer = Writer::start(&mount, &[]);
    let first = leader(&pool);
    cut_and_repair(&pool, &writer, "leader with a primary cut off", |p| {
        p.network.as_ref().unwrap().isolate(first)
    });
    let other = (0..3).find(|i| *i != leader(&pool)).unwrap();
    cut_and_repair(&pool, &writer, "server with a primary cut off", |p| {
        p.network.as_ref().unwrap().isolate(other)
    });
    let model = writer.stop();
    alone.measured();
    verify(&pool, &MIXED, 2, &model, Kept::All);
}

/// The two bricks of a set do not hear each other, in both directions or one, while all others do.
#[test]
fn links_between_two_bricks() {
    let alone = Alone::after_set_up();
    let mut pool = Pool::in_network(3);
    // What was on its way while the link was cut arrives later, and may be of an earlier healing.
    pool.expect_errors(&["could not be applied", "is not as the change expects"]);
    pool.volume("v", 2, &APART);
    let mount = pool.mount("v");
    alone.measures();
    let writer = Writer::start(&mount, &[]);
    let pair = |pool: &Pool| {
        let first = primary(pool, 2, 0);
        (first, if first == 1 { 2 } else { 1 })
    };
    let (first, second) = pair(&pool);
    cut_and_repair(&pool, &writer, "primary and secondary, both ways", |p| {
        p.network.as_ref().unwrap().cut(first, second);
        p.network.as_ref().unwrap().cut(second, first);
    });
    let (first, second) = pair(&pool);
    cut_and_repair(&pool, &writer, "primary to secondary", |p| {
        p.network.as_ref().unwrap().cut(first, second)
    });
    let (first, second) = pair(&pool);
    cut_and_repair(&pool, &writer, "secondary to primary", |p| {
        p.network.as_ref().unwrap().cut(second, first)
    });
    let model = writer.stop();
    alone.measured();
    verify(&pool, &APART, 2, &model, Kept::All);
}

/// The primary and the store's leader do not hear each other, in one direction; both hear everybody else.
#[test]
fn links_between_primary_and_leader() {
    let alone = Alone::after_set_up();
    let pool = Pool::in_network(3);
    pool.volume("v", 2, &APART);
    let mount = pool.mount("v");
    alone.measures();
    let writer = Writer::start(&mount, &[]);
    for (what, there) in [("primary to leader", true), ("leader to primary", false)] {
        let (first, leads) = (primary(&pool, 2, 0), leader(&pool));
        let (from, to) = if there { (first, leads) } else { (leads, first) };
        // Where one server is both, there is no link to cut but the one to the third.
        let to = if from == to { 0 } else { to };
        cut_and_repair(&pool, &writer, what, |p| p.network.as_ref().unwrap().cut(from, to));
    }
    let model = writer.stop();
    alone.measured();
    verify(&pool, &APART, 2, &model, Kept::All);
}

/// Only a sync is under way when the link to the secondary breaks: no change tells that it is silent.
#[test]
fn a_sync_over_a_cut_link() {
    let alone = Alone::after_set_up();
    let pool = Pool::in_network(3);
    pool.volume("v", 2, &APART);
    let mount = pool.mount("v");
    alone.measures();
    for (way, there) in [("secondary to primary", false), ("primary to secondary", true)] {
        let file = File::create(mount.path(way)).unwrap();
        rustix::io::write(&file, b"some bytes").unwrap();
        let first = primary(&pool, 2, 0);
        let second = if first == 1 { 2 } else { 1 };
        let (from, to) = if there { (first, second) } else { (second, first) };
        pool.network.as_ref().unwrap().cut(from, to);
        let begun = Instant::now();
        file.sync_all().unwrap();
        println!("sync, {way} cut: {:?}", begun.elapsed());
        assert!(begun.elapsed() < SILENT, "{:?}", begun.elapsed());
        pool.network.as_ref().unwrap().repair();
        all_in_sync(&pool);
    }
}

//! The right to grant locks, over a network that delays, loses and repeats, with clocks that do not run alike and primaries
//! that follow each other: no two clients have it at a time.
#![allow(clippy::unwrap_used, reason = "test code")]

use client_core::lock_right::{Ask, LockRight};
use ids::SessionId;
use namespace::lock_right::{Held, LockRight as Given};
use sim::Prng;
use std::time::Duration;
use wire::op::LockClaim;

/// Milliseconds of one step.
const STEP: u64 = 100;

struct Client {
    right: LockRight,
    /// Thousandths of how fast its clock runs.
    speed: u64,
    /// It wants locks.
    wants: bool,
    /// Until then it neither sends nor hears anything.
    cut_off: u64,
    asked: Option<(Ask, u64)>,
}

enum Message {
    Hold(Ask),
    Drop(u64),
    Answer(Ask, bool),
}

struct Sent {
    at: u64,
    client: usize,
    epoch: u64,
    message: Message,
}

struct World {
    rng: Prng,
    now: u64,
    epoch: u64,
    primary: Given,
    primary_speed: u64,
    clients: Vec<Client>,
    sent: Vec<Sent>,
    /// How often it was given, and how often it changed hands.
    given: u64,
    last: Option<usize>,
    changed_hands: u64,
}

fn clock(now: u64, speed: u64) -> Duration {
    Duration::from_millis(now * speed / 1000)
}

impl World {
    fn new(seed: u64) -> World {
        let mut rng = Prng::new(seed);
        let speed = |rng: &mut Prng| 900 + rng.draw() % 200;
        let mut primary = Given::default();
        primary.begin(Duration::ZERO, true);
        let client = |rng: &mut Prng| Client {
            right: LockRight::default(),
            speed: speed(rng),
            wants: false,
            cut_off: 0,
            asked: None,
        };
        let clients = (0..3).map(|_| client(&mut rng)).collect();
        let primary_speed = speed(&mut rng);
        World {
            rng,
            now: 0,
            epoch: 1,
            primary,
            primary_speed,
            clients,
            sent: Vec::new(),
            given: 0,
            last: None,
            changed_hands: 0,
        }
    }

    fn send(&mut self, client: usize, message: Message) {
        let delay = if self.rng.below(10) == 0 { self.rng.draw() % 40_000 } else { self.rng.draw() % 300 };
        if self.rng.below(8) > 0 {
            self.sent.push(Sent { at: self.now + delay, client, epoch: self.epoch, message });
        }
    }

    fn step(&mut self) {
        self.now += STEP;
        if self.rng.below(300) == 0 {
            self.epoch += 1;
            self.primary_speed = 900 + self.rng.draw() % 200;
            self.primary.begin(clock(self.now, self.primary_speed), false);
        }
        for i in 0..self.clients.len() {
            self.act(i);
        }
        let due = |s: &Sent, now| s.at <= now;
        let now = self.now;
        let arrived: Vec<Sent> = self.sent.extract_if(.., |s| due(s, now)).collect();
        for sent in arrived {
            self.arrive(sent);
        }
        let valid = |c: &&Client| c.right.is_valid(clock(now, c.speed));
        assert!(self.clients.iter().filter(valid).count() <= 1, "two have it at {now} ms");
    }

    fn act(&mut self, i: usize) {
        let (now, wakes, cuts) = (self.now, self.rng.below(200) == 0, self.rng.below(400) == 0);
        let length = self.rng.draw() % 40_000;
        let c = &mut self.clients[i];
        c.wants ^= wakes;
        if cuts {
            c.cut_off = now + length;
        }
        if now < c.cut_off {
            return;
        }
        let at = clock(now, c.speed);
        if !c.wants {
            if let Some(term) = c.right.give_up() {
                c.asked = None;
                self.send(i, Message::Drop(term));
            }
            return;
        }
        let timeout = u64::try_from(LockRight::TIMEOUT.as_millis()).unwrap();
        match &c.asked {
            // It is sent again, as long as it makes sense.
            Some((ask, since)) if (now - since) * c.speed / 1000 < timeout => {
                let ask = ask.clone();
                if self.rng.below(5) == 0 {
                    self.send(i, Message::Hold(ask));
                }
            }
            _ if !c.right.is_held() || c.right.wants_renewal(at) => {
                let ask = c.right.ask(at);
                c.asked = Some((ask.clone(), now));
                self.send(i, Message::Hold(ask));
            }
            _ => c.asked = None,
        }
    }

    fn arrive(&mut self, sent: Sent) {
        let Sent { client, epoch, message, .. } = sent;
        let session = SessionId(client as u64);
        let at = clock(self.now, self.primary_speed);
        match message {
            _ if self.now < self.clients[client].cut_off => {}
            // What was meant for an earlier primary is refused.
            Message::Hold(_) | Message::Drop(_) if epoch != self.epoch => {}
            Message::Hold(ask) => match self.primary.hold(at, (session, ask.term), &ask.claim) {
                Held::Given => {
                    self.given += 1;
                    self.changed_hands += u64::from(self.last.replace(client) != Some(client));
                    self.send(client, Message::Answer(ask, true));
                }
                Held::Taken => self.send(client, Message::Answer(ask, false)),
                Held::Wait => {}
            },
            Message::Drop(term) => self.primary.release(at, (session, term)),
            Message::Answer(ask, given) => {
                let c = &mut self.clients[client];
                // Only the answer to what it waits for is heard.
                if c.asked.as_ref().is_none_or(|(asked, _)| *asked != ask) {
                    return;
                }
                c.asked = None;
                if given {
                    c.right.given(&ask);
                } else if ask.claim != LockClaim::New {
                    c.right.taken();
                }
            }
        }
    }
}

#[test]
fn no_two_clients_have_it() {
    let (mut given, mut changed_hands) = (0, 0);
    for seed in 0..300 {
        let mut world = World::new(seed);
        for _ in 0..6000 {
            world.step();
        }
        given += world.given;
        changed_hands += world.changed_hands;
    }
    assert!(given > 10_000 && changed_hands > 1000, "the test does what it is for: {given} {changed_hands}");
}

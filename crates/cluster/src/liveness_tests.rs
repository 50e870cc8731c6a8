use super::*;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn leader(servers: u64) -> Liveness {
    let mut l = Liveness::default();
    step(&mut l, 0, Input::Servers((1..=servers).map(ServerId).collect()));
    step(&mut l, 0, Input::BecameLeader);
    l
}

fn step(l: &mut Liveness, now: u64, input: Input) -> Vec<Output> {
    let mut out = Vec::new();
    l.step(ms(now), input, &mut out);
    out
}

fn beat(l: &mut Liveness, now: u64, server: u64) -> Vec<Output> {
    step(l, now, Input::Heartbeat(ServerId(server)))
}

#[test]
fn silence_is_down_after_a_lease_and_only_once() {
    let mut l = leader(2);
    assert_eq!(beat(&mut l, 1000, 1), [Output::Renew(ServerId(1))]);
    assert_eq!(step(&mut l, 3000, Input::Tick), []);
    assert_eq!(step(&mut l, 3300, Input::Tick), [Output::Down(ServerId(2))]);
    assert_eq!(step(&mut l, 3400, Input::Tick), []);
    assert_eq!(l.down(), BTreeSet::from([ServerId(2)]));
    assert_eq!(beat(&mut l, 3500, 2), [Output::Up(ServerId(2)), Output::Renew(ServerId(2))]);
    assert!(l.down().is_empty());
    assert_eq!(l.silent_for(ms(3600), ServerId(2)), Some(ms(100)));
}

#[test]
fn a_new_leader_waits_a_full_lease() {
    let mut l = leader(1);
    step(&mut l, 100, Input::LostLeadership);
    assert_eq!(step(&mut l, 50_000, Input::Tick), [], "a follower detects no failures");
    assert_eq!(beat(&mut l, 50_000, 1), []);
    step(&mut l, 60_000, Input::BecameLeader);
    assert_eq!(step(&mut l, 63_000, Input::Tick), []);
    assert_eq!(step(&mut l, 63_200, Input::Tick), [Output::Down(ServerId(1))]);
}

#[test]
fn servers_join_with_a_fresh_lease_and_leave_unjudged() {
    let mut l = leader(1);
    step(&mut l, 10_000, Input::Servers(BTreeSet::from([ServerId(5)])));
    assert_eq!(step(&mut l, 12_000, Input::Tick), []);
    assert_eq!(beat(&mut l, 12_000, 1), [], "no longer of the pool");
    assert_eq!(step(&mut l, 14_000, Input::Tick), [Output::Down(ServerId(5))]);
}

#[test]
fn a_shorter_lease_does_not_shorten_those_given() {
    let mut l = leader(1);
    beat(&mut l, 1000, 1);
    step(&mut l, 1100, Input::Lease(ms(1000)));
    assert_eq!(step(&mut l, 4000, Input::Tick), [], "it may count on 1000 + 3000");
    assert_eq!(step(&mut l, 4200, Input::Tick), [Output::Down(ServerId(1))]);
}

#[test]
fn a_new_leader_knows_the_longer_leases_that_its_predecessor_gave() {
    let mut l = Liveness::default();
    step(&mut l, 0, Input::Servers(BTreeSet::from([ServerId(1)])));
    step(&mut l, 0, Input::Lease(ms(60_000)));
    // Another server leads, and renews until the option is lowered; then this one leads.
    step(&mut l, 10_000, Input::Lease(ms(1000)));
    step(&mut l, 10_100, Input::BecameLeader);
    assert_eq!(step(&mut l, 69_900, Input::Tick), [], "a lease may run until 10,000 + 60,000");
    assert_eq!(step(&mut l, 74_000, Input::Tick), [Output::Down(ServerId(1))]);
}

#[test]
fn a_lease_keeps_its_margin_for_clocks_when_the_option_is_lowered() {
    let mut l = leader(1);
    step(&mut l, 0, Input::Lease(ms(60_000)));
    beat(&mut l, 1000, 1);
    step(&mut l, 1100, Input::Lease(ms(1000)));
    assert_eq!(step(&mut l, 64_700, Input::Tick), [], "1000 + 60,000 and a sixteenth of it");
    assert_eq!(step(&mut l, 64_800, Input::Tick), [Output::Down(ServerId(1))]);
}

#[test]
fn a_server_that_half_of_the_others_miss_is_not_renewed() {
    let mut l = leader(4);
    let suspect =
        |l: &mut Liveness, now, by| step(l, now, Input::Suspect { by: ServerId(by), server: ServerId(4) });
    suspect(&mut l, 1000, 1);
    suspect(&mut l, 1000, 4);
    assert_eq!(beat(&mut l, 1100, 4), [Output::Renew(ServerId(4))], "one voice is not enough");
    suspect(&mut l, 1200, 2);
    assert_eq!(beat(&mut l, 1300, 4), [Output::Deny(ServerId(4))]);
    for server in 1..4 {
        beat(&mut l, 3500, server);
    }
    assert_eq!(step(&mut l, 4100, Input::Tick), [], "its last lease still runs");
    assert_eq!(step(&mut l, 4300, Input::Tick), [Output::Down(ServerId(4))]);
    assert_eq!(
        beat(&mut l, 9000, 4),
        [Output::Up(ServerId(4)), Output::Renew(ServerId(4))],
        "old voices fade"
    );
}

#[test]
fn a_servers_lease_counts_from_the_sending() {
    let mut lease = ServerLease::default();
    assert!(!lease.is_valid(ms(0)));
    lease.renewed(ms(1000), LEASE);
    assert!(lease.is_valid(ms(3999)) && !lease.is_valid(ms(4000)));
    lease.renewed(ms(500), LEASE);
    assert_eq!(lease.remaining(ms(3000)), ms(1000), "a late answer takes nothing away");
    lease.drop_now();
    assert!(!lease.is_valid(ms(1001)) && lease.remaining(ms(1001)).is_zero());
}

#[test]
fn no_schedule_lets_both_believe() {
    // The server sends every 500 ms with a delay of up to 700 ms, until its network dies; the leader ticks every 100 ms.
    for delay in [0, 100, 700] {
        for death in (5000..8000).step_by(70) {
            let (mut l, mut lease) = (leader(1), ServerLease::default());
            for now in (0..20_000).step_by(10) {
                let arrives = now >= delay && (now - delay) % 500 == 0 && now < death;
                if arrives && beat(&mut l, now, 1).contains(&Output::Renew(ServerId(1))) {
                    lease.renewed(ms(now - delay), LEASE);
                }
                if now % 100 == 0 && !step(&mut l, now, Input::Tick).is_empty() {
                    assert!(!lease.is_valid(ms(now)), "delay {delay}, death {death}");
                }
            }
            assert_eq!(l.down().len(), 1);
        }
    }
}

/// It may be the one that complains which is cut off.
#[test]
fn one_voice_of_two_cuts_no_server_off() {
    let mut l = leader(3);
    let suspect =
        |l: &mut Liveness, by| step(l, 1000, Input::Suspect { by: ServerId(by), server: ServerId(3) });
    suspect(&mut l, 1);
    assert_eq!(beat(&mut l, 1100, 3), [Output::Renew(ServerId(3))]);
    suspect(&mut l, 2);
    assert_eq!(beat(&mut l, 1200, 3), [Output::Deny(ServerId(3))]);
}

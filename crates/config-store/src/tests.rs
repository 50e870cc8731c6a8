use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use cluster::{Command, OptionChange, Outcome, Proposal, Refusal, Role, hex};
use ids::ServerId;
use openraft::testing::{StoreBuilder, Suite};

use crate::{
    ConfigStore, OpenError, ProposeError,
    db::{self, Db},
    log::Log,
    machine::Machine,
    testing::{Folder, LIMIT, Pool, mark_command, options, server},
    types::{StorageError, TypeConfig},
};

struct Builder;

impl StoreBuilder<TypeConfig, Log, Machine, Folder> for Builder {
    async fn build(&self) -> Result<(Folder, Log, Machine), StorageError> {
        let folder = Folder::new();
        let db = std::sync::Arc::new(Db::open(&folder.0, None).unwrap());
        Ok((folder, Log { db: db.clone() }, Machine::open(db).unwrap()))
    }
}

#[test]
fn openrafts_own_suite_of_storage() {
    Suite::test_all(Builder).unwrap();
}

#[tokio::test]
async fn a_pool_of_one_survives_restarts() {
    let mut pool = Pool::new(1).await;
    pool.mark("a").await;
    let before = pool.stores[&1].state();
    pool.kill(1).await;
    pool.start(1).await;
    pool.mark("b").await;
    assert_eq!(pool.stores[&1].state().pool, before.pool);
    pool.stores[&1].init_pool(hex::encode(5), server(1)).await.unwrap();
    assert_eq!(pool.stores[&1].state().pool, before.pool, "a pool begins once");
    let refused = pool.stores[&1].propose(Command::StopVolume { name: "v".into() }).await;
    assert_eq!(refused, Err(ProposeError::Refused(Refusal::NotStarted { name: "v".into() })));
}

#[tokio::test]
async fn a_killed_leader_is_replaced_and_all_agree_after_restarts() {
    let mut pool = Pool::new(3).await;
    pool.adjust_voters(&[1, 2, 3]).await;
    pool.mark("a").await;
    let leader = pool.leader().unwrap();
    let started = Instant::now();
    pool.kill(leader).await;
    pool.mark("b").await;
    assert!(started.elapsed().as_millis() < 5000, "{:?}", started.elapsed());
    pool.start(leader).await;
    pool.wait_marked("b").await;
    for n in 1..=3 {
        pool.kill(n).await;
    }
    for n in 1..=3 {
        pool.start(n).await;
    }
    pool.mark("c").await;
    pool.wait_marked("c").await;
    let same = |p: &Pool| p.stores.values().all(|s| s.state() == p.stores[&1].state());
    pool.wait_until(same, "identical states").await;
    let roles: Vec<_> = pool.stores[&1].state().servers.values().map(|s| s.role).collect();
    assert_eq!(roles, [Role::Voter; 3]);
}

#[tokio::test]
async fn a_minority_may_be_cut_off_and_a_majority_may_not() {
    let pool = Pool::new(3).await;
    pool.adjust_voters(&[1, 2, 3]).await;
    let leader = pool.leader().unwrap();
    pool.hub.cut(&[ServerId(leader)]);
    let others: Vec<u64> = (1..=3).filter(|n| *n != leader).collect();
    pool.stores[&others[0]].propose_anywhere(mark_command("a"), LIMIT).await.unwrap();
    assert!(!pool.stores[&leader].confirm_leader().await, "a leader that is cut off does not confirm itself");
    assert!(!pool.is_marked(leader, "a"));
    pool.hub.cut(&[]);
    pool.wait_marked("a").await;
    pool.hub.cut(&[ServerId(others[0]), ServerId(others[1])]);
    let within = std::time::Duration::from_millis(500);
    let tried = pool.stores[&leader].propose_anywhere(mark_command("b"), within).await;
    assert!(matches!(tried, Err(ProposeError::Unavailable { .. })), "{tried:?}");
    pool.hub.cut(&[]);
    pool.mark("c").await;
    pool.wait_marked("c").await;
}

#[tokio::test]
async fn followers_forward_and_read_the_latest() {
    let pool = Pool::new(3).await;
    pool.adjust_voters(&[1, 2, 3]).await;
    let leader = pool.leader().unwrap();
    let follower = &pool.stores[&(leader % 3 + 1)];
    let refused = follower.propose(mark_command("x")).await;
    assert!(
        matches!(&refused, Err(ProposeError::NotLeader { leader: Some((id, _)) }) if id.0 == leader),
        "{refused:?}"
    );
    for round in 0..20 {
        let mark = format!("m{round}");
        pool.stores[&leader].propose(mark_command(&mark)).await.unwrap();
        let state = follower.linearizable_state(LIMIT).await.unwrap();
        assert_eq!(state.volume("v").unwrap().options["user.mark"], mark);
    }
    assert!(pool.stores[&leader].confirm_leader().await && !follower.confirm_leader().await);
    assert_eq!(follower.leader().unwrap().1, format!("h{leader}:1"));
    assert_eq!(*follower.watch_leader().borrow(), Some(ServerId(leader)));
}

#[tokio::test]
async fn a_command_sent_twice_is_applied_once() {
    let pool = Pool::new(3).await;
    let proposal = Proposal { id: 77, command: Command::AddServer(server(9)) };
    for n in [1, 2, 3] {
        let outcome = pool.stores[&n].propose_named(proposal.clone(), LIMIT).await;
        assert_eq!(outcome, Ok(Outcome::Server(ServerId(4))));
    }
}

#[tokio::test]
async fn watchers_see_every_version() {
    let pool = Pool::new(2).await;
    let mut watch = pool.stores[&2].watch();
    pool.mark("w").await;
    let state = watch.wait_for(|s| s.volume("v").is_some_and(|v| v.options.contains_key("user.mark"))).await;
    assert!(state.unwrap().version >= 4);
}

#[tokio::test]
async fn many_options_in_one_command_take_no_time() {
    let pool = Pool::new(3).await;
    let change = |i| OptionChange { volume: "v".into(), key: format!("user.k{i}"), value: Some("1".into()) };
    let started = Instant::now();
    let changes = (0..150).map(change).collect();
    pool.stores[&1].propose_anywhere(Command::SetOptions { changes }, LIMIT).await.unwrap();
    assert!(started.elapsed().as_millis() < 1000);
}

#[tokio::test]
async fn a_server_may_move() {
    let mut pool = Pool::new(3).await;
    pool.adjust_voters(&[1, 2, 3]).await;
    let moved = pool.leader().unwrap() % 3 + 1;
    let to = Command::SetServerAddress { server: ServerId(moved), address: "elsewhere:7".into() };
    let left = pool.leader().unwrap();
    pool.stores[&left].propose_anywhere(to, LIMIT).await.unwrap();
    pool.hub.unplug(&format!("h{moved}:1"));
    pool.stores.remove(&moved).unwrap().shutdown().await;
    pool.start_at(moved, "elsewhere:7").await;
    pool.mark("moved").await;
    pool.wait_marked("moved").await;
}

#[tokio::test]
async fn voters_follow_the_size_of_the_pool_and_replace_the_dead() {
    let mut pool = Pool::new(2).await;
    pool.adjust_voters(&[1]).await;
    pool.grow(3).await;
    pool.adjust_voters(&[1, 2, 3]).await;
    pool.grow(4).await;
    pool.mark("four").await;
    pool.kill(2).await;
    for store in pool.stores.values() {
        store.report_down(ServerId(2));
    }
    pool.adjust_voters(&[1, 3, 4]).await;
    pool.start(2).await;
    for store in pool.stores.values() {
        store.report_up(ServerId(2));
    }
    pool.grow(5).await;
    pool.adjust_voters(&[1, 2, 3, 4, 5]).await;
    pool.stores[&1].remove_server(ServerId(5), false).await.unwrap();
    pool.kill(5).await;
    pool.wait_until(|p| p.stores.values().all(|s| s.metrics().voters.len() == 3), "three voters of four")
        .await;
    let gone = |s: &ConfigStore| !s.metrics().learners.contains(&ServerId(5));
    pool.wait_until(|p| p.stores.values().all(gone), "server 5 is out").await;
}

#[tokio::test]
async fn a_leader_may_leave_its_pool() {
    let mut pool = Pool::new(4).await;
    pool.adjust_voters(&[1, 2, 3]).await;
    pool.stores[&1].propose_anywhere(Command::DeleteVolume { name: "v".into() }, LIMIT).await.unwrap();
    let leader = pool.leader().unwrap();
    pool.stores[&leader].remove_server(ServerId(leader), false).await.unwrap();
    let rest = |p: &Pool| p.leader().is_some_and(|n| n != leader);
    pool.wait_until(rest, "another leader").await;
    pool.kill(leader).await;
    let out = |s: &ConfigStore| !s.metrics().voters.contains(&ServerId(leader));
    pool.wait_until(|p| p.stores.values().all(|s| out(s) && s.metrics().voters.len() == 3), "it is out")
        .await;
}

/// A server that was detached begins a store of its own, and may answer the leader on the connection that it still has.
#[tokio::test]
async fn a_follower_that_has_lost_its_log_ends_no_leader() {
    let mut pool = Pool::new(4).await;
    pool.adjust_voters(&[1, 2, 3]).await;
    pool.mark("before").await;
    pool.wait_marked("before").await;
    pool.kill(4).await;
    ConfigStore::wipe(pool.folder(4)).unwrap();
    pool.start_at(4, "h4:1").await;
    pool.mark("after").await;
    pool.wait_marked("after").await;
    pool.mark("end").await;
    pool.wait_marked("end").await;
}

#[tokio::test]
async fn a_late_server_gets_a_snapshot() {
    let mut pool = Pool::new(1).await;
    for i in 0..120 {
        pool.mark(&format!("m{i}")).await;
    }
    pool.wait_until(|p| p.stores[&1].inner_purged() > 0, "the log is dropped after a snapshot").await;
    pool.grow(2).await;
    pool.wait_marked("m119").await;
    pool.kill(2).await;
    pool.kill(1).await;
    pool.start(1).await;
    pool.start(2).await;
    pool.mark("end").await;
    pool.wait_marked("end").await;
}

#[tokio::test]
async fn one_server_goes_on_alone_when_told_to() {
    let mut pool = Pool::new(3).await;
    pool.adjust_voters(&[1, 2, 3]).await;
    pool.mark("a").await;
    pool.wait_marked("a").await;
    for n in 1..=3 {
        pool.kill(n).await;
    }
    let plan = ConfigStore::plan_recovery(pool.folder(2)).unwrap();
    let recovery = ConfigStore::recover_single(pool.folder(2), ServerId(2)).unwrap();
    assert_eq!(recovery, plan);
    assert_eq!(recovery.lost, ["h1", "h3"]);
    assert!(
        recovery.notes.iter().any(|n| n.contains("set 1 of volume v is offline")),
        "{:?}",
        recovery.notes
    );
    pool.start(2).await;
    pool.mark("b").await;
    assert!(pool.stores[&2].metrics().voters == [ServerId(2)].into());
    let state = pool.stores[&2].state();
    assert!(state.servers[&ServerId(1)].lost && state.volume("v").is_some());
    // The old majority comes back by mistake: it must not take over.
    pool.start(1).await;
    pool.start(3).await;
    pool.wait_until(|p| p.stores[&1].is_leader() || p.stores[&3].is_leader(), "the old pool elects").await;
    pool.stores[&2].propose(mark_command("c")).await.unwrap();
    assert!(pool.is_marked(2, "c") && !pool.is_marked(1, "c"));
    let nothing = Folder::new();
    let refused = ConfigStore::recover_single(&nothing.0, ServerId(1));
    assert!(matches!(refused, Err(OpenError::NoPool { .. })));
}

#[tokio::test]
async fn strangers_are_refused() {
    let mut pool = Pool::new(1).await;
    let other = Pool::new(1).await;
    pool.hub.plug("h2:1", &other.stores[&1]);
    pool.stores[&1].add_server(server(2)).await.unwrap();
    pool.mark("a").await;
    assert!(other.stores[&1].state().volume("v").unwrap().options.is_empty(), "pools do not mix");
    assert!(other.stores[&1].handle(b"nonsense".to_vec()).await.is_err());
    let identity = server(1).identity;
    assert_eq!(pool.stores[&1].check_identity(ServerId(1), &identity), Ok(()));
    assert!(pool.stores[&1].check_identity(ServerId(1), "other").is_err());
    pool.kill(1).await;
    let end = pool.hub.end(ServerId(2));
    let wrong = ConfigStore::open(pool.folder(1), ServerId(2), end, options()).await;
    let wrong = wrong.err().unwrap().to_string();
    assert!(
        wrong.ends_with("use the state folder of server 2") && wrong.contains("belongs to server 1"),
        "{wrong}"
    );
    assert_eq!(ConfigStore::stored_server(pool.folder(1)).unwrap(), Some(ServerId(1)));
    ConfigStore::wipe(pool.folder(1)).unwrap();
    assert_eq!(ConfigStore::stored_server(pool.folder(1)).unwrap(), None);
}

/// openraft adds to terms and indices without looking: the largest ones would end the process.
#[tokio::test]
async fn terms_and_entries_out_of_reach_are_refused() {
    use crate::rpc::{Body, FORMAT, Reply, Request};
    use crate::types::{LogId, Vote};
    use openraft::CommittedLeaderId;
    use openraft::raft::{AppendEntriesRequest, VoteRequest};
    let pool = Pool::new(1).await;
    pool.mark("a").await;
    let term = pool.stores[&1].metrics().term;
    let id = |term, index| Some(LogId::new(CommittedLeaderId::new(term, 2), index));
    let append = |prev_log_id| {
        Body::Append(AppendEntriesRequest {
            vote: Vote::new(term, 2),
            prev_log_id,
            entries: Vec::new(),
            leader_commit: prev_log_id,
        })
    };
    let bodies = [
        Body::Vote(VoteRequest { vote: Vote::new(u64::MAX, 2), last_log_id: None }),
        Body::Vote(VoteRequest { vote: Vote::new(u64::MAX >> 1, 2), last_log_id: None }),
        Body::Vote(VoteRequest { vote: Vote::new(term, 2), last_log_id: id(1, u64::MAX) }),
        append(id(1, u64::MAX)),
        append(id(u64::MAX, 1)),
    ];
    for body in bodies {
        let said = format!("{body:?}");
        let request =
            Request { format: FORMAT, pool: String::new(), from: ServerId(2), to: ServerId(1), body };
        let answer = pool.stores[&1].handle(serde_json::to_vec(&request).unwrap()).await.unwrap();
        let answer: Reply = serde_json::from_slice(&answer).unwrap();
        assert!(matches!(&answer, Reply::Failed(why) if why.contains("far beyond")), "{said}: {answer:?}");
    }
    let recover = pool.stores[&1].propose(cluster::Command::RecoverPool { server: ServerId(1) }).await;
    assert!(recover.unwrap_err().to_string().contains("on a server that is stopped"));
    pool.mark("b").await;
}

#[tokio::test]
async fn a_damaged_file_is_named() {
    let mut pool = Pool::new(1).await;
    for i in 0..20 {
        pool.mark(&format!("m{i}")).await;
    }
    pool.kill(1).await;
    let folder = pool.folder(1).to_path_buf();
    let file = folder.join(db::FILE);
    let whole = std::fs::read(&file).unwrap();
    let mut seen = BTreeMap::new();
    // A panic ends a server even where it would be caught here.
    let panics = Arc::new(AtomicUsize::new(0));
    let (counter, me, report) = (panics.clone(), std::thread::current().id(), std::panic::take_hook());
    std::panic::set_hook(Box::new(move |info| {
        counter.fetch_add(usize::from(std::thread::current().id() == me), Ordering::Relaxed);
        report(info);
    }));
    // Every part of a value that is stored in the clear, the file's head, and places of every page.
    let values = whole.windows(9).enumerate().filter(|(_, w)| *w == b"user.mark").map(|(at, _)| at);
    let pages = (0..whole.len()).step_by(4096).filter(|at| whole[*at..][..4096].iter().any(|b| *b != 0));
    let places = pages.flat_map(|at| [at, at + 2, at + 9, at + at / 4096 * 37 % 4096]);
    for at in values.chain(0..320).chain(places) {
        let mut bad = whole.clone();
        bad[at] ^= 0x10;
        std::fs::write(&file, &bad).unwrap();
        let opened = std::panic::catch_unwind(|| Db::open(&folder, Some(ServerId(1))).map(drop));
        let kind = match &opened {
            Err(_) => "panic",
            Ok(Ok(())) => "fine",
            Ok(Err(e @ OpenError::Corrupt { .. })) => {
                assert!(e.to_string().contains("pool.redb: it is damaged"), "{e}");
                "corrupt"
            }
            Ok(Err(_)) => "other",
        };
        *seen.entry(kind).or_insert(0) += 1;
    }
    assert!(seen.get("corrupt").is_some_and(|n| *n > 0) && !seen.contains_key("panic"), "{seen:?}");
    assert_eq!(panics.load(Ordering::Relaxed), 0, "panics inside");
    std::fs::write(&file, &whole[..whole.len() / 2]).unwrap();
    assert!(Db::open(pool.folder(1), Some(ServerId(1))).is_err());
    std::fs::write(&file, b"not a database").unwrap();
    let e = Db::open(pool.folder(1), Some(ServerId(1))).err().unwrap();
    assert!(e.to_string().contains("it is damaged"), "{e}");
}

#[tokio::test]
async fn a_newer_file_is_refused() {
    let folder = Folder::new();
    let db = Db::open(&folder.0, Some(ServerId(1))).unwrap();
    let batch = db::Batch { format: Some(db::FORMAT + 1), ..db::Batch::default() };
    db.write(&batch, redb::Durability::Immediate).unwrap();
    drop(db);
    let e = Db::open(&folder.0, Some(ServerId(1))).err().unwrap();
    assert!(e.to_string().ends_with("this program knows up to 1: update it"), "{e}");
}

#[tokio::test]
async fn a_crash_at_any_time_leaves_a_file_that_opens() {
    let pool = Pool::new(1).await;
    let copy = Folder::new();
    for i in 0..60 {
        let mark = format!("m{i}");
        pool.mark(&mark).await;
        // What a kill leaves behind: the file as it is, never closed.
        std::fs::copy(pool.folder(1).join(db::FILE), copy.0.join(db::FILE)).unwrap();
        let db = Db::open(&copy.0, Some(ServerId(1))).unwrap_or_else(|e| panic!("after {mark}: {e}"));
        let last = db.last_entry().unwrap().unwrap().index;
        assert_eq!(last, pool.stores[&1].metrics().last_log, "what was answered is on disk");
    }
}

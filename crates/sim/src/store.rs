//! The model of the pool store: one register of views with compare-and-set, and the servers' leases.

use crate::Mutant;
use crate::client::ToClient;
use crate::log::say;
use crate::server::ToServer;
use crate::world::{Event, World, server_of};
use core::time::Duration;
use ids::{BrickId, Epoch};
use replica::{Proposal, View};
use std::collections::{BTreeMap, BTreeSet};
use wire::peer::Stamp;

/// How long a lease lasts, from the moment it is asked for, on the server's clock.
pub(crate) const LEASE: Duration = Duration::from_secs(3);
/// How long the store waits, from the moment it grants one, on its own clock: longer than any clock makes of a lease.
const GRACE: Duration = Duration::from_millis(3030);

/// A server says that it lives.
pub(crate) struct Renewal {
    pub(crate) server: usize,
    pub(crate) inc: u32,
    /// Until when the lease will hold, on its clock.
    pub(crate) lease: Duration,
    /// The epochs in which its bricks were opened: they act only in newer ones.
    pub(crate) floors: Vec<(usize, Epoch)>,
    /// Sets whose brick there has diverged, and the epoch in which it says so.
    pub(crate) leaving: Vec<(usize, Epoch)>,
    /// Sets whose brick there has been through a power cut, and where its journal ends now.
    pub(crate) torn: Vec<(usize, Stamp)>,
}

pub(crate) enum ToStore {
    Renew(Renewal),
    Propose { set: usize, server: usize, inc: u32, proposal: Proposal },
    Ask { client: usize },
}

pub(crate) struct Store {
    pub(crate) views: Vec<View>,
    /// It has no leader: nothing is heard or said.
    pub(crate) down: bool,
    renewed: Vec<Duration>,
    /// Bricks that may have lost the end of their journal, and where it ends, once their servers said so. That the store
    /// knows of a power cut at once stands for this: of all whole bricks of a set, none else fails within that lease.
    torn: BTreeMap<BrickId, Option<Stamp>>,
}

impl Store {
    pub(crate) fn new(views: Vec<View>, servers: usize) -> Store {
        Store { views, down: false, renewed: vec![Duration::ZERO; servers], torn: BTreeMap::new() }
    }

    /// The brick was made equal to the primary's.
    pub(crate) fn healed(&mut self, brick: BrickId) {
        self.torn.remove(&brick);
    }

    /// The power of a brick's server failed.
    pub(crate) fn torn(&mut self, brick: BrickId) {
        self.torn.insert(brick, None);
    }

    /// A view without a live whole brick with data would wait for one that may never come back, or lack changes.
    fn stands(&self, in_sync: &BTreeSet<BrickId>, view: &View, now: Duration) -> bool {
        let data = in_sync.iter().filter(|b| !view.arbiters.contains(b));
        data.into_iter().any(|b| self.lives(*b, now, GRACE) && !self.torn.contains_key(b))
    }

    /// A new leader gives everybody the time to be heard.
    pub(crate) fn up(&mut self, now: Duration) {
        self.down = false;
        self.renewed.iter_mut().for_each(|r| *r = now);
    }

    /// Whether the brick's server is heard of.
    fn lives(&self, brick: BrickId, now: Duration, grace: Duration) -> bool {
        self.renewed.get(server_of(brick)).is_some_and(|r| now < *r + grace)
    }

    /// The view that should follow, seeing who lives.
    fn revise(&self, view: &View, now: Duration, grace: Duration) -> Option<View> {
        let data = |b: &BrickId| !view.arbiters.contains(b);
        let whole = |b: &BrickId| !self.torn.contains_key(b);
        let fit = |b: &BrickId| self.lives(*b, now, grace) && whole(b);
        let mut next = view.clone();
        if view.in_sync.iter().any(|b| data(b) && fit(b)) {
            next.in_sync.retain(fit);
            next.primary = view.primary.filter(fit).or(next.in_sync.iter().copied().find(data));
        } else if let Some(last) = self.longest(view, now, grace) {
            next.in_sync = BTreeSet::from([last]);
            next.primary = Some(last);
        } else if view.primary.is_some_and(|p| !self.lives(p, now, grace) || !whole(&p)) {
            // Whichever whole brick comes back first goes on.
            next.primary = None;
        }
        (next != *view).then(|| View { epoch: view.epoch.next(), ..next })
    }

    /// After a power cut of all: when all are back, the brick whose journal reaches furthest.
    fn longest(&self, view: &View, now: Duration, grace: Duration) -> Option<BrickId> {
        let data = || view.in_sync.iter().filter(|b| !view.arbiters.contains(b));
        let back =
            |b: &&BrickId| self.lives(**b, now, grace) && self.torn.get(b).is_some_and(|s| s.is_some());
        if data().count() != data().filter(back).count() {
            return None;
        }
        data().max_by_key(|b| self.torn.get(b).and_then(Option::as_ref).map(|s| (s.epoch, s.lsn))).copied()
    }
}

impl World {
    pub(crate) fn send_store(&mut self, s: usize, what: ToStore) {
        if !self.servers[s].cut {
            let delay = self.rng.millis(1, 30) + self.servers[s].slow;
            self.after(delay, Event::Store(what));
        }
    }

    pub(crate) fn on_store(&mut self, what: ToStore) {
        if self.store.down {
            return;
        }
        match what {
            ToStore::Renew(renewal) => self.renew(renewal),
            ToStore::Propose { set, server, inc, proposal } => {
                if self.servers[server].inc == inc {
                    self.propose(set, proposal);
                }
            }
            ToStore::Ask { client } => {
                let delay = self.rng.millis(1, 20);
                let what = ToClient::Views(self.store.views.clone());
                self.after(delay, Event::Client { client, what });
            }
        }
    }

    fn renew(&mut self, r: Renewal) {
        if self.servers[r.server].inc != r.inc {
            return;
        }
        self.store.renewed[r.server] = self.now;
        for (set, stamp) in r.torn {
            // Said before it was healed, heard after: no longer true.
            let brick = &self.servers[r.server].bricks[&set];
            if brick.torn {
                self.store.torn.insert(brick.id, Some(stamp));
            }
        }
        for (set, epoch) in r.leaving {
            if self.store.views[set].epoch == epoch {
                self.leave(r.server, set);
            }
        }
        for (set, floor) in r.floors {
            let brick = self.servers[r.server].bricks[&set].id;
            let view = &self.store.views[set];
            if view.epoch == floor && view.in_sync.contains(&brick) {
                let next = View { epoch: view.epoch.next(), ..view.clone() };
                self.agree(set, next, "a brick was opened");
            }
        }
        self.revise_all();
        if self.servers[r.server].cut {
            return;
        }
        let mine = |v: &usize| self.servers[r.server].bricks.contains_key(v);
        let views = self.store.views.iter().cloned().enumerate().filter(|(i, _)| mine(i)).collect();
        let what = ToServer::Granted { views, lease: r.lease };
        let delay = self.rng.millis(1, 30) + self.servers[r.server].slow;
        self.after(delay, Event::Server { server: r.server, inc: r.inc, what });
    }

    /// A brick that diverged leaves the view; the last one with data is opened anew instead: what it failed to apply was
    /// never answered.
    fn leave(&mut self, s: usize, set: usize) {
        let brick = self.servers[s].bricks[&set].id;
        let view = &self.store.views[set];
        let rest = view.in_sync.iter().copied().filter(|b| *b != brick).collect();
        let others = self.store.stands(&rest, view, self.now);
        let alone = !rest.iter().any(|b| !view.arbiters.contains(b));
        if !view.in_sync.contains(&brick) {
            return;
        }
        if others || view.arbiters.contains(&brick) {
            let mut next = View { epoch: view.epoch.next(), ..view.clone() };
            next.in_sync.remove(&brick);
            next.primary = view.primary.filter(|p| *p != brick);
            self.agree(set, next, "a brick diverged");
        } else if alone {
            let inc = self.servers[s].inc;
            self.after(
                Duration::from_millis(50),
                Event::Server { server: s, inc, what: ToServer::Reopen(set) },
            );
        }
    }

    fn propose(&mut self, set: usize, p: Proposal) {
        let view = &self.store.views[set];
        if view.epoch != p.expect {
            return;
        }
        if !p.in_sync.is_subset(&view.in_sync) || p.primary.is_some_and(|b| !p.in_sync.contains(&b)) {
            let what = format!("views: proposal {p:?} does not fit {view:?}");
            return self.fail(|| what);
        }
        if !self.store.stands(&p.in_sync, view, self.now) {
            return;
        }
        let next = View { epoch: view.epoch.next(), primary: p.primary, in_sync: p.in_sync, ..view.clone() };
        self.agree(set, next, p.reason);
    }

    /// The store agrees on a view and tells everybody.
    pub(crate) fn agree(&mut self, set: usize, view: View, why: &str) {
        say!(
            self,
            "set {set}: epoch {} primary {:?} in sync {:?}: {why}",
            view.epoch,
            view.primary,
            view.in_sync
        );
        if let Some(what) = self.checks.views.agreed(&self.store.views[set], &view) {
            self.fail(|| what);
        }
        self.store.views[set] = view.clone();
        for s in 0..self.servers.len() {
            let server = &self.servers[s];
            if server.alive && !server.cut && server.bricks.contains_key(&set) {
                let inc = server.inc;
                let delay = self.rng.millis(1, 60) + self.servers[s].slow;
                let what = ToServer::View(set, view.clone());
                self.after(delay, Event::Server { server: s, inc, what });
            }
        }
        for client in 0..self.clients.len() {
            let delay = self.rng.millis(1, 100);
            self.after(delay, Event::Client { client, what: ToClient::View(set, view.clone()) });
        }
    }

    fn revise_all(&mut self) {
        let grace = if self.mutant(Mutant::HastyStore) { Duration::from_millis(900) } else { GRACE };
        for set in 0..self.sets.len() {
            if let Some(next) = self.store.revise(&self.store.views[set], self.now, grace) {
                if let Some(p) = next.primary.filter(|p| self.store.torn.remove(p).is_some()) {
                    say!(self, "set {set}: {p} goes on after the power cut");
                    self.servers[server_of(p)].bricks.get_mut(&set).expect("it is there").torn = false;
                }
                self.agree(set, next, "who lives");
            }
        }
    }

    pub(crate) fn store_tick(&mut self) {
        self.after(Duration::from_millis(100), Event::StoreTick);
        if !self.store.down {
            self.revise_all();
        }
    }
}

//! Directories that another set answers for than the one that told of them ([`client_core::homes`]).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock};

use client_core::homes::{Homes, directories};
use ids::{Fid, SetId};
use wire::{Body, Call, Errno, Op};

use crate::call::{Client, Core};
use crate::files::Object;
use crate::layer::Request;
use crate::payload::Payload;
use crate::wait;

/// How often an operation follows its directories before its caller is told that they are gone.
pub(crate) const FOLLOWS: u32 = 4;

/// What all threads know of them.
#[derive(Debug, Default)]
pub(crate) struct KnownHomes {
    /// Whether there are any: mostly there are none.
    any: AtomicBool,
    homes: RwLock<Homes>,
}

impl KnownHomes {
    fn look<T>(&self, look: impl FnOnce(&Homes) -> T) -> Option<T> {
        let any = self.any.load(Ordering::Acquire);
        any.then(|| look(&self.homes.read().unwrap_or_else(PoisonError::into_inner)))
    }

    fn change(&self, change: impl FnOnce(&mut Homes)) {
        let mut homes = self.homes.write().unwrap_or_else(PoisonError::into_inner);
        change(&mut homes);
        self.any.store(!homes.is_empty(), Ordering::Release);
    }

    /// Has a request go to the sets that answer for its directories.
    pub(crate) fn redirect(&self, call: &mut Call) -> bool {
        self.look(|homes| homes.redirect(call)) == Some(true)
    }

    /// The set that answers for the object, if it is a directory of which another one is known than was told.
    pub(crate) fn of(&self, fid: Fid, told: SetId) -> SetId {
        self.look(|homes| homes.of(fid, told)).unwrap_or(told)
    }

    pub(crate) fn forget(&self, fid: Fid) {
        if self.of(fid, SetId(0)) != SetId(0) {
            self.change(|homes| homes.forget(fid));
        }
    }
}

impl Client {
    /// Returns when everything acknowledged about a directory is on disk. Its set is looked for first: the one that had it has only
    /// a copy, and would say that this is on disk. What was changed there before has come to disk as the directory moved, unless it
    /// was lost earlier.
    ///
    /// # Errors
    /// As `fsync`.
    pub fn fsync_dir(&self, object: Object) -> Result<(), Errno> {
        let home = self.getattr(object)?.home;
        self.fsync(Object { home, ..object })?;
        let generation = self.core.current();
        let mut is_lost = false;
        for set in generation.by_map.iter().map(|route| route.set).filter(|set| *set != home) {
            if let Some(route) = generation.route(set) {
                is_lost |= route.state.state().leave(object.fid, generation.by_map.lost_before(set)).1;
            }
        }
        if is_lost { Err(Errno::EIO) } else { Ok(()) }
    }

    /// A set has said that it does not have what it was asked about. Whether that is about a directory that another set answers for
    /// by now, which is asked next.
    pub(crate) fn follow(&self, call: &mut Call) -> bool {
        let asked = directories(call).into_iter();
        let found: Vec<(Fid, SetId)> =
            asked.filter_map(|(dir, at)| self.core.search(dir, at).map(|home| (dir, home))).collect();
        if found.is_empty() {
            return false;
        }
        self.core.homes.change(|homes| found.iter().for_each(|(dir, home)| homes.note(*dir, *home)));
        self.core.homes.redirect(call)
    }
}

impl Core {
    /// Another set answers for the directory that a request asks about, as it was told. Whether that set is to be asked.
    pub(crate) fn go_there(&self, call: &mut Call, (dir, home): (Fid, SetId)) -> bool {
        let asked = call.set;
        if home == asked || !matches!(call.op, Op::GetAttr { fid } if fid == dir) {
            return false;
        }
        self.homes.change(|homes| homes.note(dir, home));
        self.homes.redirect(call)
    }

    /// What a set says of the directory.
    fn attr_there(&self, set: SetId, dir: Fid) -> Result<Body, Errno> {
        let call = Call::unsent(set, Op::GetAttr { fid: dir });
        self.route(&mut Request { call, payload: &[], into: &mut Payload::new() })
    }

    /// The set that answers for the directory, other than the one that was asked. That one may know: it is believed, also if the
    /// other one does not serve now, as whoever uses the directory waits for its set. Otherwise one that is not served now, or does
    /// not answer in time, is left out, as most objects that are asked for in vain are gone.
    fn search(&self, dir: Fid, asked: SetId) -> Option<SetId> {
        match self.attr_there(asked, dir) {
            Ok(Body::Elsewhere { fid, home, .. }) if fid == dir && home != asked => return Some(home),
            // It is there: what was not found is something else.
            Ok(_) => return None,
            Err(_) => {}
        }
        let generation = self.current();
        let others = generation.by_map.iter().filter(|route| route.set != asked && route.server.is_some());
        let sets: Vec<SetId> = others.map(|route| route.set).collect();
        let is_there = |answer| matches!(answer, Ok(Body::Attr { attr }) if attr.fid == dir && attr.is_dir());
        let search = || sets.into_iter().find(|set| is_there(self.attr_there(*set, dir)));
        wait::at_most(self.options.network_timeout, search)
    }
}

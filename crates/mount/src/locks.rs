//! Locks of files: granted here to this mount's processes, as long as this mount alone has the right to.
//!
//! Asks for the right with the first lock, keeps it while there are locks and a moment longer, and gives it back. Who waits
//! for a lock waits without holding up other requests. What the rules of locks are is in [`crate::lock_table`], who has the
//! right in [`client_core::lock_right`].
//!
//! Always true: a lock is granted only while the right is valid. A program whose lock may be somebody else's by now neither
//! reads nor writes through that open file: it waits until it is known, and gets `EIO` if it is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use client::{Client, LockRight, wait};
use fuse::wait::{Fd, PollFlags, Wake};
use fuse::{Errno, Lock, LockKind, LockOp, Request};
use rustix::event::{EventfdFlags, eventfd};

use crate::convert::errno;
use crate::lock_table::{Ask, Family, LockTable, Place, Refused};

/// How long the right is kept when there are no locks any more.
const LINGER: Duration = Duration::from_secs(1);
/// How long a program waits for the right that another mount has: it may be about to give it back.
const GIVE_WAY: Duration = Duration::from_millis(1500);
/// How often the right is looked after.
const TURN: Duration = Duration::from_millis(250);
/// How long the end of the mount waits for the right to be given back.
const LAST: Duration = Duration::from_secs(1);
/// Between two lines of the log about locks that are refused.
const QUIET: Duration = Duration::from_secs(60);

/// The locks of a mount.
pub(crate) struct Locks {
    client: Arc<Client>,
    state: Mutex<State>,
    /// How many files have locks: most requests need to know no more.
    files: AtomicUsize,
    /// Until when the right is valid, in nanoseconds of [`now`].
    valid_until: AtomicU64,
    /// Whether some open files have lost their locks.
    some_lost: AtomicBool,
}

#[derive(Default)]
struct State {
    table: LockTable,
    right: LockRight,
    /// A request about the right is under way that has to end before another one begins.
    asking: bool,
    /// Whether a thread looks after the right.
    kept: bool,
    /// Whether the log has told that the right ran out.
    told: bool,
    /// Open files whose locks are lost.
    lost: BTreeSet<u64>,
    /// Who waits for locks to go.
    waiting: BTreeMap<Place, Vec<Arc<OwnedFd>>>,
    /// When a lock was last granted or dropped.
    used: Duration,
    complained: Option<Duration>,
}

impl Locks {
    pub(crate) fn new(client: Arc<Client>) -> Arc<Locks> {
        Arc::new(Locks {
            client,
            state: Mutex::default(),
            files: AtomicUsize::new(0),
            valid_until: AtomicU64::new(0),
            some_lost: AtomicBool::new(false),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The table has changed.
    fn note(&self, state: &mut State) {
        state.used = now();
        self.files.store(state.table.files(), Ordering::Release);
    }

    /// The right has changed.
    fn note_right(&self, state: &mut State) {
        let until = state.right.until().unwrap_or_default().as_nanos();
        self.valid_until.store(u64::try_from(until).unwrap_or(u64::MAX), Ordering::Release);
        state.told = false;
    }

    /// The lock that is in the way of this one. Those of other mounts are not known.
    pub(crate) fn test(&self, node: u64, op: &LockOp) -> Lock {
        let found = ask(op).and_then(|ask| self.lock().table.test((node, family(op)), &ask));
        match found {
            None => Lock { kind: LockKind::Unlock, ..op.lock },
            Some(r) => {
                let kind = if r.exclusive { LockKind::Write } else { LockKind::Read };
                Lock { start: r.start, end: r.end, kind, pid: r.pid }
            }
        }
    }

    /// Grants a lock, or drops one. Whoever may wait waits until it is granted, or a signal comes.
    pub(crate) fn set(
        self: &Arc<Self>,
        req: &Request<'_>,
        node: u64,
        op: &LockOp,
        wait: bool,
    ) -> Result<(), Errno> {
        let place = (node, family(op));
        let Some(ask) = ask(op) else { return self.unset(place, op) };
        loop {
            let mut state = self.with_right(req)?;
            match state.table.set(place, &ask) {
                Ok(()) => {
                    // A lock of the whole file may have become a shared one.
                    state.wake(place);
                    self.note(&mut state);
                    return Ok(());
                }
                Err(Refused::TooMany) => return Err(Errno::ENOLCK),
                Err(Refused::Conflict) if !wait => {
                    state.wake(place);
                    self.note(&mut state);
                    return Err(Errno::EAGAIN);
                }
                Err(Refused::Conflict) => {}
            }
            let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
            let bell = Arc::new(bell.map_err(|e| Errno::from_raw(e.raw_os_error()))?);
            let number = state.table.begin_wait(place, &ask).ok_or(Errno::EDEADLK)?;
            state.wake(place);
            state.waiting.entry(place).or_default().push(Arc::clone(&bell));
            self.note(&mut state);
            drop(state);
            let waited =
                fuse::wait::aside(|| fuse::wait::poll(&mut [Fd::new(bell.as_fd(), PollFlags::IN)], None));
            let mut state = self.lock();
            state.table.end_wait(number);
            state.forget_waiting(place, &bell);
            match waited {
                Some(Ok(Wake::Ready | Wake::TimedOut)) => {}
                Some(Ok(Wake::Interrupted)) => return Err(Errno::EINTR),
                Some(Err(e)) => {
                    tracing::error!("cannot wait for a lock: {e}");
                    return Err(Errno::EIO);
                }
                None => return Err(Errno::ENOLCK),
            }
        }
    }

    fn unset(&self, place: Place, op: &LockOp) -> Result<(), Errno> {
        let mut state = self.lock();
        let range = (op.lock.start, op.lock.end);
        state.table.unset(place, op.owner, range).map_err(|_| Errno::ENOLCK)?;
        state.wake(place);
        self.note(&mut state);
        Ok(())
    }

    /// A descriptor was closed: its process has no `fcntl` locks on the file any more.
    pub(crate) fn flush(&self, node: u64, owner: u64) {
        if self.files.load(Ordering::Acquire) == 0 {
            return;
        }
        let (mut state, place) = (self.lock(), (node, Family::Ranges));
        if state.table.drop_owner(place, owner) {
            state.wake(place);
            self.note(&mut state);
        }
    }

    /// The last descriptor of an open file was closed.
    pub(crate) fn release(&self, node: u64, handle: u64) {
        let (files, some_lost) = (self.files.load(Ordering::Acquire), self.some_lost.load(Ordering::Acquire));
        if files == 0 && !some_lost {
            return;
        }
        let mut state = self.lock();
        state.lost.remove(&handle);
        self.some_lost.store(!state.lost.is_empty(), Ordering::Release);
        if state.table.release(node, handle) {
            state.wake((node, Family::Ranges));
            state.wake((node, Family::Whole));
            self.note(&mut state);
        }
    }

    /// Whether something may be done through an open file: who had locks through it may have lost them. Waits until it is
    /// known.
    pub(crate) fn check(&self, handle: u64) -> Result<(), Errno> {
        if !self.some_lost.load(Ordering::Acquire) {
            let valid = || u128::from(self.valid_until.load(Ordering::Acquire)) > now().as_nanos();
            if self.files.load(Ordering::Acquire) == 0 || valid() {
                return Ok(());
            }
        }
        loop {
            {
                let state = self.lock();
                if state.lost.contains(&handle) {
                    return Err(Errno::EIO);
                }
                if !state.right.is_expired(now()) || !state.table.has_handle(handle) {
                    return Ok(());
                }
            }
            self.client.pause(TURN).map_err(errno)?;
        }
    }

    /// The state, while the right is valid. Asks for the right where this mount does not have it.
    fn with_right(self: &Arc<Self>, req: &Request<'_>) -> Result<MutexGuard<'_, State>, Errno> {
        let begun = Instant::now();
        loop {
            let mut state = self.lock();
            let at = now();
            if state.right.is_valid(at) && !state.asking {
                return Ok(state);
            }
            if req.interrupted() {
                return Err(Errno::EINTR);
            }
            if self.client.soft().is_some_and(|soft| begun.elapsed() >= soft) {
                return Err(Errno::ETIMEDOUT);
            }
            if state.asking || state.right.is_held() {
                drop(state);
                self.client.pause(Duration::from_millis(2)).map_err(errno)?;
                continue;
            }
            state.asking = true;
            let ask = state.right.ask(at);
            drop(state);
            let answer = self.client.hold_locks(ask.term, ask.claim.clone(), LockRight::TIMEOUT);
            let mut state = self.lock();
            state.asking = false;
            match answer {
                Ok(()) => {
                    state.right.given(&ask);
                    self.note_right(&mut state);
                    state.used = now();
                    drop(state);
                    self.keep()?;
                }
                Err(wire::Errno::ETIMEDOUT) => {}
                Err(wire::Errno::ENOLCK) if begun.elapsed() < GIVE_WAY => {
                    drop(state);
                    self.client.pause(Duration::from_millis(100)).map_err(errno)?;
                }
                Err(e) => {
                    if e == wire::Errno::ENOLCK && state.may_complain(at) {
                        tracing::warn!(
                            volume = self.client.volume(),
                            "a lock is refused (ENOLCK): programs of another mount of the volume have locks; only one \
                             mount at a time can have them"
                        );
                    }
                    return Err(errno(e));
                }
            }
        }
    }

    /// Looks after the right, on a thread of its own, until it is given back or lost.
    fn keep(self: &Arc<Self>) -> Result<(), Errno> {
        if std::mem::replace(&mut self.lock().kept, true) {
            return Ok(());
        }
        let locks = Arc::clone(self);
        let work = move || wait::with_hook(wait::plain, || while locks.look_after() {});
        let spawned = std::thread::Builder::new().name("mortar-locks".to_owned()).spawn(work);
        spawned.map(drop).map_err(|e| {
            tracing::error!("no thread for locks: {e}");
            let mut state = self.lock();
            state.kept = false;
            self.give_back(state);
            Errno::ENOLCK
        })
    }

    /// One turn; false when there is nothing more to do.
    fn look_after(&self) -> bool {
        // The mount ends with an error: the right is given back, if at all, at its end.
        let goes_on = self.client.pause(TURN).is_ok();
        let mut state = self.lock();
        if !goes_on || !state.right.is_held() {
            state.kept = false;
            return false;
        }
        let at = now();
        if state.table.files() == 0 && at >= state.used + LINGER && !state.asking {
            self.give_back(state);
            // Somebody may have asked for it again.
            return true;
        }
        if state.right.is_expired(at) && !std::mem::replace(&mut state.told, true) {
            tracing::warn!(
                volume = self.client.volume(),
                "the servers could not be asked for {} s whether locks still hold: programs that have some wait",
                LockRight::USE.as_secs()
            );
        }
        if state.right.wants_renewal(at) {
            let ask = state.right.ask(at);
            drop(state);
            let answer = self.client.hold_locks(ask.term, ask.claim.clone(), LockRight::TIMEOUT);
            let mut state = self.lock();
            match answer {
                Ok(()) => {
                    state.right.given(&ask);
                    self.note_right(&mut state);
                }
                Err(wire::Errno::ENOLCK) => self.lose(&mut state),
                Err(e) => tracing::debug!("locks: {e}"),
            }
        }
        true
    }

    /// Another mount has had the right meanwhile.
    fn lose(&self, state: &mut State) {
        state.right.taken();
        let handles = state.table.handles();
        tracing::error!(
            volume = self.client.volume(),
            open_files = handles.len(),
            "locks are lost: this mount was cut off, and another one has taken locks meanwhile; whoever had locks gets EIO \
             from the files until he closes them"
        );
        state.lost.extend(handles);
        self.some_lost.store(!state.lost.is_empty(), Ordering::Release);
        state.table.clear();
        for bells in std::mem::take(&mut state.waiting).into_values() {
            bells.iter().for_each(|bell| ring(bell));
        }
        self.note(state);
        self.note_right(state);
    }

    /// Gives the right back, if there is one.
    fn give_back(&self, mut state: MutexGuard<'_, State>) {
        let Some(term) = state.right.give_up() else { return };
        self.note_right(&mut state);
        state.asking = true;
        drop(state);
        if let Err(e) = self.client.drop_locks(term, LockRight::TIMEOUT) {
            tracing::debug!("locks: the right is not given back: {e}");
        }
        self.lock().asking = false;
    }

    /// The mount is gone: others need not wait until the right has run out.
    pub(crate) fn end(self: &Arc<Self>) {
        if !self.lock().right.is_held() {
            return;
        }
        let (send, done) = std::sync::mpsc::channel();
        let locks = Arc::clone(self);
        let work = move || {
            wait::with_hook(wait::plain, || locks.give_back(locks.lock()));
            send.send(()).ok();
        };
        if std::thread::Builder::new().spawn(work).is_ok() {
            done.recv_timeout(LAST).ok();
        }
    }
}

/// The time, on a clock that runs through suspension.
fn now() -> Duration {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(t.tv_sec.unsigned_abs(), u32::try_from(t.tv_nsec).unwrap_or(0))
}

impl State {
    /// Those who wait look again.
    fn wake(&mut self, place: Place) {
        self.waiting.remove(&place).iter().flatten().for_each(|bell| ring(bell));
    }

    fn forget_waiting(&mut self, place: Place, bell: &Arc<OwnedFd>) {
        if let Some(bells) = self.waiting.get_mut(&place) {
            bells.retain(|b| !Arc::ptr_eq(b, bell));
            if bells.is_empty() {
                self.waiting.remove(&place);
            }
        }
    }

    fn may_complain(&mut self, now: Duration) -> bool {
        let may = self.complained.is_none_or(|at| now >= at + QUIET);
        if may {
            self.complained = Some(now);
        }
        may
    }
}

fn ring(bell: &OwnedFd) {
    // Any number but 0 will do; a full counter is readable, too.
    rustix::io::write(bell, &[1, 0, 0, 0, 0, 0, 0, 1]).ok();
}

/// Whether a file that is opened so is likely to be locked with `fcntl`. What is only read, or begins empty, rarely is.
pub(crate) fn are_likely(flags: i32) -> bool {
    flags & libc::O_ACCMODE != libc::O_RDONLY && flags & (libc::O_EXCL | libc::O_TRUNC) == 0
}

fn family(op: &LockOp) -> Family {
    if op.flock { Family::Whole } else { Family::Ranges }
}

/// `None`: it is to be dropped.
fn ask(op: &LockOp) -> Option<Ask> {
    let exclusive = match op.lock.kind {
        LockKind::Read => false,
        LockKind::Write => true,
        LockKind::Unlock => return None,
    };
    let (owner, range, pid, handle) = (op.owner, (op.lock.start, op.lock.end), op.lock.pid, op.fh);
    Some(Ask { owner, range, exclusive, pid, handle })
}

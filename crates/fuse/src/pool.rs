//! The worker threads, leader and followers.
//!
//! Always true while the session runs: the device is read by at most one
//! thread (`State::leader`); and if it is read by none, then a thread is on
//! its way to it (woken or just spawned), or all threads allowed are serving
//! requests and the first to finish takes over.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use rustix::io::Errno as Os;

use crate::abi::op;
use crate::buffer::Buffers;
use crate::dispatch::Handler;
use crate::request::Header;
use crate::session::SessionConfig;
use crate::wait;
use crate::worker::Worker;

/// The most threads that wait for something that may take hours.
const ASIDE_MAX: usize = 1000;

pub(crate) struct Pool {
    device: Arc<OwnedFd>,
    handler: Handler,
    config: SessionConfig,
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    /// Whether some thread is the leader.
    leader: bool,
    /// Set once, when the device is gone or failed.
    ended: Option<io::Result<()>>,
    over: bool,
    /// Threads that wait for something that may take hours; others serve in their place.
    aside: usize,
    /// Since when requests may wait in the kernel, as all threads allowed serve others.
    crowded: Option<Instant>,
    workers: Vec<Arc<Worker>>,
    /// Parked threads; the last parked is woken first, its caches are warm.
    idle: Vec<Arc<Worker>>,
    handles: Vec<JoinHandle<()>>,
}

impl Pool {
    pub(crate) fn new(device: Arc<OwnedFd>, handler: Handler, config: SessionConfig) -> Arc<Pool> {
        Arc::new(Pool { device, handler, config, state: Mutex::default(), ended: Condvar::new() })
    }

    /// Serves until the device is gone and every thread has ended.
    pub(crate) fn run(self: &Arc<Pool>) -> io::Result<()> {
        let mut state = self.lock();
        if let Err(error) = self.spawn(&mut state) {
            state.over = true;
            return Err(error);
        }
        let result = loop {
            if let Some(result) = state.ended.take() {
                break result;
            }
            state = self.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
        };
        let handles = std::mem::take(&mut state.handles);
        drop(state);
        for handle in handles {
            if handle.join().is_err() {
                tracing::error!("worker thread panicked");
            }
        }
        result
    }

    pub(crate) fn destroy(&self) {
        self.handler.fs.destroy();
    }

    pub(crate) fn device(&self) -> &OwnedFd {
        &self.device
    }

    /// The calling leader gives the device to another thread, before it blocks.
    pub(crate) fn promote(self: &Arc<Pool>, me: &Worker) {
        assert!(me.leading(), "only the leader promotes");
        me.set_leading(false);
        let mut state = self.lock();
        state.leader = false;
        if state.over {
            return;
        }
        if let Some(next) = state.idle.pop() {
            drop(state);
            next.unpark();
        } else {
            self.spawn_if_allowed(&mut state);
        }
    }

    fn spawn_if_allowed(self: &Arc<Pool>, state: &mut State) {
        if state.workers.len() >= self.config.max_threads.max(1) + state.aside {
            state.crowded.get_or_insert_with(Instant::now);
        } else if let Err(error) = self.spawn(state) {
            tracing::warn!(%error, threads = state.workers.len(), "cannot start another worker thread");
        }
    }

    /// The calling thread is about to wait, perhaps for hours. False: too many do.
    pub(crate) fn step_aside(self: &Arc<Pool>, me: &Worker) -> bool {
        let mut state = self.lock();
        if state.aside >= ASIDE_MAX {
            return false;
        }
        state.aside += 1;
        // All were busy, and nobody reads the device until one of them has finished.
        if !me.leading() && !state.leader && state.idle.is_empty() && !state.over {
            self.spawn_if_allowed(&mut state);
        }
        true
    }

    /// It waits no more.
    pub(crate) fn step_back(&self) {
        self.lock().aside -= 1;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spawn(self: &Arc<Pool>, state: &mut State) -> io::Result<()> {
        state.handles.retain(|handle| !handle.is_finished());
        let worker = Arc::new(Worker::new()?);
        let (pool, me) = (Arc::clone(self), Arc::clone(&worker));
        let handle = std::thread::Builder::new().name("fuse".into()).spawn(move || work(&pool, &me))?;
        state.workers.push(worker);
        state.handles.push(handle);
        Ok(())
    }

    /// Becomes the leader, idling until there is none. False: end this thread.
    fn lead(&self, me: &Arc<Worker>) -> bool {
        let mut state = self.lock();
        loop {
            let position = state.idle.iter().position(|worker| Arc::ptr_eq(worker, me));
            if state.over {
                return false;
            }
            if !state.leader {
                if let Some(position) = position {
                    state.idle.remove(position);
                }
                state.leader = true;
                me.set_leading(true);
                // Nobody else is at a request.
                let all_free = state.workers.len() == state.idle.len() + 1;
                let crowded = state.crowded.take_if(|_| all_free);
                drop(state);
                self.tell_crowded(crowded);
                return true;
            }
            let place = position.unwrap_or(state.idle.len());
            if position.is_none() {
                state.idle.push(Arc::clone(me));
            }
            // There are more threads than requests again.
            let crowded = state.crowded.take();
            drop(state);
            self.tell_crowded(crowded);
            let expired = self.park(place);
            state = self.lock();
            let still = state.idle.iter().position(|worker| Arc::ptr_eq(worker, me));
            if let Some(position) = still
                && expired
                && state.leader
                && state.idle.len() > self.config.keep_idle
            {
                state.idle.remove(position);
                return false;
            }
        }
    }

    fn tell_crowded(&self, since: Option<Instant>) {
        if let Some(since) = since {
            self.handler.fs.was_crowded(since.elapsed(), self.config.max_threads.max(1));
        }
    }

    /// Sleeps until woken; true if for so long that the thread may end.
    fn park(&self, place: usize) -> bool {
        if place < self.config.keep_idle {
            std::thread::park();
            return false;
        }
        let start = Instant::now();
        std::thread::park_timeout(self.config.idle_after);
        start.elapsed() >= self.config.idle_after
    }

    /// Reads and serves one request. An error or `Ok(false)` ends the session.
    fn serve(&self, me: &Worker, buffers: &mut Buffers) -> io::Result<bool> {
        let buffer = buffers.request(self.handler.max_write());
        let len = match rustix::io::read(&*self.device, buffer) {
            Ok(len) => len,
            // A signal, or the request was given up while it was being read.
            Err(Os::INTR | Os::NOENT) => return Ok(true),
            Err(Os::AGAIN) => {
                let mut device = [rustix::event::PollFd::new(&*self.device, rustix::event::PollFlags::IN)];
                return match rustix::event::poll(&mut device, None) {
                    Ok(_) | Err(Os::INTR) => Ok(true),
                    Err(error) => Err(error.into()),
                };
            }
            Err(Os::NODEV | Os::CONNABORTED) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        let (bytes, reply) = buffers.split(len);
        let Ok(header) = Header::parse(bytes) else {
            tracing::error!(len, "kernel sent less than a header");
            return Ok(true);
        };
        if header.opcode == op::INTERRUPT {
            self.interrupt(&header, bytes);
            return Ok(true);
        }
        me.begin(header.unique);
        let result = self.handler.handle(self.device.as_fd(), me, (&header, bytes), reply);
        me.finish();
        result.map(|()| true)
    }

    /// A request is known to its worker before another thread may read the
    /// device, so one that is not found has been answered: no "try again".
    fn interrupt(&self, header: &Header, bytes: &[u8]) {
        use crate::request::Operation;
        let parsed = header.body(bytes).and_then(|body| Operation::parse(header, body, false));
        if let Ok(Operation::Interrupt(unique)) = parsed {
            let found = self.lock().workers.iter().any(|worker| worker.interrupt(unique));
            tracing::trace!(unique, found, "interrupt");
        }
    }

    /// Nobody waits for the answers any more: all waits end.
    fn end(&self, result: io::Result<()>) {
        let mut state = self.lock();
        if !state.over {
            state.over = true;
            state.ended = Some(result);
        }
        for worker in &state.workers {
            worker.interrupt_any();
        }
        for worker in state.idle.drain(..) {
            worker.unpark();
        }
        self.ended.notify_all();
    }

    fn forget_worker(&self, me: &Arc<Worker>) {
        let mut state = self.lock();
        state.workers.retain(|worker| !Arc::ptr_eq(worker, me));
        state.idle.retain(|worker| !Arc::ptr_eq(worker, me));
    }
}

/// A worker thread from start to end.
fn work(pool: &Arc<Pool>, me: &Arc<Worker>) {
    me.enter();
    let _leaving = Leaving { pool, me };
    wait::enter(pool, me);
    let mut buffers = Buffers::new();
    while pool.lead(me) {
        while me.leading() {
            match pool.serve(me, &mut buffers) {
                Ok(true) => {}
                Ok(false) => return pool.end(Ok(())),
                Err(error) => return pool.end(Err(error)),
            }
        }
    }
}

/// Takes a thread out of the pool however it ends.
struct Leaving<'a> {
    pool: &'a Arc<Pool>,
    me: &'a Arc<Worker>,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        wait::leave();
        self.pool.forget_worker(self.me);
        if std::thread::panicking() {
            self.pool.end(Err(io::Error::other("worker thread panicked")));
        }
    }
}

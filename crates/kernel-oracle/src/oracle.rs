//! The oracle: a thread with credentials of its own that asks the kernel.

use crate::answer::{Answer, compare};
use crate::credentials::part_from_process;
use crate::kernel::Kernel;
use ids::Fid;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use wire::{Body, Errno, Op};

type Asked = (Op, Vec<u8>, Option<Fid>);

/// Carries out operations on the machine's tmpfs and tells what the kernel answered.
///
/// It stands for one volume, used by one session. Needs root: it gives files away and makes devices.
pub struct Oracle {
    ask: Option<Sender<Asked>>,
    answers: Receiver<Result<Answer, Errno>>,
    thread: Option<JoinHandle<()>>,
    top: PathBuf,
}

static COUNT: AtomicU64 = AtomicU64::new(0);

/// A fresh directory on a tmpfs, or where temporary files are.
fn fresh_dir() -> io::Result<PathBuf> {
    let name = format!("mortar-oracle-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let memory = Path::new("/dev/shm").join(&name);
    match std::fs::create_dir(&memory) {
        Ok(()) => Ok(memory),
        Err(_) => {
            let other = std::env::temp_dir().join(name);
            std::fs::create_dir(&other).map(|()| other)
        }
    }
}

impl Oracle {
    /// An empty volume with this root.
    ///
    /// # Errors
    /// No directory can be made, or its file system does not do.
    pub fn new(root: Fid) -> io::Result<Oracle> {
        Oracle::start(root, true)
    }

    /// One that knows nothing of [`crate::Difference`]: it answers as Linux does, without exception.
    ///
    /// # Errors
    /// As for [`Oracle::new`].
    pub fn plain(root: Fid) -> io::Result<Oracle> {
        Oracle::start(root, false)
    }

    fn start(root: Fid, differs: bool) -> io::Result<Oracle> {
        let top = fresh_dir()?;
        let (ask, asked) = channel::<Asked>();
        let (tell, answers) = channel();
        let begun = channel();
        let mut oracle = Oracle { ask: Some(ask), answers, thread: None, top: top.clone() };
        let thread = std::thread::Builder::new().name("kernel-oracle".to_owned());
        oracle.thread = Some(thread.spawn(move || {
            let kernel = part_from_process().and_then(|()| Kernel::new(&top, root, differs));
            let mut kernel = match kernel {
                Ok(kernel) => kernel,
                Err(e) => return begun.0.send(Err(e)).unwrap_or(()),
            };
            if begun.0.send(Ok(())).is_err() {
                return;
            }
            while let Ok((op, payload, made)) = asked.recv() {
                if tell.send(kernel.apply(&op, &payload, made)).is_err() {
                    return;
                }
            }
        })?);
        let started = begun.1.recv().map_err(io::Error::other)?;
        started.map_err(|e| io::Error::from_raw_os_error(e.0))?;
        Ok(oracle)
    }

    /// Carries out `op`. `made`: the fid that the tested system gave to a new object, so that both name it alike.
    ///
    /// # Errors
    /// The kernel's refusal, or Mortar's where a [`crate::Difference`] says so; `ESTALE` for an object that has no name and is
    /// not open.
    ///
    /// # Panics
    /// If the oracle's own thread has ended, which it says on the way.
    pub fn apply(&mut self, op: &Op, payload: &[u8], made: Option<Fid>) -> Result<Answer, Errno> {
        let asked = (op.clone(), payload.to_vec(), made);
        let sent = self.ask.as_ref().is_some_and(|ask| ask.send(asked).is_ok());
        assert!(sent, "the oracle's thread has ended");
        self.answers.recv().unwrap_or_else(|_| panic!("the oracle failed at {op:?}"))
    }

    /// Carries out `op` and compares the kernel's answer with the tested system's.
    ///
    /// # Errors
    /// Where the two differ, in words.
    pub fn check<P: AsRef<[u8]>>(
        &mut self,
        op: &Op,
        payload: &[u8],
        ours: &Result<(Body, P), Errno>,
    ) -> Result<(), String> {
        let made = match ours {
            Ok((Body::Attr { attr }, _)) => Some(attr.fid),
            _ => None,
        };
        let kernel = self.apply(op, payload, made);
        compare(op, ours, &kernel)
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        self.ask = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let _ = std::fs::remove_dir_all(&self.top);
    }
}

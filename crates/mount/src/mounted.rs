//! Mounting, serving, ending.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use client::{Client, ConnectError, Object};
use fuse::{Session, SessionConfig, Stopper, Unmount};
use wire::{Errno, Name};

use crate::caller;
use crate::fuse_adapter::FuseAdapter;
use crate::kept::{Kept, Refused};
use crate::options::{Options, SUBTYPE};
use crate::source::Source;

/// How much the kernel reads ahead, in KiB.
const READ_AHEAD: &str = "1024";

/// What to mount where, and how.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// What.
    pub source: Source,
    /// Where.
    pub dir: PathBuf,
    /// How.
    pub options: Options,
}

/// Why a mount failed: one line for the user.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The volume cannot be reached.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The directory of the volume.
    #[error("directory /{subdir} of volume {volume}: {errno}")]
    Subdir {
        /// The volume.
        volume: String,
        /// The directory in it.
        subdir: String,
        /// Why not.
        errno: Errno,
    },
    /// The volume does not answer.
    #[error("volume {volume} does not answer: {errno}")]
    Root {
        /// The volume.
        volume: String,
        /// Why not.
        errno: Errno,
    },
    /// The kernel's side.
    #[error(transparent)]
    Mount(#[from] fuse::MountError),
    /// A remount wants what stays as it was mounted.
    #[error("{refused}, which stays so as long as it is mounted: umount {}, and mount it anew", .dir.display())]
    Kept {
        /// Where it is mounted.
        dir: PathBuf,
        /// What is refused.
        refused: Refused,
    },
}

/// Where keys of volumes are looked for.
const KEYS: &str = "/etc/mortar";

/// A mounted volume that waits to be served.
pub struct Mounted {
    session: Session,
    client: Arc<Client>,
    dir: PathBuf,
}

/// Ends a mount from another thread.
#[derive(Clone)]
pub struct Stop {
    stopper: Stopper,
    client: Arc<Client>,
}

impl MountOptions {
    /// Whether there is a key to show: one that was named, or the volume's in the usual place.
    pub fn has_key(&self) -> bool {
        self.options.client.key.is_some() || usual_key(&self.source.volume).is_some()
    }
}

/// Connects and mounts. Until [`Mounted::run`] every access to the directory waits.
///
/// # Errors
/// One line for the user.
pub fn mount(options: MountOptions) -> Result<Mounted, Failure> {
    let MountOptions { source, dir, options } = options;
    client::wait::set_hook(caller::hook);
    // What is mounted read-only the kernel refuses by itself: it may be mounted read-write later.
    let mut for_client = options.client.clone();
    for_client.key = for_client.key.or_else(|| usual_key(&source.volume));
    let shown = options.fsname.clone().unwrap_or_else(|| source.to_string());
    let kept =
        Kept::of(&Options { client: for_client.clone(), fsname: Some(shown.clone()), ..options.clone() });
    let client = Arc::new(Client::connect(&source.servers, &source.volume, for_client)?);
    let root = root_for_any(&client, &source)?;
    let mut kernel = options.kernel.clone();
    if client.squash().is_some() {
        // Servers check, for another user than the kernel knows. Everybody here makes files of that user: nobody becomes the
        // user of that number on this machine by a setuid program that he has made.
        kernel.default_permissions = false;
        kernel.flags.nosuid = true;
    }
    kernel.source = shown;
    let mount = fuse::Mount::new(&dir, &kernel)?;
    let config = SessionConfig { max_threads: options.threads.max(1), ..SessionConfig::default() };
    let fuse_adapter = Arc::new(FuseAdapter::new(Arc::clone(&client), root, &kept));
    let dir = mount.path().to_path_buf();
    let session = Session::new(Arc::<FuseAdapter>::clone(&fuse_adapter), mount, config);
    fuse_adapter.notify_by(session.notifier(), config.max_threads);
    Ok(Mounted { session, client, dir })
}

/// What is mounted at a directory by this program: its source, as it was written.
pub fn mounted_at(dir: &Path) -> Option<String> {
    fuse::Mount::source_at(dir, SUBTYPE)
}

/// Gives a mount other flags of the kernel's (`ro`, `noatime`, ...). What concerns the client stays as it was mounted.
///
/// # Errors
/// One line for the user, also if he wants that to be otherwise.
pub fn remount(dir: &Path, options: &Options) -> Result<(), Failure> {
    if let Some(refused) = Kept::at(dir).and_then(|kept| kept.refuses(options)) {
        return Err(Failure::Kept { dir: dir.to_path_buf(), refused });
    }
    Ok(fuse::Mount::change_flags(dir, SUBTYPE, options.kernel.flags)?)
}

/// The key of a volume where none is named.
fn usual_key(volume: &str) -> Option<client::Key> {
    let path = Path::new(KEYS).join(format!("{volume}.key"));
    path.exists().then_some(client::Key::File(path))
}

/// The directory to show as the root, found by the first user of those that the key is for who may look it up.
fn root_for_any(client: &Client, source: &Source) -> Result<Object, Failure> {
    let find = |user: &u32| {
        client::user::act_as(*user);
        root(client, source)
    };
    let refused = |found: &Result<_, _>| matches!(found, Err(Failure::Subdir { errno: Errno::EACCES, .. }));
    let mut found = client.users().unwrap_or(&[0]).iter().map(find);
    found.find(|found| !refused(found)).unwrap_or_else(|| root(client, source))
}

/// The directory to show as the root.
fn root(client: &Client, source: &Source) -> Result<Object, Failure> {
    let volume = || source.volume.clone();
    let root = client.root();
    client.getattr(root).map_err(|errno| Failure::Root { volume: volume(), errno })?;
    let fail = |errno| Failure::Subdir { volume: volume(), subdir: source.subdir.clone(), errno };
    source.subdir.split('/').filter(|p| !p.is_empty()).try_fold(root, |at, part| {
        let name = Name::new(part.as_bytes()).map_err(|_| fail(Errno::EINVAL))?;
        let attr = client.lookup(at, &name).map_err(fail)?;
        if attr.is_dir() { Ok(Object::from(&attr)) } else { Err(fail(Errno::ENOTDIR)) }
    })
}

impl Mounted {
    /// A handle that ends the mount.
    pub fn stop_handle(&self) -> Stop {
        Stop { stopper: self.session.stopper(), client: Arc::clone(&self.client) }
    }

    /// The client below, for its counters.
    pub fn client(&self) -> Arc<Client> {
        Arc::clone(&self.client)
    }

    /// Where it is mounted.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Serves until it is unmounted, by whomever. Calls `ready` once the mount answers.
    ///
    /// # Errors
    /// The kernel refused us.
    pub fn run(self, ready: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let dir = self.dir.clone();
        let answering = move || match std::fs::symlink_metadata(&dir) {
            Ok(meta) => {
                read_ahead(&meta);
                ready();
            }
            Err(e) => tracing::error!(dir = %dir.display(), "the mount does not answer: {e}"),
        };
        std::thread::Builder::new().name("mortar-ready".to_owned()).spawn(answering)?;
        let result = self.session.run();
        self.client.stop();
        result
    }
}

/// Lets the kernel read ahead by as much as one request carries. Only root may; it is not needed.
fn read_ahead(meta: &std::fs::Metadata) {
    let dev = std::os::unix::fs::MetadataExt::dev(meta);
    let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
    let path = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
    if let Err(e) = std::fs::write(&path, READ_AHEAD) {
        tracing::debug!("{path}: {e}");
    }
}

impl Stop {
    /// Unmounts; if files are open there, out of the tree at once, and for good when the last one is closed.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn unmount(&self) -> io::Result<()> {
        self.stopper.unmount(Unmount::Clean).or_else(|_| self.stopper.unmount(Unmount::Lazy))
    }

    /// Gives up everything under way and ends, at most after `grace`.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn force(&self, grace: Duration) -> io::Result<()> {
        let result = self.unmount();
        std::thread::sleep(grace);
        self.client.stop();
        self.stopper.unmount(Unmount::Force).and(result)
    }
}

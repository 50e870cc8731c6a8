//! The process that serves a mount.

use super::MountCommand;
use super::background::READY;
use crate::local_key::{another_key, key_for};
use crate::notify::notify_ready;
use crate::output;
use anyhow::Context;
use mount::{GivenKey, Key, MountOptions, Stop};
use std::fs::File;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Mounts and serves until somebody unmounts or SIGTERM or SIGINT comes.
pub(super) fn serve(mut wanted: MountOptions, command: &MountCommand) -> anyhow::Result<()> {
    if command.report {
        // A session of our own: whoever started us may log out.
        rustix::process::setsid().context("begin a session")?;
    }
    // In the background stderr belongs to the parent, for the one line it waits for.
    let log = if command.report {
        command.log.start_in_background("mortar-mount")?
    } else {
        command.log.start()?
    };
    log.reopen_on_hangup()?;
    if !wanted.has_key() {
        wanted.options.client.key = local_key(&wanted)?;
    }
    let mounted = mount::mount(wanted)?;
    let dir = mounted.dir().to_path_buf();
    stop_on_signals(mounted.stop_handle())?;
    let (report, tell_ready) = (command.report, command.tell_ready);
    let shown = dir.display().to_string();
    mounted
        .run(move || {
            tracing::info!("{shown} answers");
            let told = match (report, tell_ready) {
                (true, _) => tell_parent(),
                (_, true) => output::line(&format!("{READY} {shown}")),
                _ => Ok(()),
            };
            notify_ready();
            if let Err(e) = told {
                tracing::warn!("tell that {shown} answers: {e:#}");
            }
        })
        .with_context(|| format!("serve {}", dir.display()))?;
    tracing::info!("{} is unmounted", dir.display());
    Ok(())
}

/// The key of root on a machine where a server of the pool runs; when that is refused, another server of this machine may give
/// one.
fn local_key(wanted: &MountOptions) -> anyhow::Result<Option<Key>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let source = &wanted.source;
    let key = runtime.block_on(key_for(&source.servers, Some(&source.volume)))?;
    let volume = source.volume.clone();
    let times = AtomicUsize::new(0);
    let ask = move |pool| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
        runtime.block_on(another_key(pool, &volume, times.fetch_add(1, Ordering::Relaxed)))
    };
    Ok(key.map(|first| Key::Given(GivenKey::new(first, ask))))
}

/// Says that the mount answers, and lets go of everything that belongs to the one who started us.
fn tell_parent() -> anyhow::Result<()> {
    output::line(READY)?;
    let null = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(std::env::set_current_dir("/")?)
}

/// A first signal unmounts; if that is not done after a while, or at a second one, what is under way is given up and the
/// process ends.
fn stop_on_signals(stop: Stop) -> anyhow::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut term, mut int) = {
        let _inside = runtime.enter();
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?)
    };
    let watch = async move {
        tokio::select! { _ = term.recv() => {}, _ = int.recv() => {} }
        tracing::info!("unmounting");
        if let Err(e) = stop.unmount() {
            tracing::warn!("unmount: {e}");
        }
        tokio::select! { _ = term.recv() => {}, _ = int.recv() => {}, () = tokio::time::sleep(Duration::from_secs(5)) => {} }
        tracing::warn!("the mount is still in use: giving up what is under way");
        if let Err(e) = stop.force(Duration::from_secs(1)) {
            tracing::warn!("unmount by force: {e}");
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
        // What is open, and what a container sees in its own mount namespace, keeps the kernel's side; unmounting ends neither.
        tracing::warn!(
            "files are still open, or another mount namespace has the mount: nothing answers there now"
        );
        std::process::exit(0);
    };
    std::thread::Builder::new().name("mortar-signals".to_owned()).spawn(move || runtime.block_on(watch))?;
    Ok(())
}

//! Mounting without root: `fusermount3` mounts and hands us the device over a
//! socket, which it finds as its standard input.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType, recvmsg,
    socketpair,
};

use super::{MountError, MountOptions};

const HELPER: &str = "fusermount3";

/// Whether the helper is installed.
pub(super) fn exists() -> bool {
    let dirs = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&dirs).any(|dir| dir.join(HELPER).is_file())
}

pub(super) fn mount(path: &Path, options: &MountOptions) -> Result<OwnedFd, MountError> {
    let failed = |action, source: io::Error| MountError::Io { action, path: path.into(), source };
    let pair = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    let (ours, theirs) = pair.map_err(|error| failed("make a socket to mount on", error.into()))?;
    let mut command = Command::new(HELPER);
    command.arg("-o").arg(options.helper_words()).arg("--").arg(path);
    command.env("_FUSE_COMMFD", "0").stdin(theirs).stdout(Stdio::null()).stderr(Stdio::piped());
    let child = command.spawn();
    // It holds the other end of the socket, whose closing we wait for.
    drop(command);
    let child = child.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => MountError::HelperMissing { path: path.into() },
        _ => failed("run fusermount3 for", error),
    })?;
    let received = receive(&ours);
    let message = finish(child).map_err(|error| failed("wait for fusermount3 for", error))?;
    match received {
        Ok(Some(device)) => Ok(device),
        Ok(None) => Err(MountError::HelperFailed { path: path.into(), message }),
        Err(error) => Err(failed("receive the device for", error)),
    }
}

pub(super) fn unmount(path: &Path, lazy: bool) -> io::Result<()> {
    let mut command = Command::new(HELPER);
    command.arg("-u").args(lazy.then_some("-z")).arg("--").arg(path);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let output = command.output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}

/// What the helper had to say.
fn finish(child: Child) -> io::Result<String> {
    let output = child.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Ok(if said.is_empty() { output.status.to_string() } else { said })
}

/// The descriptor sent over the socket; none if it is closed without one.
fn receive(socket: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    let mut byte = [0_u8; 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut byte)];
    rustix::io::retry_on_intr(|| recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC))?;
    let rights = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    Ok(rights)
}

//! One request: parse, call the file system, send the reply.
//!
//! Every request that wants a reply gets exactly one, also when it is
//! malformed, unknown, or the file system panics.

use std::io;
use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use crate::abi::{self, Put, op, out_header};
use crate::buffer::ReplyBuffers;
use crate::data::{Data, DirPlusSink, DirSink};
use crate::errno::Errno;
use crate::filesystem::{Filesystem, Request};
use crate::flags::Capabilities;
use crate::init::{self, InitConfig, Kernel, Version};
use crate::reply;
use crate::request::{Header, Operation};
use crate::worker::Worker;

/// The largest reply we make room for; the kernel asks for less.
const SIZE_MAX: u32 = 1 << 28;

/// What INIT agreed on.
struct Agreed {
    setxattr_ext: bool,
    max_write: usize,
}

/// What is sent back.
enum Answer {
    /// Nothing: the kernel expects none.
    NoReply,
    /// The encoded body (which may be empty).
    Body,
    /// Bytes that lie elsewhere.
    Data(Data),
}

type Handled = Result<Answer, Errno>;

/// The file system and what was agreed with the kernel.
pub(crate) struct Handler {
    pub(crate) fs: Arc<dyn Filesystem>,
    agreed: OnceLock<Agreed>,
}

impl Handler {
    pub(crate) fn new(fs: Arc<dyn Filesystem>) -> Handler {
        Handler { fs, agreed: OnceLock::new() }
    }

    /// The payload a request may carry.
    pub(crate) fn max_write(&self) -> usize {
        self.agreed.get().map_or(1 << 20, |agreed| agreed.max_write)
    }

    /// Serves one request. An error means that the mount cannot go on.
    pub(crate) fn handle(
        &self,
        device: BorrowedFd<'_>,
        worker: &Worker,
        (header, bytes): (&Header, &[u8]),
        mut buffers: ReplyBuffers<'_>,
    ) -> io::Result<()> {
        buffers.body.clear();
        let setxattr_ext = self.agreed.get().is_some_and(|agreed| agreed.setxattr_ext);
        let parsed = header.body(bytes).and_then(|body| Operation::parse(header, body, setxattr_ext));
        let answer = match parsed {
            Ok(operation) => {
                let req = Request {
                    unique: header.unique,
                    uid: header.uid,
                    gid: header.gid,
                    pid: header.pid,
                    worker,
                };
                let call = || self.call(&req, header.node, operation, &mut buffers);
                catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| {
                    tracing::error!(opcode = header.opcode, node = header.node, "file system panicked");
                    Err(Errno::EIO)
                })
            }
            Err(error) => {
                tracing::debug!(opcode = header.opcode, len = header.len, %error, "request not served");
                Err(error)
            }
        };
        send(device, header, &answer, &mut buffers);
        match answer {
            Err(error) if header.opcode == op::INIT => Err(error.into()),
            _ => Ok(()),
        }
    }

    fn call(
        &self,
        req: &Request<'_>,
        node: u64,
        operation: Operation<'_>,
        buffers: &mut ReplyBuffers<'_>,
    ) -> Handled {
        use Operation as O;
        let fs = &*self.fs;
        match operation {
            O::Read(op) => {
                let size = usize::try_from(op.size.min(SIZE_MAX)).unwrap_or(0);
                let data = fs.read(req, &op, buffers.data(size))?;
                check_size(&data, size)?;
                Ok(Answer::Data(data))
            }
            O::Getxattr { size, name } => xattr(buffers.body, size, fs.getxattr(req, node, name, size)?),
            O::Listxattr { size } => xattr(buffers.body, size, fs.listxattr(req, node, size)?),
            O::Readlink => Ok(Answer::Data(Data::Owned(fs.readlink(req, node)?))),
            operation => self.call_encoded(req, node, operation, buffers.body),
        }
    }

    /// The requests whose reply is encoded into `out`.
    fn call_encoded(
        &self,
        req: &Request<'_>,
        node: u64,
        operation: Operation<'_>,
        out: &mut Vec<u8>,
    ) -> Handled {
        use Operation as O;
        let fs = &*self.fs;
        match operation {
            O::Init(kernel) => self.init(&kernel, out),
            // A reply is all the kernel waits for; the session calls `destroy` when the threads have ended.
            O::Destroy => Ok(Answer::Body),
            O::Interrupt(_) | O::NotifyReply => Ok(Answer::NoReply),
            O::Forget(count) => {
                fs.forget(node, count);
                Ok(Answer::NoReply)
            }
            O::BatchForget(list) => {
                fs.batch_forget(list);
                Ok(Answer::NoReply)
            }
            O::Lookup(name) => put(out, fs.lookup(req, node, name)?, reply::entry),
            O::Getattr(fh) => put(out, fs.getattr(req, node, fh)?, reply::attr_reply),
            O::Setattr(op) => put(out, fs.setattr(req, node, &op)?, reply::attr_reply),
            O::Statx(op) => put(out, fs.statx(req, node, &op)?, reply::statx),
            O::Symlink { name, target } => put(out, fs.symlink(req, node, name, target)?, reply::entry),
            O::Mknod(op) => put(out, fs.mknod(req, &op)?, reply::entry),
            O::Mkdir(op) => put(out, fs.mkdir(req, &op)?, reply::entry),
            O::Unlink(name) => done(fs.unlink(req, node, name)),
            O::Rmdir(name) => done(fs.rmdir(req, node, name)),
            O::Rename(op) => done(fs.rename(req, &op)),
            O::Link(op) => put(out, fs.link(req, &op)?, reply::entry),
            O::Open(op) => put(out, fs.open(req, node, &op)?, reply::opened),
            O::Opendir(op) => put(out, fs.opendir(req, node, &op)?, reply::opened),
            O::Create(op) => put(out, fs.create(req, &op)?, created),
            O::Tmpfile(op) => put(out, fs.tmpfile(req, &op)?, created),
            O::Write(op) => put(out, fs.write(req, &op)?, number),
            O::Statfs => put(out, fs.statfs(req, node)?, reply::statfs),
            O::Flush(op) => done(fs.flush(req, node, &op)),
            O::Release(op) => done(fs.release(req, node, &op)),
            O::Fsync { fh, datasync } => done(fs.fsync(req, node, fh, datasync)),
            O::Syncfs => done(fs.syncfs(req, node)),
            O::Setxattr(op) => done(fs.setxattr(req, node, &op)),
            O::Removexattr(name) => done(fs.removexattr(req, node, name)),
            O::Readdir { op, size } => {
                done(fs.readdir(req, node, &op, &mut DirSink::new(out, dir_size(size))))
            }
            O::Readdirplus { op, size } => {
                done(fs.readdirplus(req, node, &op, &mut DirPlusSink::new(out, dir_size(size))))
            }
            O::Releasedir(op) => done(fs.releasedir(req, node, &op)),
            O::Fsyncdir { fh, datasync } => done(fs.fsyncdir(req, node, fh, datasync)),
            O::Getlk(op) => put(out, fs.getlk(req, node, &op)?, reply::lock),
            O::Setlk(op) => done(fs.setlk(req, node, &op)),
            O::Setlkw(op) => done(fs.setlkw(req, node, &op)),
            O::Access(mask) => done(fs.access(req, node, mask)),
            O::Fallocate(op) => done(fs.fallocate(req, node, &op)),
            O::Lseek(op) => put(out, fs.lseek(req, node, &op)?, |out, offset| out.u64(*offset)),
            O::CopyFileRange { op, wide: true } => {
                put(out, fs.copy_file_range(req, &op)?, |out, count| out.u64(*count))
            }
            O::CopyFileRange { op, wide: false } => put(out, narrow(fs.copy_file_range(req, &op)?)?, number),
            O::Ioctl(op) => put(out, fitting(fs.ioctl(req, node, &op)?, op.out_size)?, ioctl),
            O::Poll(op) => put(out, fs.poll(req, node, &op)?, number),
            // Served by `call`.
            O::Read(_) | O::Getxattr { .. } | O::Listxattr { .. } | O::Readlink => Err(Errno::ENOSYS),
        }
    }

    fn init(&self, kernel: &Kernel, out: &mut Vec<u8>) -> Handled {
        let mut config = InitConfig::default_for(kernel);
        if init::version(kernel)? == Version::Renegotiate {
            config.encode(kernel, out);
            return Ok(Answer::Body);
        }
        self.fs.init(kernel, &mut config)?;
        config.normalize(kernel);
        let agreed = Agreed {
            setxattr_ext: config.want.contains(Capabilities::SETXATTR_EXT),
            max_write: usize::try_from(config.max_write).unwrap_or(1 << 20),
        };
        if self.agreed.set(agreed).is_err() {
            return Err(Errno::EPROTO);
        }
        tracing::debug!(?kernel, ?config, "mount is up");
        config.encode(kernel, out);
        Ok(Answer::Body)
    }
}

fn put<T>(out: &mut Vec<u8>, value: T, encode: impl FnOnce(&mut Vec<u8>, &T)) -> Handled {
    encode(out, &value);
    Ok(Answer::Body)
}

fn done(result: Result<(), Errno>) -> Handled {
    result.map(|()| Answer::Body)
}

/// For kernels that take 32 bits.
fn narrow(count: u64) -> Result<u32, Errno> {
    u32::try_from(count).map_err(|_| Errno::EIO)
}

/// The caller has room for so much.
fn fitting(answer: crate::IoctlReply, room: u32) -> Result<crate::IoctlReply, Errno> {
    if u32::try_from(answer.data.len()).is_ok_and(|len| len <= room) { Ok(answer) } else { Err(Errno::EIO) }
}

fn created(out: &mut Vec<u8>, (entry, opened): &(crate::Entry, crate::Opened)) {
    reply::entry(out, entry);
    reply::opened(out, opened);
}

fn number(out: &mut Vec<u8>, value: &u32) {
    reply::number(out, *value);
}

fn ioctl(out: &mut Vec<u8>, answer: &crate::IoctlReply) {
    out.i32(answer.result);
    for unused in [0; 3] {
        out.u32(unused);
    }
    out.bytes(&answer.data);
}

fn dir_size(size: u32) -> usize {
    usize::try_from(size.min(SIZE_MAX)).unwrap_or(0)
}

/// Size 0 asks for the size only.
fn xattr(out: &mut Vec<u8>, size: u32, value: Vec<u8>) -> Handled {
    let len = u32::try_from(value.len()).map_err(|_| Errno::E2BIG)?;
    match size {
        0 => put(out, len, number),
        size if len > size => Err(Errno::ERANGE),
        _ => Ok(Answer::Data(Data::Owned(value))),
    }
}

/// More than was asked for is a bug of the file system.
fn check_size(data: &Data, size: usize) -> Result<(), Errno> {
    let len = match data {
        Data::Filled(len) => *len,
        Data::Owned(data) => data.len(),
        Data::Shared(data) => (**data).as_ref().len(),
        Data::Parts(parts) => parts.iter().map(|part| (**part).as_ref().len()).sum(),
    };
    if len > size {
        tracing::error!(len, size, "file system returned more than was read");
        return Err(Errno::EIO);
    }
    Ok(())
}

fn send(device: BorrowedFd<'_>, header: &Header, answer: &Handled, buffers: &mut ReplyBuffers<'_>) {
    let silent = [op::FORGET, op::BATCH_FORGET, op::INTERRUPT, op::NOTIFY_REPLY];
    let sent = match answer {
        Ok(Answer::NoReply) => return,
        Err(_) if silent.contains(&header.opcode) => return,
        Err(error) => write_all(device, header.unique, error.raw(), &[]),
        Ok(Answer::Body) => write_all(device, header.unique, 0, &[buffers.body]),
        Ok(Answer::Data(data)) => match data {
            Data::Filled(len) => write_all(device, header.unique, 0, &[buffers.data(*len)]),
            Data::Owned(data) => write_all(device, header.unique, 0, &[data]),
            Data::Shared(data) => write_all(device, header.unique, 0, &[(**data).as_ref()]),
            Data::Parts(parts) => {
                let parts: Vec<&[u8]> = parts.iter().map(|part| (**part).as_ref()).collect();
                write_all(device, header.unique, 0, &parts)
            }
        },
    };
    match sent {
        Ok(()) => {}
        // The caller was killed, or the mount is gone.
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::NODEV) => {}
        Err(error) => tracing::error!(opcode = header.opcode, %error, "kernel refused a reply"),
    }
}

/// One reply must be one `writev`; the kernel takes it whole or not at all.
fn write_all(device: BorrowedFd<'_>, unique: u64, error: i32, parts: &[&[u8]]) -> rustix::io::Result<()> {
    const PARTS_MAX: usize = 1000;
    let joined;
    let joined_part: [&[u8]; 1];
    let parts = if parts.len() > PARTS_MAX {
        joined = parts.concat();
        joined_part = [&joined];
        &joined_part
    } else {
        parts
    };
    let len = parts.iter().map(|part| part.len()).sum();
    let header = out_header(len, -error, unique);
    abi::write_parts(device, &header, parts)
}

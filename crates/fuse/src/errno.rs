//! The error number a request is answered with.
//!
//! Always in the range the kernel accepts (1..=511): a reply with another
//! number would be refused and the caller would hang.

use std::fmt;
use std::io;

/// An error number, as in `errno`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(i32);

macro_rules! errnos {
    ($($name:ident),* $(,)?) => {
        impl Errno {
            $(#[doc = concat!("The system's `", stringify!($name), "`.")] pub const $name: Errno = Errno(libc::$name);)*
        }

        fn name(code: i32) -> Option<&'static str> {
            match code {
                $(libc::$name => Some(stringify!($name)),)*
                _ => None,
            }
        }
    };
}

errnos! {
    EPERM, ENOENT, EINTR, EIO, ENXIO, E2BIG, EBADF, EAGAIN, ENOMEM, EACCES, EFAULT, EBUSY, EEXIST, EXDEV, ENODEV,
    ENOTDIR, EISDIR, EINVAL, ENFILE, EMFILE, ENOTTY, ETXTBSY, EFBIG, ENOSPC, ESPIPE, EROFS, EMLINK, EPIPE, EDOM,
    ERANGE, EDEADLK, ENAMETOOLONG, ENOLCK, ENOSYS, ENOTEMPTY, ELOOP, ENODATA, EPROTO, EBADMSG, EOVERFLOW, ESTALE,
    EOPNOTSUPP, ETIMEDOUT, ECONNREFUSED, ECONNRESET, ECONNABORTED, ENOTCONN, EHOSTUNREACH, EALREADY, EINPROGRESS,
    ECANCELED, EDQUOT, EREMOTEIO, ENOKEY,
}

impl Errno {
    /// The error with this number; a number the kernel would refuse becomes `EIO`.
    pub const fn from_raw(code: i32) -> Errno {
        if code > 0 && code < 512 { Errno(code) } else { Errno::EIO }
    }

    /// The positive number.
    pub const fn raw(self) -> i32 {
        self.0
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match name(self.0) {
            Some(name) => f.write_str(name),
            None => write!(f, "errno {}", self.0),
        }
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Errno {}

impl From<io::Error> for Errno {
    fn from(error: io::Error) -> Errno {
        Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

impl From<rustix::io::Errno> for Errno {
    fn from(error: rustix::io::Errno) -> Errno {
        Errno::from_raw(error.raw_os_error())
    }
}

impl From<Errno> for io::Error {
    fn from(error: Errno) -> io::Error {
        io::Error::from_raw_os_error(error.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_the_kernel_refuses_become_eio() {
        for code in [0, -2, 512, i32::MIN, i32::MAX] {
            assert_eq!(Errno::from_raw(code), Errno::EIO);
        }
        assert_eq!(Errno::from_raw(511).raw(), 511);
        assert_eq!(Errno::ENOENT.to_string(), "ENOENT");
    }
}

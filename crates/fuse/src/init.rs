//! The handshake: what the kernel offers, what we choose.

use crate::abi::{MAJOR, MIN_MINOR, MINOR, PAGE, Put};
use crate::errno::Errno;
use crate::flags::Capabilities;

/// What the kernel says about itself.
#[derive(Clone, Copy, Debug)]
pub struct Kernel {
    /// Major version of its protocol.
    pub major: u32,
    /// Minor version of its protocol.
    pub minor: u32,
    /// The most it reads ahead.
    pub max_readahead: u32,
    /// What it can do.
    pub capabilities: Capabilities,
}

/// What the file system chooses; given to `init` with good defaults.
#[derive(Clone, Copy, Debug)]
pub struct InitConfig {
    /// Capabilities wanted; those the kernel lacks are dropped.
    pub want: Capabilities,
    /// The most one WRITE carries, and (by its pages) one READ: up to 1 MiB
    /// unless `fs.fuse.max_pages_limit` was raised.
    pub max_write: u32,
    /// The most the kernel reads ahead.
    pub max_readahead: u32,
    /// How many background requests (read-ahead, release) may be under way.
    pub max_background: u16,
    /// From how many of them on the kernel holds back.
    pub congestion_threshold: u16,
    /// Granularity of times, in nanoseconds.
    pub time_gran: u32,
}

impl InitConfig {
    /// What every file system can live with.
    pub(crate) fn default_for(kernel: &Kernel) -> InitConfig {
        let want = Capabilities::ASYNC_READ
            | Capabilities::BIG_WRITES
            | Capabilities::ASYNC_DIO
            | Capabilities::PARALLEL_DIROPS
            | Capabilities::AUTO_INVAL_DATA
            | Capabilities::SETXATTR_EXT
            | Capabilities::HAS_EXPIRE_ONLY;
        InitConfig {
            want: want.and(kernel.capabilities),
            max_write: 1 << 20,
            max_readahead: kernel.max_readahead,
            max_background: 64,
            congestion_threshold: 48,
            time_gran: 1,
        }
    }

    /// Drops what the kernel lacks and adds what the rest implies.
    pub(crate) fn normalize(&mut self, kernel: &Kernel) {
        self.max_write = self.max_write.clamp(PAGE as u32, u32::from(u16::MAX) * PAGE as u32);
        self.max_readahead = self.max_readahead.min(kernel.max_readahead);
        self.want |= Capabilities::MAX_PAGES | Capabilities::BIG_WRITES;
        self.want = self.want.and(kernel.capabilities).without(Capabilities::INIT_EXT);
        if self.want.0 >> 32 != 0 {
            self.want |= Capabilities::INIT_EXT;
        }
    }

    /// The body of the reply.
    pub(crate) fn encode(&self, kernel: &Kernel, out: &mut Vec<u8>) {
        let pages = self.max_write.div_ceil(PAGE as u32);
        let [low, high] = [self.want.0 & u64::from(u32::MAX), self.want.0 >> 32];
        out.u32(MAJOR);
        out.u32(kernel.minor.min(MINOR));
        out.u32(self.max_readahead);
        out.u32(u32::try_from(low).unwrap_or(0));
        out.u16(self.max_background);
        out.u16(self.congestion_threshold);
        out.u32(self.max_write);
        out.u32(self.time_gran);
        out.u16(u16::try_from(pages).unwrap_or(u16::MAX));
        out.u16(0);
        out.u32(u32::try_from(high).unwrap_or(0));
        out.bytes(&[0; 28]);
    }
}

/// How to answer the kernel's version.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Version {
    /// Go on.
    Fits,
    /// Name our version and wait for another INIT.
    Renegotiate,
}

/// Compares the kernel's version with ours; `EPROTO` if it is too old.
pub(crate) fn version(kernel: &Kernel) -> Result<Version, Errno> {
    match kernel.major {
        MAJOR if kernel.minor >= MIN_MINOR => Ok(Version::Fits),
        major if major > MAJOR => Ok(Version::Renegotiate),
        _ => Err(Errno::EPROTO),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(major: u32, minor: u32) -> Kernel {
        Kernel { major, minor, max_readahead: 1 << 17, capabilities: Capabilities(u64::MAX) }
    }

    #[test]
    fn versions_are_clamped_or_refused() {
        assert_eq!(version(&kernel(7, 30)), Err(Errno::EPROTO));
        assert_eq!(version(&kernel(6, 45)), Err(Errno::EPROTO));
        assert_eq!(version(&kernel(7, 31)), Ok(Version::Fits));
        assert_eq!(version(&kernel(8, 0)), Ok(Version::Renegotiate));
        let (kernel, mut out) = (kernel(7, 99), Vec::new());
        let mut config = InitConfig::default_for(&kernel);
        config.normalize(&kernel);
        config.encode(&kernel, &mut out);
        assert_eq!(out.len(), 64);
        assert_eq!(crate::abi::Fields(out.get(4..).unwrap()).u32(), Ok(MINOR));
    }

    #[test]
    fn only_what_the_kernel_offers_is_chosen() {
        let kernel =
            Kernel { capabilities: Capabilities::ASYNC_READ | Capabilities::MAX_PAGES, ..kernel(7, 40) };
        let mut config = InitConfig::default_for(&kernel);
        config.want |= Capabilities::DIRECT_IO_ALLOW_MMAP;
        config.normalize(&kernel);
        assert_eq!(config.want, Capabilities::ASYNC_READ | Capabilities::MAX_PAGES);
    }
}

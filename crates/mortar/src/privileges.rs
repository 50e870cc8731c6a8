//! What a server may do on its machine: keep bricks, and nothing else that root can.

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs};

/// What bricks need: files of all owners and modes, devices, file handles, attributes that only root sees, the blocks that
/// a file system reserves for root, and a low port.
const NEEDED: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::MKNOD)
    .union(CapabilitySet::NET_BIND_SERVICE)
    .union(CapabilitySet::SETFCAP)
    .union(CapabilitySet::SYS_ADMIN)
    .union(CapabilitySet::SYS_RESOURCE);

/// Gives up what a server does not need. To be called before any thread is started: each thread has its own.
pub(crate) fn keep_needed() {
    let kept = capabilities(None).and_then(|now| set_capabilities(None, kept_of(now)));
    if let Err(e) = kept.and_then(|()| set_no_new_privs(true)) {
        tracing::warn!("give up privileges that are not needed: {e}");
    }
}

fn kept_of(now: CapabilitySets) -> CapabilitySets {
    CapabilitySets {
        effective: now.effective.intersection(NEEDED),
        permitted: now.permitted.intersection(NEEDED),
        inheritable: CapabilitySet::empty(),
    }
}

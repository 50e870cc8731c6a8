//! Mounts of volumes, counted by the watches that each has of its volume's map for as long as it is mounted: one that rests has
//! no session, and asks for nothing else.

use ids::VolumeId;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

type Counts = BTreeMap<(VolumeId, IpAddr), u64>;

/// Those that watch through this server.
#[derive(Clone, Default)]
pub(super) struct Mounts {
    counts: Arc<Mutex<Counts>>,
}

/// One of them, until this is dropped.
pub(super) struct Mounted {
    mounts: Mounts,
    key: (VolumeId, IpAddr),
}

impl Mounts {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A client has the volume mounted.
    pub(super) fn enter(&self, volume: VolumeId, from: IpAddr) -> Mounted {
        let key = (volume, from);
        let mut counts = self.counts();
        let count = counts.entry(key).or_default();
        *count = count.saturating_add(1);
        drop(counts);
        Mounted { mounts: self.clone(), key }
    }

    /// How many mounts of the volume there are, by the addresses that they are from.
    pub(super) fn of(&self, volume: VolumeId) -> Vec<(IpAddr, u64)> {
        let counts = self.counts();
        counts.iter().filter(|((of, _), _)| *of == volume).map(|((_, from), n)| (*from, *n)).collect()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let mut counts = self.mounts.counts();
        if let Some(count) = counts.get_mut(&self.key) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                counts.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_counts_as_long_as_it_watches() {
        let (mounts, from) = (Mounts::default(), IpAddr::from([192, 0, 2, 7]));
        let [first, second] = [(); 2].map(|()| mounts.enter(VolumeId(1), from));
        let _other = mounts.enter(VolumeId(2), from);
        assert_eq!(mounts.of(VolumeId(1)), [(from, 2)]);
        drop(first);
        assert_eq!(mounts.of(VolumeId(1)), [(from, 1)]);
        drop(second);
        assert_eq!((mounts.of(VolumeId(1)), mounts.of(VolumeId(2))), (vec![], vec![(from, 1)]));
        assert_eq!(mounts.counts().len(), 1);
    }
}

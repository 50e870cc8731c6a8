//! Looks at directories of bricks, whose disks may hang.
//!
//! Always true: a directory costs one thread at most, however often it is looked at, and none of the control plane's: the
//! pool's store needs those.

use crate::shared::lock;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::oneshot;

/// Whose turn it is to look at a directory. A look that hangs never ends its turn.
type Turn = Arc<tokio::sync::Mutex<()>>;

/// The looks that are under way.
#[derive(Debug, Default)]
pub(crate) struct Looks(Mutex<BTreeMap<PathBuf, Turn>>);

impl Looks {
    /// What `look` tells of a directory; `None`: not within that time.
    pub(super) async fn at<T: Send + 'static>(
        &self,
        path: PathBuf,
        wait: Duration,
        look: impl FnOnce(&Path) -> T + Send + 'static,
    ) -> Option<T> {
        let turn = self.turn(&path);
        let told = async {
            let turn = turn.lock_owned().await;
            let (to, from) = oneshot::channel();
            let run = move || {
                let told = look(&path);
                drop(turn);
                let _late = to.send(told);
            };
            std::thread::Builder::new().name("look".to_owned()).spawn(run).ok()?;
            from.await.ok()
        };
        tokio::time::timeout(wait, told).await.ok()?
    }

    fn turn(&self, path: &Path) -> Turn {
        let mut all = lock(&self.0);
        all.retain(|_, turn| Arc::strong_count(turn) > 1);
        all.entry(path.to_owned()).or_default().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    const SOON: Duration = Duration::from_millis(20);
    const LATE: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn a_disk_that_hangs_costs_one_thread_and_nobody_else_waits() {
        let (looks, begun) = (Looks::default(), Arc::new(AtomicUsize::new(0)));
        let (hung, well) = (PathBuf::from("/hung"), PathBuf::from("/well"));
        let (wake, until) = mpsc::channel::<()>();
        let until = Arc::new(Mutex::new(until));
        let look = || {
            let (begun, until) = (begun.clone(), until.clone());
            move |_: &Path| {
                begun.fetch_add(1, Ordering::Relaxed);
                lock(&until).recv()
            }
        };
        for _ in 0..5 {
            assert!(looks.at(hung.clone(), SOON, look()).await.is_none());
        }
        assert_eq!(begun.load(Ordering::Relaxed), 1, "threads that hang");
        assert_eq!(looks.at(well.clone(), LATE, Path::to_owned).await, Some(well.clone()));
        drop(wake);
        assert!(looks.at(hung, LATE, look()).await.is_some(), "it answers again");
        assert_eq!(begun.load(Ordering::Relaxed), 2);
        looks.at(well, LATE, |_| ()).await;
        assert!(lock(&looks.0).len() <= 2, "nothing is kept of what nobody looks at");
    }
}

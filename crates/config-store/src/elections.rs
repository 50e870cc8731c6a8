//! Elections that nobody wins.

use std::sync::Arc;

use openraft::{RaftMetrics, ServerState};
use tokio::sync::watch;

use crate::store::Inner;

/// Lets a candidate without a majority wait for a time drawn anew before it asks again.
///
/// openraft draws an election time-out once, when the store opens, and looks at the clock at fixed ticks: two
/// servers that drew alike would split every vote from then on.
pub(crate) async fn break_ties(inner: Arc<Inner>) {
    let (mut metrics, mut stopped) = (inner.raft.metrics(), inner.stopping.subscribe());
    let elections = inner.raft.runtime_config();
    let rounds = async {
        loop {
            let asked = metrics.wait_for(|m| m.state == ServerState::Candidate).await?.current_term;
            let decided =
                |m: &RaftMetrics<_, _>| m.state != ServerState::Candidate || m.current_term != asked;
            elections.elect(false);
            let pause = rand::random_range(inner.options.election_min..inner.options.election_max * 2);
            if tokio::time::timeout(pause, metrics.wait_for(decided)).await.map(drop).is_err() {
                drop(inner.raft.trigger().elect().await);
                // Until the next question is on its way.
                drop(tokio::time::timeout(inner.options.heartbeat, metrics.wait_for(decided)).await);
            }
            elections.elect(true);
        }
    };
    tokio::select! {
        _ = stopped.wait_for(|stop| *stop) => {}
        ended = rounds => { let _: Result<(), watch::error::RecvError> = ended; }
    }
}

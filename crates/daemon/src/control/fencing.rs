//! Servers that a recovery of the pool fenced off: they must not go on as a pool of their own.
//!
//! After [`Command::RecoverPool`](cluster::Command::RecoverPool) the pool goes on from one server. Of the others each may
//! still hold a vote of the old agreement, and enough of them could elect a leader. So the pool's leader tells them as
//! soon as they can be reached, and a server that starts looks around before it takes part. Who was fenced off writes that
//! down and never starts with this state folder again. Servers that cannot reach each other are not covered.

use super::Control;
use super::answers::conflict;
use super::peers::Peers;
use super::protocol::{ClusterReply, ClusterRequest, Request, Response};
use super::state_folder::StateFolder;
use super::status::join_all;
use admin::AdminError;
use cluster::State;
use config_store::ConfigStore;
use ids::ServerId;
use std::sync::Arc;
use std::time::Duration;

/// How often servers that were fenced off are told.
const AGAIN: Duration = Duration::from_secs(1);
/// How long a start waits for the others' word.
const LOOK: Duration = Duration::from_millis(700);

fn why(host: &str) -> String {
    format!(
        "the pool was recovered on server {host} without this one: empty this folder, start the server and run mortar peer \
         replace HOST at {host}"
    )
}

/// Asks the other servers, before this one takes part, whether the pool went on without it.
pub(super) async fn look_around(
    folder: &StateFolder,
    store: &ConfigStore,
    peers: &Peers,
    me: ServerId,
) -> Result<(), String> {
    let mut states = store.watch();
    // What was agreed on is read again first; a server that never had any of it has nothing to ask.
    let known = tokio::time::timeout(LOOK, states.wait_for(|s| !s.pool.is_empty())).await;
    let state: Arc<State> = match known {
        Ok(Ok(state)) => state.clone(),
        _ => return Ok(()),
    };
    let others = state.servers.values().filter(|s| s.id != me && !s.lost);
    let looks = others.map(|s| async {
        let request = Request::Cluster(ClusterRequest::Identify);
        let answer = tokio::time::timeout(LOOK, peers.ask(&s.address, &request, LOOK)).await;
        (s.host.clone(), answer)
    });
    for (host, answer) in join_all(looks).await {
        if let Ok(Ok(Response::Cluster(ClusterReply::Identity { pool, generation, .. }))) = answer
            && pool == state.pool
            && generation > state.generation
        {
            store.shutdown().await;
            return Err(folder.fence(&why(&ids::bracketed(&host))));
        }
    }
    Ok(())
}

/// On the leader: tells those that were fenced off, for as long as the pool knows them.
pub(super) async fn fence_others(control: Arc<Control>, store: ConfigStore) {
    loop {
        let state = store.state();
        let me = control.shared.me();
        if store.is_leader()
            && let Some(own) = state.servers.get(&me)
        {
            let tells = state.servers.values().filter(|s| s.lost).map(|s| {
                let request = ClusterRequest::Fence {
                    pool: state.pool.clone(),
                    identity: s.identity.clone(),
                    generation: state.generation,
                    host: own.host.clone(),
                };
                let control = control.clone();
                async move { tokio::time::timeout(LOOK, control.ask_cluster(&s.address, request)).await }
            });
            for answer in join_all(tells).await {
                if let Ok(Ok(_)) = answer {
                    tracing::warn!(
                        "a server that was fenced off by the recovery of this pool was told to stop"
                    );
                }
            }
        }
        tokio::time::sleep(AGAIN).await;
    }
}

impl Control {
    /// The pool goes on without this server, which ends at once: it might lead sets.
    pub(super) fn fence(
        &self,
        pool: &str,
        identity: &str,
        generation: u32,
        host: &str,
    ) -> Result<ClusterReply, AdminError> {
        let state = self.state();
        if state.pool != pool || self.folder.identity != identity || state.generation >= generation {
            return Err(conflict(format!("{}: it is not that server", self.address)));
        }
        let line = self.folder.fence(&why(host));
        self.shared.drop_lease();
        tracing::error!("{line}");
        std::thread::spawn(|| {
            // Long enough for the answer to leave.
            std::thread::sleep(Duration::from_millis(100));
            std::process::exit(1);
        });
        Ok(ClusterReply::Done)
    }
}

//! State folders as versions of before made them: a pool of one server that has no keys.

use super::Server;
use cluster::NewServer;
use config_store::{BoxFuture, ConfigStore, Options, Transport, TransportError};
use ids::ServerId;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

/// There are no others.
struct Nobody;

impl Transport for Nobody {
    fn send(&self, _: ServerId, _: String, _: Vec<u8>) -> BoxFuture<Result<Vec<u8>, TransportError>> {
        Box::pin(async { Err(TransportError("nobody is there".to_owned())) })
    }
}

pub(super) fn make_state(server: &Server) {
    let (state, identity) = (server.state(), cluster::hex::encode(rand::random()));
    fs::create_dir_all(state.join("store")).unwrap();
    fs::set_permissions(&state, Permissions::from_mode(0o700)).unwrap();
    fs::write(state.join("identity"), disk_format::sealed::seal(*b"srvr", 1, identity.as_bytes())).unwrap();
    let (host, address) = (server.host.clone(), server.address.clone());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let (folder, nobody) = (state.join("store"), Arc::new(Nobody));
        let store = ConfigStore::open(&folder, ServerId(1), nobody, Options::default()).await.unwrap();
        let pool = cluster::hex::encode(rand::random());
        store.init_pool(pool, NewServer { identity, host, address }).await.unwrap();
        store.shutdown().await;
    });
}

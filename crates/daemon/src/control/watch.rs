//! Clients that watch a volume: they get its map, and every later one.

use cluster::{Access, State, Status};
use ids::Fid;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::watch;
use transport::FrameSender;
use wire::codec::Blob;
use wire::map::{ServerAddress, SetView, VolumeMap, Watch, WatchEvent};
use wire::{Frame, Kind, Wire};

fn blob(s: &str) -> Blob {
    Blob(s.as_bytes().to_vec())
}

/// The map of a volume.
fn map(state: &State, name: &str) -> Option<VolumeMap> {
    let volume = state.volume(name)?;
    let view = |set: &cluster::Set| SetView {
        set: set.id,
        epoch: set.view.epoch,
        lost_before: set.lost_before,
        primary: set.view.primary.and_then(|p| set.brick(p)).map(|b| b.server),
    };
    Some(VolumeMap {
        version: state.version,
        pool: server_core::pool_bytes(state),
        volume: volume.id,
        root: Fid::root(server_core::root_set(volume)),
        started: volume.status == Status::Started,
        sets: state.sets_of(volume).map(view).collect(),
        servers: state
            .servers
            .values()
            .map(|s| ServerAddress { server: s.id, address: blob(&s.address) })
            .collect(),
        options: volume.options.iter().map(|(k, v)| (blob(k), blob(v))).collect(),
    })
}

/// Sends the map now and at each change of it, until the client or the volume goes.
pub(super) async fn serve(
    frame: Frame,
    to: FrameSender,
    mut states: watch::Receiver<Arc<State>>,
    from: IpAddr,
) {
    let send = |event: WatchEvent| to.send(Frame::new(Kind::Event, frame.id, event.to_bytes()));
    let name = match Watch::from_bytes(&frame.body) {
        Ok(w) => String::from_utf8_lossy(&w.volume.0).into_owned(),
        Err(e) => {
            send(WatchEvent::End { reason: blob(&format!("bad request: {e}")) });
            return;
        }
    };
    let mut last: Option<VolumeMap> = None;
    loop {
        let state = states.borrow_and_update().clone();
        let Some(map) = map(&state, &name) else {
            send(WatchEvent::End {
                reason: blob(&format!("no such volume: {name}: see mortar volume list")),
            });
            return;
        };
        if state.volume(&name).is_some_and(|v| !Access::of(v).permits(from)) {
            let reason = format!(
                "volume {name} may not be used from {from}: see its options auth.allow and auth.reject"
            );
            send(WatchEvent::End { reason: blob(&reason) });
            return;
        }
        let same = last.as_ref().is_some_and(|l| VolumeMap { version: map.version, ..l.clone() } == map);
        if !same {
            if !send(WatchEvent::Map { map: map.clone() }) {
                return;
            }
            last = Some(map);
        }
        if states.changed().await.is_err() || to.is_closed() {
            return;
        }
    }
}

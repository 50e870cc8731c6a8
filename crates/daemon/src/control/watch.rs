//! Clients that watch a volume: they get its map, and every later one.

use cluster::{Access, State};
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::watch;
use transport::FrameSender;
use wire::codec::Blob;
use wire::limits::NAME_MAX;
use wire::map::{VolumeMap, Watch, WatchEvent};
use wire::{Frame, Kind, Wire};

fn blob(s: &str) -> Blob {
    Blob(s.as_bytes().to_vec())
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
        // A longer one is no volume's, and needs not be repeated.
        Ok(w) => String::from_utf8_lossy(w.volume.0.get(..NAME_MAX).unwrap_or(&w.volume.0)).into_owned(),
        Err(e) => {
            send(WatchEvent::End { reason: blob(&format!("bad request: {e}")) });
            return;
        }
    };
    let mut last: Option<VolumeMap> = None;
    loop {
        let state = states.borrow_and_update().clone();
        let Some(map) = server_core::volume_map(&state, &name) else {
            send(WatchEvent::End {
                reason: blob(&format!("no such volume: {}: see mortar volume list", name.escape_debug())),
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

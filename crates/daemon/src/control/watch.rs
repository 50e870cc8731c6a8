//! Clients that watch a volume: they get its map, and every later one.

use super::mounts::{Mounted, Mounts};
use cluster::{Access, State};
use server_core::Limits;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, watch};
use transport::FrameSender;
use wire::codec::Blob;
use wire::limits::NAME_MAX;
use wire::map::{BENEATH, SQUASH, USERS, VolumeMap, Watch, WatchEvent};
use wire::{DecodeError, Frame, Kind, User, Wire};

/// Who watches.
pub(super) struct Watcher {
    /// What the log calls him; `None`: a server, which the log need not name.
    pub(super) who: Option<String>,
    /// Where a client is.
    pub(super) at: Option<IpAddr>,
    /// The address that binds him.
    pub(super) from: Option<IpAddr>,
    /// What his key is for.
    pub(super) limits: Option<Limits>,
    /// Where he counts as long as he watches.
    pub(super) mounts: Mounts,
}

/// Sends the map now and at each change of it, until the client or the volume goes; `room` counts until the end was taken. Why
/// the client was refused, if it was.
pub(super) async fn serve(
    frame: Frame,
    to: FrameSender,
    mut states: watch::Receiver<Arc<State>>,
    watcher: Watcher,
    room: OwnedSemaphorePermit,
) -> Option<String> {
    let event = |event: WatchEvent| Frame::new(Kind::Event, frame.id, event.to_bytes());
    let end = match watched(&frame) {
        Ok(name) => match send_maps(&name, &to, &mut states, &watcher, &event).await {
            Some(end) => end,
            None => return None,
        },
        Err(e) => refused(format!("bad request: {e}")),
    };
    let why = match &end {
        WatchEvent::End { reason: Blob(why) } => Some(String::from_utf8_lossy(why).into_owned()),
        _ => None,
    };
    to.send_holding(event(end), Some(room.into()));
    why
}

/// The volume's name.
fn watched(frame: &Frame) -> Result<String, DecodeError> {
    let Blob(name) = Watch::from_bytes(&frame.body)?.volume;
    // A longer one is no volume's, and needs not be repeated.
    Ok(String::from_utf8_lossy(name.get(..NAME_MAX).unwrap_or(&name)).into_owned())
}

fn refused(reason: String) -> WatchEvent {
    WatchEvent::End { reason: Blob(reason.into_bytes()) }
}

/// How the watch ends; `None`: the client is gone.
async fn send_maps(
    name: &str,
    to: &FrameSender,
    states: &mut watch::Receiver<Arc<State>>,
    Watcher { who, at, from, limits, mounts }: &Watcher,
    event: &impl Fn(WatchEvent) -> Frame,
) -> Option<WatchEvent> {
    let mut last: Option<VolumeMap> = None;
    let mut _mounted: Option<Mounted> = None;
    loop {
        let state = states.borrow_and_update().clone();
        let Some(mut map) = server_core::volume_map(&state, name) else {
            if let Some(last) = last.filter(|last| last.started) {
                // It was stopped and deleted before it could be told that it was stopped; a client does not believe the one without
                // the other.
                let map = VolumeMap { version: state.version, started: false, ..last };
                to.send(event(WatchEvent::Map { map }));
            }
            return Some(WatchEvent::NoVolume);
        };
        if limits.as_ref().is_some_and(|limits| map.volume != limits.volume) {
            let why = format!("volume {name} may not be used with this key: it is for another volume");
            return Some(refused(why));
        }
        if let Some(from) = *from
            && state.volume(name).is_some_and(|v| !Access::of(&state, v).permits(from))
        {
            let (from, why) =
                (ids::bracketed(&from.to_string()), "see its options auth.allow and auth.reject");
            return Some(refused(format!("volume {name} may not be used from {from}: {why}")));
        }
        if let Some((root, _)) = limits.as_ref().and_then(|limits| limits.beneath) {
            map.root = root;
        }
        let told = limits.as_ref().into_iter().flat_map(of_key);
        map.options.extend(told.map(|(key, value)| (Blob(key.into()), Blob(value.into_bytes()))));
        let same = last.as_ref().is_some_and(|l| VolumeMap { version: map.version, ..l.clone() } == map);
        if !same {
            if !to.send(event(WatchEvent::Map { map: map.clone() })) {
                return None;
            }
            if last.is_none() {
                if let Some(who) = who {
                    tracing::info!("{who}: has volume {name} mounted");
                }
                _mounted = at.map(|at| mounts.enter(map.volume, at));
            }
            last = Some(map);
        }
        if states.changed().await.is_err() || to.is_closed() {
            return None;
        }
    }
}

/// What a client is told of its key's users, and of the directory that it is for.
fn of_key(limits: &Limits) -> impl Iterator<Item = (&'static str, String)> {
    let squash = limits.squash.as_ref().map(|user| (SQUASH, user.to_string()));
    let numbers = |users: &Arc<BTreeMap<u32, User>>| {
        let all: Vec<String> = users.keys().map(u32::to_string).collect();
        (USERS, all.join(","))
    };
    let beneath = limits.beneath.map(|(_, home)| (BENEATH, home.0.to_string()));
    squash.into_iter().chain(limits.users.as_ref().map(numbers)).chain(beneath)
}

//! A connection for the control plane: its requests, and its watches of volumes.

use super::watch::{self, Watcher};
use super::{Control, protocol};
use crate::clock;
use crate::guests::Guest;
use crate::limits::{CONTROL_REQUESTS, FRAME_WAIT, KEYLESS_TIME, KEYLESS_WAIT, LAST_ANSWERS};
use crate::speaker::{JOIN_BODY, Speaker};
use admin::{AdminError, ErrorCode};
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use transport::{Connection, FrameReader, FrameSender, TransportError, write_frames};
use wire::frame::{Frame, Kind};
use wire::limits::BODY_MAX;

/// Serves control requests on a connection, some at a time. Its watches end with it; a request goes on.
pub(super) async fn serve(
    control: Arc<Control>,
    connection: Connection,
    (speaker, from): (Speaker, Option<IpAddr>),
    guest: Guest,
) -> Result<(), TransportError> {
    let Connection { reader, writer, identity: _ } = connection;
    let keyless = speaker == Speaker::Nobody;
    let longest = if keyless { JOIN_BODY as u32 } else { BODY_MAX };
    let (mut frames, bounds) = (FrameReader::from(reader), guest.bounds(longest, 0));
    let (sender, queue) = FrameSender::channel();
    let mut watches = JoinSet::new();
    // An answer, or the end of a watch, counts until it was taken.
    let [requests, watchers] = [(); 2].map(|()| Arc::new(Semaphore::new(CONTROL_REQUESTS)));
    let read = async {
        loop {
            let next = if keyless {
                // One thing after the other, and no pause without end between them.
                let _answered = requests.acquire_many(CONTROL_REQUESTS as u32).await;
                let next = tokio::time::timeout(KEYLESS_WAIT, frames.next_within(&bounds));
                next.await.unwrap_or(Err(TransportError::Stalled))
            } else {
                frames.next_within(&bounds).await
            };
            let Some((frame, memory)) = next? else { break };
            if !speaker.may_send(frame.kind, &frame.body) {
                control.log_refused(&speaker.called(from), from, &"it asks for what its key is not for");
                return Err(wire::DecodeError::Bounds("frame for this role").into());
            }
            let (control, sender, speaker) = (control.clone(), sender.clone(), speaker.clone());
            match frame.kind {
                Kind::Control => {
                    let Ok(permit) = requests.clone().acquire_owned().await else { break };
                    let who = speaker.called(from);
                    tokio::spawn(async move {
                        let body = match may_ask(&control, keyless, from) {
                            Ok(()) => control.handle(&frame.body, &speaker, who).await,
                            Err(why) => protocol::encode(&protocol::Response::Error(why)),
                        };
                        drop(memory);
                        let answer = Frame::new(Kind::ControlReply, frame.id, within_bounds(body));
                        sender.send_holding(answer, Some(permit.into()));
                    });
                }
                Kind::Watch => {
                    let Ok(room) = watchers.clone().try_acquire_owned() else { break };
                    watches.spawn(watch(control, (speaker, from), frame, sender, room));
                }
                _ => break,
            }
            while watches.try_join_next().is_some() {}
        }
        Ok(())
    };
    let write = write_frames(writer, queue, Some(FRAME_WAIT));
    tokio::pin!(write);
    tokio::select! {
        () = guest.ended() => {}
        () = tokio::time::sleep(KEYLESS_TIME), if keyless => {}
        served = read => return served,
        written = &mut write => return written,
    }
    // What he asked before that he hears: it may be the very thing that ended his right.
    drop((watches, sender));
    tokio::time::timeout(LAST_ANSWERS, write).await.unwrap_or(Ok(()))
}

/// Serves somebody who watches a volume. The log hears of it if he may not.
async fn watch(
    control: Arc<Control>,
    (speaker, from): (Speaker, Option<IpAddr>),
    frame: Frame,
    to: FrameSender,
    room: OwnedSemaphorePermit,
) {
    let store = control.store();
    let limits = speaker.limits(&store.state());
    let who = speaker.server().is_none().then(|| speaker.called(from));
    let at = from.filter(|_| speaker.server().is_none());
    let bound = from.filter(|_| speaker.is_bound_to_address());
    let watcher = Watcher { who, at, from: bound, limits, mounts: control.mounts.clone() };
    if let Some(why) = watch::serve(frame, to, store.watch(), watcher, room).await {
        control.log_refused(&speaker.called(from), from, &why);
    }
}

/// Whether somebody at that address is heard: without a key not as often as he likes, whatever he says.
///
/// # Errors
/// Words for him.
fn may_ask(control: &Control, keyless: bool, from: Option<IpAddr>) -> Result<(), String> {
    let Some(from) = from.filter(|_| keyless) else { return Ok(()) };
    control.attempts.begin(from, clock::now()).map_err(|wait| {
        let seconds = wait.as_millis().div_ceil(1000);
        let from = ids::bracketed(&from.to_string());
        format!("too many tries to join from {from}: try again in {seconds} s")
    })
}

/// The answer, or an error in its place if it is longer than a frame may be.
fn within_bounds(answer: Vec<u8>) -> Vec<u8> {
    if answer.len() <= BODY_MAX as usize {
        return answer;
    }
    let why = format!("the answer has {} bytes, more than fit into a message: ask for less", answer.len());
    match answer.first() {
        Some(&admin::TAG) => admin::encode_answer(Err(AdminError::new(ErrorCode::Limit, why))),
        _ => protocol::encode(&protocol::Response::Error(why)),
    }
}

//! A connection for the control plane: its requests, and its watches of volumes.

use super::{Control, protocol, watch};
use crate::guests::Guest;
use crate::limits::{CONTROL_REQUESTS, FRAME_WAIT, LAST_ANSWERS};
use crate::speaker::{JOIN_BODY, Speaker};
use admin::{AdminError, ErrorCode};
use std::net::IpAddr;
use std::sync::Arc;
use tokio::sync::Semaphore;
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
    let longest = if speaker == Speaker::Nobody { JOIN_BODY as u32 } else { BODY_MAX };
    let (mut frames, bounds) = (FrameReader::new(reader), guest.bounds(longest, 0));
    let (sender, queue) = FrameSender::channel();
    let mut watches = JoinSet::new();
    // An answer, or the end of a watch, counts until it was taken.
    let [requests, watchers] = [(); 2].map(|()| Arc::new(Semaphore::new(CONTROL_REQUESTS)));
    let read = async {
        while let Some((frame, memory)) = frames.next_within(&bounds).await? {
            if !speaker.may_send(frame.kind, &frame.body) {
                return Err(wire::DecodeError::Bounds("frame for this role").into());
            }
            let (control, sender, speaker) = (control.clone(), sender.clone(), speaker.clone());
            match frame.kind {
                Kind::Control => {
                    let Ok(permit) = requests.clone().acquire_owned().await else { break };
                    let who = speaker.called(from);
                    tokio::spawn(async move {
                        let body = control.handle(&frame.body, &speaker, who).await;
                        drop(memory);
                        let answer = Frame::new(Kind::ControlReply, frame.id, within_bounds(body));
                        sender.send_holding(answer, Some(permit));
                    });
                }
                Kind::Watch => {
                    let Ok(room) = watchers.clone().try_acquire_owned() else { break };
                    let store = control.store();
                    let only = speaker.limits(&store.state()).map(|limits| limits.volume);
                    let from = from.filter(|_| speaker.is_bound_to_address());
                    watches.spawn(watch::serve(frame, sender, store.watch(), (from, only), room));
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
        served = read => return served,
        written = &mut write => return written,
    }
    // What he asked before that he hears: it may be the very thing that ended his right.
    drop((watches, sender));
    tokio::time::timeout(LAST_ANSWERS, write).await.unwrap_or(Ok(()))
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

//! What is asked of the whole mount: the attributes of its root, and the volume's room.
//!
//! umount(8) asks for both before it does anything. So that a mount can be ended although nobody serves it, they are then what
//! was seen last: at once while the volume is stopped, and after [`LONGEST`] if nobody answers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use client::{Client, Object, wait};
use fuse::{AttrReply, ROOT};
use wire::Errno;
use wire::reply::Room;

use super::FuseAdapter;

/// How long the volume's room is believed.
const ROOM_AGE: Duration = Duration::from_secs(1);
/// How long an answer is waited for: longer than another brick takes to serve in the place of one that died.
const LONGEST: Duration = Duration::from_secs(10);
/// And where the last question was not answered either.
const AGAIN: Duration = Duration::from_millis(500);

/// What was seen last.
#[derive(Default)]
pub(super) struct LastSeen {
    root: Mutex<Option<AttrReply>>,
    room: Mutex<Option<(Instant, Room)>>,
    /// Nobody has answered the last question.
    unanswered: AtomicBool,
}

fn lock<T>(seen: &Mutex<T>) -> MutexGuard<'_, T> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

impl FuseAdapter {
    /// What the kernel is told that asks for the root's attributes. Where nothing was seen yet it waits.
    pub(super) fn look_at_root(&self, client: &Client, root: Object) -> Result<AttrReply, Errno> {
        let reply = match self.ask(|| self.look(client, ROOT, root)) {
            Some(answer) => answer?,
            None => match *lock(&self.last_seen.root) {
                Some(last) => return Ok(AttrReply { timeout: Duration::ZERO, ..last }),
                None => self.look(client, ROOT, root)?,
            },
        };
        *lock(&self.last_seen.root) = Some(reply);
        Ok(reply)
    }

    /// The volume's room. Where none was seen yet it is none.
    pub(super) fn look_at_room(&self, client: &Client) -> Result<Room, Errno> {
        let last = lock(&self.last_seen.room).clone();
        if let Some((at, room)) = &last
            && at.elapsed() < ROOM_AGE
        {
            return Ok(room.clone());
        }
        let Some(answer) = self.ask(|| client.statfs()) else {
            let nothing = Room { total: 0, free: 0, available: 0, files: 0, files_free: 0 };
            return Ok(last.map_or(nothing, |(_, room)| room));
        };
        let room = answer?;
        *lock(&self.last_seen.room) = Some((Instant::now(), room.clone()));
        Ok(room)
    }

    /// The answer, if somebody serves.
    fn ask<R>(&self, question: impl FnOnce() -> Result<R, Errno>) -> Option<Result<R, Errno>> {
        if self.client.is_volume_stopped() {
            return None;
        }
        let unanswered = &self.last_seen.unanswered;
        let time = if unanswered.load(Ordering::Relaxed) { AGAIN } else { LONGEST };
        let begun = Instant::now();
        let answer = wait::at_most(time, question);
        let is_none = matches!(answer, Err(Errno::EINTR)) && begun.elapsed() >= time;
        if !unanswered.swap(is_none, Ordering::Relaxed) && is_none {
            let volume = self.client.volume();
            tracing::warn!(
                volume,
                "nobody answers about the root: programs are told what was seen last of it"
            );
        }
        (!is_none).then_some(answer)
    }
}

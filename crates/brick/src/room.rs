//! How much room there is.

use crate::open::Brick;
use wire::Errno;
use wire::reply::Room;

/// So many files of all that a file system holds stay free for the brick's own: none where it names no number, as btrfs.
pub(crate) fn kept_files(files: u64) -> u64 {
    (files / 64).min(1024)
}

/// The room, and the second of the file system's clock in which it was asked for.
#[derive(Default)]
pub(crate) struct LastRoom(Option<(i64, Room)>);

impl Brick {
    /// Room on the brick's file system; asked for at most once in a second of the file system's clock, unless files are being
    /// freed.
    ///
    /// # Errors
    /// The kernel's.
    pub fn room(&mut self) -> Result<Room, Errno> {
        let second = self.root.now().sec;
        if let Some((at, room)) = &self.room.0
            && *at == second
            && !file_system::is_closing()
        {
            return Ok(room.clone());
        }
        let s = self.root.space()?;
        let (files, files_free) = (s.files, s.files_free);
        // Where hardly another file can be made there is no room, for the primary on another brick too, which may have places.
        let full = files_free < kept_files(files) / 2;
        let available = if full { 0 } else { s.available };
        let room = Room { total: s.total, free: s.free, available, files, files_free };
        self.room.0 = Some((second, room.clone()));
        Ok(room)
    }
}

//! Every named maximum of the wire, in one place.

/// Bytes of one name in a directory.
pub const NAME_MAX: usize = 255;
/// Bytes of a symbolic link's target.
pub const TARGET_MAX: usize = 4095;
/// Bytes of the value of one extended attribute (Linux's XATTR_SIZE_MAX).
pub const XATTR_VALUE_MAX: usize = 65536;
/// Bytes of the body of one frame.
pub const BODY_MAX: u32 = 16 << 20;
/// Bytes of the payload of one frame.
pub const PAYLOAD_MAX: u32 = 2 << 20;
/// Bytes of data that one read or write moves.
pub const IO_MAX: u32 = 1 << 20;
/// Bytes of one page of a directory listing, about.
pub const DIR_PAGE: u32 = 256 << 10;
/// Bytes of a file whose data comes with its attributes when it is healed.
pub const SMALL_FILE: u32 = 64 << 10;
/// Bytes of a file that one checksum stands for when it is compared.
pub const SUM_BYTES: u32 = 1 << 20;
/// Names that a file may have that moves to another set.
pub const COPY_NAMES_MAX: usize = 256;

/// What the names of a file that moves may take as an attribute: ext4 has some 4 KiB for all of a file's.
pub const COPY_NAMES_BYTES: usize = 2048;
/// Objects whose attributes are asked for at once.
pub const GETATTRS_MAX: usize = 256;
/// Groups of a user beside his first: those of a key are no more (`cluster::limits::KEY_GROUPS`).
pub const GROUPS_MAX: usize = 4096;
/// Pieces of a striped file.
pub const STRIPES_MAX: usize = 64;
/// Directories above a directory that lives on another set than its parent.
pub const DEPTH_MAX: usize = 512;

const _: () = assert!(IO_MAX <= PAYLOAD_MAX && DIR_PAGE * 2 < BODY_MAX);

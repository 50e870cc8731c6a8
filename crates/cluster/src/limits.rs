//! Named maxima of the pool's state: nothing in it may grow without a bound that stands here.

use ids::SetId;

/// The format of [`crate::State`]'s JSON that this code writes, and the newest it reads.
pub const STATE_FORMAT: u32 = 1;
/// Characters of a volume's name.
pub const VOLUME_NAME: usize = 64;
/// Bytes of a brick's path.
pub const BRICK_PATH: usize = 1024;
/// Bytes of a host name or address.
pub const ADDRESS: usize = 255;
/// Hosts that all options name.
pub const HOSTS: usize = 1024;
/// Addresses of one host that count.
pub const HOST_ADDRESSES: usize = 64;
/// Bytes of a user's name.
pub const USER_NAME: usize = 256;
/// Users of one key.
pub const KEY_USERS: usize = 256;
/// Their groups, beside the first of each.
pub const KEY_GROUPS: usize = 4096;
/// Bytes of a webhook's address.
pub const WEBHOOK: usize = 2048;
/// Deleted volumes that may come back.
pub const RETIRED: usize = 100;
/// Servers of a pool.
pub const SERVERS: usize = 4096;
/// Volumes of a pool.
pub const VOLUMES: usize = 16384;
/// Bricks of one set.
pub const REPLICA: u32 = 8;
/// Bricks of one volume.
pub const VOLUME_BRICKS: usize = 8192;
/// Bytes of an option's value.
pub const OPTION_VALUE: usize = 4096;
/// Bytes of an option's key.
pub const OPTION_KEY: usize = 128;
/// Bytes of all options of a volume together: they are sent to each client that mounts it.
pub const OPTIONS: usize = 256 << 10;
/// Changes of options in one command.
pub const OPTION_CHANGES: usize = 65536;
/// Bytes of the path of a key's directory.
pub const KEY_PATH: usize = 4096;
/// Characters of a key's name.
pub const KEY_NAME: usize = 64;
/// Keys that are let in, and those that expired not long ago.
pub const KEYS: usize = 16384;
/// Seconds for which a key that expired is kept.
pub const EXPIRED_KEPT: u64 = 30 * 86_400;
/// Tokens that are good at a time.
pub const TOKENS: usize = 1024;
/// Answers remembered so that a command sent twice is applied once.
pub const RECENT: usize = 1024;
/// Numbers of servers, volumes, sets and bricks that a recovery leaves out: the servers that were fenced off may have given
/// them.
pub const RECOVERY_IDS: u32 = 1000;
/// Epochs that a recovery leaves out, likewise.
pub const RECOVERY_EPOCHS: u32 = 1 << 16;

const _: () = assert!(VOLUME_BRICKS < SetId::MAX.0 as usize);

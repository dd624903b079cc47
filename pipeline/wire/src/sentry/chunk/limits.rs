//! The bounds of what one batch can make the converter write, and Relay's own bounds.

/// The longest time between the first and the last sample of a chunk, in nanoseconds (getsentry/relay
/// `relay-profiling/src/sample/v2.rs`: 66 s pass, more does not).
pub const MAX_CHUNK_NANOS: u64 = 66_000_000_000;

/// The largest profile that Relay takes, in bytes of its own re-serialisation (getsentry/relay
/// `relay-config/src/config.rs`, `max_profile_size`: 50 MiB). Ours is smaller, since Relay may write more than it read.
pub const MAX_CHUNK_BYTES: usize = 48 << 20;

/// The most JSON that one window may become, over all its chunks. 64 cores sampled at 101 Hz for 60 s make 388,000
/// observations, about 40 MiB; six times that is no profile of a process any more.
pub const MAX_WINDOW_BYTES: u64 = 256 << 20;

/// The longest name, path or id that is written, in bytes. A longer one is cut and ends in an ellipsis: a 4 MiB name
/// that a million functions share would otherwise make terabytes.
pub const MAX_STRING_BYTES: usize = 4096;

/// The most frames of a stack, counted from the leaf, inlined functions included. Relay's own converter of Perfetto
/// traces has the same bound (getsentry/relay `relay-profiling/src/perfetto/convert/consts.rs`).
pub const MAX_STACK_FRAMES: usize = 1000;

/// The most frames of a chunk: six decimal digits. At 30 bytes and more each they are far above the target size.
pub const MAX_FRAMES: usize = 1_000_000;

/// The most synthetic threads on which observations without a thread are laid: one for each core of a large host.
pub const MAX_SYNTHETIC_LANES: usize = 1024;

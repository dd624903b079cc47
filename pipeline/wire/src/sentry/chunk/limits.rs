//! The numbers of the conversion: Relay's own bounds, those of what one batch can make the converter write, and how
//! far timers are trusted.

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

/// The fewest samples with frames of a thread that Relay keeps (getsentry/relay `relay-profiling/src/sample/v2.rs`).
pub const MIN_THREAD_SAMPLES: u64 = 2;

/// The longest name of an environment that Sentry takes, in characters (Sentry documentation, "Environments").
pub const MAX_ENVIRONMENT: usize = 64;

/// The longest platform that can be configured, in bytes: those that Sentry knows are shorter than 20.
pub const MAX_PLATFORM: usize = 64;

/// The smallest size of a chunk that can be configured, in bytes: below it chunks would be mostly frames, repeated from
/// chunk to chunk.
pub const MIN_TARGET_BYTES: usize = 64 << 10;

/// Timers come early or late by less than one part in this many of an observation's weight. A gap up to one and a half
/// weights is therefore jitter and stays open, and less than half a weight that is left at the end is no loss.
pub const JITTER: i64 = 2;

/// An observation whose thread is not known may come early by one part in this many of its weight and still be the next
/// one of a core, whose timer ticks steadily.
pub const EARLY: u64 = 4;

/// So many weights a thread may be owed. Spacings that wander (each by chance longer or shorter than the one before)
/// fall behind and catch up again: by up to a half each, over a minute at 100 Hz, they fall behind by 30 weights or so.
/// What is carried is shown as time of observations that come later, so it may not be without end.
pub const MOST_OWED: i64 = 64;

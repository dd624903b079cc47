//! The limits of the conversion: Relay's own limits, bounds on the output for one batch, and tolerances for timers.

/// Maximum time between the first and the last sample of a chunk, in nanoseconds (getsentry/relay
/// `relay-profiling/src/sample/v2.rs`: 66 s pass, more does not).
pub const MAX_CHUNK_NANOS: u64 = 66_000_000_000;

/// Maximum size of a chunk, in bytes. Relay's limit is 50 MiB of its own serialisation (getsentry/relay
/// `relay-config/src/config.rs`, `max_profile_size`). Ours is smaller, since Relay may write more than it read.
pub const MAX_CHUNK_BYTES: usize = 48 << 20;

/// Maximum size of the JSON for one window, in all its chunks. 64 cores sampled at 101 Hz for 60 s make 388,000
/// observations, about 40 MiB; six times that is not a plausible profile of a process.
pub const MAX_WINDOW_BYTES: u64 = 256 << 20;

/// Maximum length of a name, path or id, in bytes. A longer one is truncated and gets an ellipsis: otherwise a 4 MiB
/// name that a million functions share would become terabytes.
pub const MAX_STRING_BYTES: usize = 4096;

/// Maximum number of frames in a stack, counted from the leaf, including inlined functions. Relay's own converter of
/// Perfetto traces has the same limit (getsentry/relay `relay-profiling/src/perfetto/convert/consts.rs`).
pub const MAX_STACK_FRAMES: usize = 1000;

/// Maximum number of frames in a chunk: six decimal digits. At 30 bytes or more each, they far exceed the target size.
pub const MAX_FRAMES: usize = 1_000_000;

/// Maximum number of synthetic threads for observations without a thread: one for each core of a large host.
pub const MAX_SYNTHETIC_LANES: usize = 1024;

/// Minimum number of samples with frames that Relay requires of a thread (getsentry/relay
/// `relay-profiling/src/sample/v2.rs`).
pub const MIN_THREAD_SAMPLES: u64 = 2;

/// Maximum length of an environment's name, in characters (Sentry documentation, "Environments").
pub const MAX_ENVIRONMENT: usize = 64;

/// Maximum length of a configured platform, in bytes: those that Sentry knows are shorter than 20.
pub const MAX_PLATFORM: usize = 64;

/// Minimum target size of a chunk, in bytes: smaller chunks would mostly consist of repeated frames.
pub const MIN_TARGET_BYTES: usize = 64 << 10;

/// Timers deviate by less than 1/`JITTER` of an observation's weight. So a gap of up to one and a half weights is
/// jitter and stays open, and a remainder of less than half a weight does not count as a loss.
pub const JITTER: i64 = 2;

/// An observation without a thread may come early by 1/`EARLY` of its weight and still count as the next one of the
/// same core, whose timer is regular.
pub const EARLY: u64 = 4;

/// Maximum missing time of a thread, in weights. If intervals vary at random, the shown time falls behind and catches
/// up again: with variations of up to a half, by about 30 weights over a minute at 100 Hz. The limit is necessary
/// because missing time is shown as time of later observations.
pub const MOST_OWED: i64 = 64;

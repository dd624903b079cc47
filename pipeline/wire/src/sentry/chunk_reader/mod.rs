//! Converts a `profile_chunk` to a batch of profiles: the inverse of [`chunk`](super::chunk).
//!
//! A chunk covers one process and window, so it becomes one resource with one profile, whose `profile_id` is the
//! `chunk_id`. Data without a field in OTLP goes into `sentry.*` attributes:
//!
//! | in the chunk | in the batch |
//! | --- | --- |
//! | `chunk_id`, `profiler_id` | `profile_id`; resource `sentry.profiler_id` and the batch's window |
//! | `release` | resource `service.name` and `service.version` if it is `NAME@VERSION`, else `sentry.release` |
//! | `environment`, `platform` | resource `deployment.environment.name`, `sentry.platform` |
//! | `client_sdk` | the scope's name and version |
//! | `measurements` | profile attribute `sentry.measurements`, its JSON |
//! | an image with frames | a mapping; `sentry.debug_id`, `sentry.image_{type,uuid,vmaddr}` |
//! | another image | profile attribute `sentry.images`, its JSON |
//! | `thread_id`, a thread's name and priority | `thread.id`, `thread.name`, `sentry.thread.priority` |
//! | a frame | a location with a line and a function; `sentry.frame.*` for the rest, `profile.frame.type` |
//! | `timestamp` | a timestamp, and as its value the time until the next sample of the thread |
//!
//! The values are the times that Sentry shows: a sample owns the time until the next one of its thread, the last owns
//! nothing (getsentry/vroom). A sample with an empty stack is idle time, kept as a sample without a stack with the
//! value 0.
//!
//! The reader rejects what Relay rejects (getsentry/relay `relay-profiling/src/sample/v2.rs`), but accepts chunks that
//! Sentry merely does not show (one sample, more than 66 s). Keys that Relay strips are ignored.

mod build;
mod model;

use profbridge_model::Profiles;

pub use super::profile_items::read_items;
pub use super::sampled::{MAX_BYTES, MAX_ENTRIES, MAX_FRAMES, MAX_STACKS, ProfileError};
use super::sampled::{SampledProfile, text_of, unreadable};

/// The version of the sample format in chunks.
const VERSION: &str = "2";

/// Reads a chunk from the JSON of an item's payload.
///
/// # Errors
///
/// The first broken rule and its place.
pub fn read(payload: &[u8]) -> Result<Profiles, ProfileError> {
    read_of(payload, None).map(|read| read.profiles)
}

/// Reads a chunk from an item with this platform in its header.
///
/// # Errors
///
/// As for [`read`], or the platforms differ.
pub(super) fn read_of(payload: &[u8], platform: Option<&str>) -> Result<SampledProfile, ProfileError> {
    let payload = text_of(payload)?;
    let chunk: model::ChunkJson<'_> =
        serde_json::from_str(payload).map_err(|error| unreadable(payload, VERSION, &error))?;
    if platform.is_some_and(|platform| platform != chunk.platform.as_str()) {
        return Err(ProfileError::rule("platform", "differs from the platform in the item's header"));
    }
    build::build(chunk)
}

#[cfg(test)]
mod tests;

//! A `profile_chunk` becomes a batch of profiles: the way back of [`chunk`](super::chunk).
//!
//! One chunk is one process in one window, so it becomes one resource with one profile, whose `profile_id` is the
//! `chunk_id`. What OTLP has a field for goes there, what it has none for into `sentry.*` attributes:
//!
//! | in the chunk | in the batch |
//! | --- | --- |
//! | `chunk_id`, `profiler_id` | `profile_id`; resource `sentry.profiler_id` and the batch's window |
//! | `release` | resource `service.name` and `service.version` where it is `NAME@VERSION`, else `sentry.release` |
//! | `environment`, `platform` | resource `deployment.environment.name`, `sentry.platform` |
//! | `client_sdk` | the scope's name and version |
//! | `measurements` | profile attribute `sentry.measurements`, its JSON |
//! | an image with an address | a mapping; `sentry.debug_id`, `sentry.image_type`, `sentry.image_vmaddr` |
//! | an image without one | profile attribute `sentry.images`, its JSON |
//! | `thread_id`, a thread's name and priority | `thread.id`, `thread.name`, `sentry.thread.priority` |
//! | a frame | a location with a line and a function; `sentry.frame.*` for the rest, `profile.frame.type` |
//! | `timestamp` | a timestamp, and as its value the time until the next sample of the thread |
//!
//! The values say what Sentry shows: a sample owns the time until the next one of its thread, the last owns nothing
//! (getsentry/vroom). A sample with an empty stack is idle time and is kept as a sample without a stack.
//!
//! Refused is what Relay refuses (getsentry/relay `relay-profiling/src/sample/v2.rs`), except that what Sentry merely
//! does not show (one sample, more than 66 s) is read. Keys that Relay strips are ignored.

mod build;
mod model;
mod text;

use profbridge_model::dictionary::Invalid;
use profbridge_model::{Envelope, Profiles};

use super::envelope::ItemHeader;

/// The largest chunk that is read, in bytes: what Relay takes (getsentry/relay `relay-config/src/config.rs`,
/// `max_profile_size`).
pub const MAX_BYTES: usize = 50 << 20;

/// The most frames of a chunk. A frame without keys is three bytes of JSON and 200 in memory: without a limit 50 MiB
/// would become 3 GiB.
pub const MAX_FRAMES: usize = 1 << 18;

/// The most stacks of a chunk.
pub const MAX_STACKS: usize = 1 << 20;

/// The most images, and the most threads with metadata, of a chunk.
pub const MAX_ENTRIES: usize = 1 << 16;

/// Why a chunk cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChunkError {
    /// It is larger than [`MAX_BYTES`].
    #[error("the chunk has {bytes} bytes, {MAX_BYTES} are allowed")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// It is no JSON, or a key is missing or of another type.
    #[error("the chunk cannot be read: {0}")]
    Json(String),
    /// It breaks a rule.
    #[error(transparent)]
    Rule(#[from] Invalid),
}

/// Reads a chunk: the JSON of an item's payload.
///
/// # Errors
///
/// Names the first rule that it breaks, and where.
pub fn read(payload: &[u8]) -> Result<Profiles, ChunkError> {
    read_of(payload, None)
}

/// An item of an envelope that is a profile chunk, not read yet.
#[derive(Debug, Clone, Copy)]
pub struct Candidate<'a> {
    /// The item's position.
    pub item: usize,
    /// Its JSON.
    pub payload: &'a [u8],
    header: &'a [u8],
}

impl Candidate<'_> {
    /// Reads it.
    ///
    /// # Errors
    ///
    /// As [`read`], and its platform is not that of the item's header.
    pub fn read(&self) -> Result<Profiles, ChunkError> {
        let header = ItemHeader::read(self.header).map_err(|error| json(&error))?;
        if header.content_type.as_deref().is_some_and(|kind| kind == "application/x-perfetto-trace") {
            return Err(invalid("content_type", "a Perfetto trace is not supported, only JSON"));
        }
        read_of(self.payload, header.platform.as_deref())
    }
}

/// The profile chunks among an envelope's items, in order. Items of other types are passed over, and so are payloads
/// that are still packed; a V1 profile belongs to the transaction beside it and stays an item.
pub fn candidates(envelope: &Envelope) -> impl Iterator<Item = Candidate<'_>> {
    envelope.items.iter().enumerate().filter_map(|(item, part)| {
        ItemHeader::read(&part.header).ok().filter(ItemHeader::is_profile_chunk)?;
        Some(Candidate { item, payload: part.payload.plain()?, header: &part.header })
    })
}

/// Reads every profile chunk among an envelope's items, in order, each with its item's position.
pub fn read_items(envelope: &Envelope) -> impl Iterator<Item = (usize, Result<Profiles, ChunkError>)> + '_ {
    candidates(envelope).map(|candidate| (candidate.item, candidate.read()))
}

fn read_of(payload: &[u8], platform: Option<&str>) -> Result<Profiles, ChunkError> {
    if payload.len() > MAX_BYTES {
        return Err(ChunkError::TooLarge { bytes: payload.len() });
    }
    let chunk: model::Chunk<'_> = serde_json::from_slice(payload).map_err(|error| json(&error))?;
    if platform.is_some_and(|platform| platform != chunk.platform.as_str()) {
        return Err(invalid("platform", "differs from the platform in the item's header"));
    }
    build::build(&chunk)
}

/// The parser's message, of bounded length: it quotes what it found.
fn json(error: &serde_json::Error) -> ChunkError {
    const LONGEST: usize = 200;
    let text = error.to_string();
    if text.chars().nth(LONGEST).is_none() {
        return ChunkError::Json(text);
    }
    let start: String = text.chars().take(LONGEST).collect();
    ChunkError::Json(format!("{start}... at line {} column {}", error.line(), error.column()))
}

fn invalid(place: impl Into<String>, rule: impl Into<String>) -> ChunkError {
    ChunkError::Rule(Invalid { place: place.into(), rule: rule.into() })
}

#[cfg(test)]
mod tests;

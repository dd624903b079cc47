//! Destinations of finished chunks.
//!
//! A chunk is written while it is built, so that it can be compressed without being in memory as a whole. Its id is a
//! hash of the content, and is therefore at the end of the JSON.

use std::io;

use uuid::Uuid;

use profbridge_model::ProfilerId;

/// The properties of a chunk that are known before its first byte, for the headers of the envelope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkHead<'a> {
    /// The payload's platform; the platform in the item header must equal it (getsentry/relay
    /// `relay-server/src/processing/profile_chunks/process.rs`).
    pub platform: &'a str,
    /// The id of the process and session.
    pub profiler_id: ProfilerId,
    /// The release, if the process names its service.
    pub release: Option<&'a str>,
    /// The environment.
    pub environment: &'a str,
    /// Approximate size of the JSON that follows, in bytes.
    pub estimated_bytes: usize,
}

/// The properties of a finished chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkSummary {
    /// Hash of profiler and content, in the form of a random UUID. Equal chunks have equal ids, so that a chunk that is
    /// sent twice replaces itself.
    pub chunk_id: Uuid,
    /// The platform, as in the head.
    pub platform: String,
    /// Number of observations in the chunk.
    pub observations: u64,
    /// Number of samples written, including synthesized ones.
    pub samples: u64,
    /// Number of samples without an observation: closing samples, and second samples of split observations.
    pub synthesized: u64,
    /// Number of observations that are not written because the samples around them already cover their time.
    pub coalesced: u64,
    /// The time that Sentry bills: from the first to the last sample, in nanoseconds.
    pub billed_nanos: u64,
    /// The time of the first sample, in nanoseconds since the Unix epoch.
    pub first_unix_nano: u64,
    /// The size of the JSON, in bytes.
    pub json_bytes: u64,
}

/// Receives chunks one after the other: `begin`, any number of `write` calls, then `finish` or `abandon`. All calls
/// come from the thread that calls [`Converter::convert`](super::Converter::convert), so a sink need be neither `Send`
/// nor `Sync`.
///
/// ```
/// use profbridge_model::{Builder, IdentityStrength, ProcessWindow, ProfilerId};
/// use profbridge_wire::sentry::chunk::{Collected, Converter, Settings};
///
/// let mut builder = Builder::new();
/// builder.on_cpu(20);
/// let frame = builder.frame("work", "main.py", 12);
/// let stack = builder.stack(&[frame]);
/// builder.sample(stack, None, None, &[1_000_000_000, 1_050_000_000], &[]);
/// let mut batch = builder.finish()?;
/// batch.window = Some(ProcessWindow {
///     profiler_id: ProfilerId::from_hash(7),
///     strength: IdentityStrength::Strong,
///     start_unix_nano: 0,
///     end_unix_nano: 60_000_000_000,
/// });
///
/// let mut sink = Collected::default();
/// Converter::new(Settings::default()).convert(&batch, &mut sink);
/// let (json, summary) = &sink.chunks[0];
/// assert_eq!((json.len() as u64, summary.observations), (summary.json_bytes, 2));
/// # Ok::<(), profbridge_model::dictionary::Invalid>(())
/// ```
pub trait ChunkSink {
    /// Opens a chunk.
    ///
    /// # Errors
    ///
    /// The chunk's observations are counted as not written.
    fn begin(&mut self, head: &ChunkHead<'_>) -> io::Result<()>;

    /// Appends to the open chunk's JSON, in pieces of some ten kilobytes.
    ///
    /// # Errors
    ///
    /// The chunk's observations are counted as not written, and the chunk is abandoned.
    fn write(&mut self, json: &[u8]) -> io::Result<()>;

    /// Closes the open chunk.
    ///
    /// # Errors
    ///
    /// The chunk's observations are counted as not written.
    fn finish(&mut self, summary: &ChunkSummary) -> io::Result<()>;

    /// Discards the open chunk: the part already written must not be sent.
    fn abandon(&mut self);
}

/// Keeps chunks in memory, for tests and tools that need complete chunks.
#[derive(Debug, Default)]
pub struct Collected {
    /// The finished chunks: their JSON and their summaries.
    pub chunks: Vec<(Vec<u8>, ChunkSummary)>,
    open: Vec<u8>,
}

impl ChunkSink for Collected {
    fn begin(&mut self, head: &ChunkHead<'_>) -> io::Result<()> {
        self.open = Vec::with_capacity(head.estimated_bytes);
        Ok(())
    }

    fn write(&mut self, json: &[u8]) -> io::Result<()> {
        self.open.extend_from_slice(json);
        Ok(())
    }

    fn finish(&mut self, summary: &ChunkSummary) -> io::Result<()> {
        self.chunks.push((std::mem::take(&mut self.open), summary.clone()));
        Ok(())
    }

    fn abandon(&mut self) {
        self.open.clear();
    }
}

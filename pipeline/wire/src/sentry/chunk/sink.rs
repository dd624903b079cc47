//! Where finished chunks go.
//!
//! A chunk is written while it is made, so that a compressor can work on it without the whole of it ever being in
//! memory. Its id depends on its content and stands at its end.

use std::io;

use uuid::Uuid;

use profbridge_model::ProfilerId;

/// What is known of a chunk before its first byte: what an envelope's headers need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkHead<'a> {
    /// The payload's platform, to which the item header's must be equal (getsentry/relay
    /// `relay-server/src/processing/profile_chunks/process.rs`).
    pub platform: &'a str,
    /// The process and session.
    pub profiler_id: ProfilerId,
    /// The release, where the process names its service.
    pub release: Option<&'a str>,
    /// The environment.
    pub environment: &'a str,
    /// About how many bytes of JSON follow.
    pub estimated_bytes: usize,
}

/// What is known of a chunk after its last byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkSummary {
    /// The hash of profiler and content, with the bits of a random UUID: equal chunks have equal ids, so that sending
    /// one again overwrites it.
    pub chunk_id: Uuid,
    /// The platform, as in the head.
    pub platform: String,
    /// The observations in it.
    pub observations: u64,
    /// The samples written, including the ones that no observation stands behind.
    pub samples: u64,
    /// The samples that no observation stands behind: the end of a run, the second half of a lone observation.
    pub synthesized: u64,
    /// The observations that are not written because the ones around them already say the same.
    pub coalesced: u64,
    /// The time that Sentry bills: from the first to the last sample, in nanoseconds.
    pub billed_nanos: u64,
    /// The time of the first sample, in nanoseconds since the Unix epoch.
    pub first_unix_nano: u64,
    /// The size of the JSON, in bytes.
    pub json_bytes: u64,
}

/// Takes chunks, one after the other: `begin`, any number of `write`, then `finish` or `abandon`. All calls come from
/// the thread that converts, within [`Converter::convert`](super::Converter::convert), so a sink need be neither `Send`
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

    /// Appends to the open chunk's JSON. Called with pieces of some ten kilobytes.
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

    /// Gives the open chunk up: what was written of it must not be sent.
    fn abandon(&mut self);
}

/// Keeps chunks in memory, for tests and for tools that need a chunk as a whole.
#[derive(Debug, Default)]
pub struct Collected {
    /// The finished chunks: their JSON and what is known of them.
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

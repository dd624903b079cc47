//! A chunk in an envelope of its own.
//!
//! Two profile items in one envelope are refused with 413 (getsentry/relay `relay-server/src/utils/sizes.rs`), so each
//! chunk has its own. The chunk's JSON is one line, so the item needs no `length`, which would only be known at the
//! end; an item without one ends at the line's end (Sentry developer documentation, "Envelopes").

use std::io;

use super::chunk::{ChunkHead, ChunkSummary, Sink};

/// The name under which profbridge sends. None of Sentry's own SDKs, since those have rules of their own
/// (getsentry/sentry `src/sentry/models/projectsdk.py`).
pub const SDK_NAME: &str = "profbridge.rust";

/// The lines before a chunk's JSON: the envelope's header and the item's, whose platform must be equal to the
/// payload's. A line's end follows the JSON.
pub fn head(platform: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let platform = serde_json::Value::from(platform);
    format!(
        "{{\"sdk\":{{\"name\":\"{SDK_NAME}\",\"version\":\"{version}\"}}}}\n\
         {{\"type\":\"profile_chunk\",\"platform\":{platform},\"content_type\":\"application/json\"}}\n"
    )
}

/// Keeps envelopes in memory, uncompressed: for files and tools.
#[derive(Debug, Default)]
pub struct Envelopes {
    /// The finished envelopes, and what is known of the chunks in them.
    pub finished: Vec<(Vec<u8>, ChunkSummary)>,
    open: Vec<u8>,
}

impl Sink for Envelopes {
    fn begin(&mut self, head: &ChunkHead<'_>) -> io::Result<()> {
        let lines = self::head(head.platform);
        self.open = Vec::with_capacity(lines.len() + head.estimated_bytes + 1);
        self.open.extend_from_slice(lines.as_bytes());
        Ok(())
    }

    fn write(&mut self, json: &[u8]) -> io::Result<()> {
        self.open.extend_from_slice(json);
        Ok(())
    }

    fn finish(&mut self, summary: &ChunkSummary) -> io::Result<()> {
        self.open.push(b'\n');
        self.finished.push((std::mem::take(&mut self.open), summary.clone()));
        Ok(())
    }

    fn abandon(&mut self) {
        self.open.clear();
    }
}

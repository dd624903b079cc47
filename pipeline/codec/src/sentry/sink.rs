//! Chunks on their way into envelopes.

use std::io::{self, Write as _};

use bytes::Bytes;
use profbridge_model::Item;
use profbridge_net::compression::Compression;
use profbridge_wire::sentry::chunk::{ChunkHead, ChunkSink, ChunkSummary};
use profbridge_wire::sentry::chunk_envelope;

use crate::compressor::{Compressor, Open};

/// What an envelope has beside the chunk's JSON, in bytes: its own header and the item's, and their platform.
const HEADERS: usize = 1024;

/// So many times smaller compression makes a chunk's JSON at least.
const SHRINKS: usize = 6;

/// Puts each chunk into an envelope of its own, as [`chunk_envelope`] says.
pub(super) struct Envelopes<'a> {
    compressor: &'a mut Compressor,
    compression: Compression,
    /// Goes into the first envelope.
    extra: Option<Item>,
    open: Option<Open>,
    /// The finished envelopes.
    pub(super) finished: Vec<(Bytes, ChunkSummary)>,
}

impl<'a> Envelopes<'a> {
    pub(super) fn new(compressor: &'a mut Compressor, compression: Compression, extra: Option<Item>) -> Self {
        Self { compressor, compression, extra, open: None, finished: Vec::new() }
    }
}

fn nothing_open() -> io::Error {
    io::Error::other("no chunk is open")
}

impl ChunkSink for Envelopes<'_> {
    fn begin(&mut self, head: &ChunkHead<'_>) -> io::Result<()> {
        let mut open = self.compressor.open(self.compression, head.estimated_bytes + HEADERS, SHRINKS)?;
        open.write_all(chunk_envelope::head(head.platform).as_bytes())?;
        self.open = Some(open);
        Ok(())
    }

    fn write(&mut self, json: &[u8]) -> io::Result<()> {
        self.open.as_mut().ok_or_else(nothing_open)?.write_all(json)
    }

    fn finish(&mut self, summary: &ChunkSummary) -> io::Result<()> {
        let mut open = self.open.take().ok_or_else(nothing_open)?;
        open.write_all(b"\n")?;
        if let Some(item) = &self.extra {
            for part in [Some(&item.header), item.payload.plain()].into_iter().flatten() {
                open.write_all(part)?;
                open.write_all(b"\n")?;
            }
        }
        let body = self.compressor.close(open)?;
        self.extra = None;
        self.finished.push((body, summary.clone()));
        Ok(())
    }

    fn abandon(&mut self) {
        // The compressor's context goes with it: what it has seen of the beginning must not get into the next body.
        self.open = None;
    }
}

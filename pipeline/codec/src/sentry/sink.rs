//! Writes chunks into envelopes.

use std::io::{self, Write as _};

use bytes::Bytes;
use profbridge_model::Item;
use profbridge_net::compression::Compression;
use profbridge_wire::sentry::chunk::{ChunkHead, ChunkSink, ChunkSummary};
use profbridge_wire::sentry::chunk_envelope;

use crate::compressor::{Compressor, OpenBody};

/// Maximum size of an envelope besides the chunk's JSON, in bytes: its own header and the item's.
const HEADERS: usize = 1024;

/// The minimum factor by which compression shrinks a chunk's JSON.
const SHRINKS: usize = 6;

/// Puts each chunk into its own envelope, see [`chunk_envelope`].
pub(super) struct Envelopes<'a> {
    compressor: &'a mut Compressor,
    compression: Compression,
    /// An item to add to the first envelope.
    extra: Option<Item>,
    open: Option<OpenBody>,
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
        // This also drops the compressor's context, whose state must not leak into the next body.
        self.open = None;
    }
}

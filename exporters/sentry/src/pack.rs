//! Envelopes, compressed while they are written.
//!
//! The compressor owns zstd's context, which is costly to build, and lends it to one envelope after the other: a
//! gateway writes thousands of small ones in a minute.

use std::io::{self, Write};

use bytes::Bytes;
use flate2::write::GzEncoder;
use profbridge_model::Item;
use profbridge_net::compression::Compression;
use profbridge_wire::sentry::chunk::{ChunkHead, ChunkSummary, Sink};
use profbridge_wire::sentry::chunk_envelope;
use zstd::stream::raw::{Encoder, Operation};
use zstd::stream::zio;

/// Makes compressed bodies, one at a time.
#[derive(Default)]
pub(crate) struct Packer {
    zstd: Option<(i32, Encoder<'static>)>,
}

/// A body that is being written.
enum Open {
    Plain(Vec<u8>),
    Gzip(Box<GzEncoder<Vec<u8>>>),
    Zstd(i32, Box<zio::Writer<Vec<u8>, Encoder<'static>>>),
}

impl Open {
    fn writer(&mut self) -> &mut dyn Write {
        match self {
            Open::Plain(body) => body,
            Open::Gzip(encoder) => encoder,
            Open::Zstd(_, encoder) => encoder,
        }
    }
}

impl Packer {
    /// A body of what `write` writes.
    pub(crate) fn pack(&mut self, compression: Compression, body: &[u8]) -> io::Result<Bytes> {
        let mut open = self.open(compression, body.len())?;
        open.writer().write_all(body)?;
        self.close(open)
    }

    fn open(&mut self, compression: Compression, estimated: usize) -> io::Result<Open> {
        match compression {
            Compression::None => Ok(Open::Plain(Vec::with_capacity(estimated + 1024))),
            Compression::Gzip { level } => {
                let body = Vec::with_capacity(estimated / 6);
                Ok(Open::Gzip(Box::new(GzEncoder::new(body, flate2::Compression::new(level)))))
            }
            Compression::Zstd { level } => {
                let encoder = match self.zstd.take() {
                    Some((known, mut encoder)) if known == level => {
                        // An envelope that was abandoned has left its beginning behind.
                        encoder.reinit()?;
                        encoder
                    }
                    _ => Encoder::new(level)?,
                };
                let writer = zio::Writer::new(Vec::with_capacity(estimated / 6), encoder);
                Ok(Open::Zstd(level, Box::new(writer)))
            }
        }
    }

    fn close(&mut self, open: Open) -> io::Result<Bytes> {
        let body = match open {
            Open::Plain(body) => body,
            Open::Gzip(encoder) => encoder.finish()?,
            Open::Zstd(level, mut writer) => {
                writer.finish()?;
                let (body, encoder) = writer.into_inner();
                self.zstd = Some((level, encoder));
                body
            }
        };
        // The queue counts what it holds by length, so nothing beyond that is kept.
        Ok(Bytes::from(body.into_boxed_slice()))
    }
}

/// Puts each chunk into an envelope of its own, as [`chunk_envelope`] says.
pub(crate) struct Envelopes<'a> {
    packer: &'a mut Packer,
    compression: Compression,
    /// Goes into the first envelope.
    extra: Option<Item>,
    open: Option<Open>,
    /// The finished envelopes.
    pub(crate) finished: Vec<(Bytes, ChunkSummary)>,
}

impl<'a> Envelopes<'a> {
    pub(crate) fn new(packer: &'a mut Packer, compression: Compression, extra: Option<Item>) -> Self {
        Self { packer, compression, extra, open: None, finished: Vec::new() }
    }
}

fn nothing_open() -> io::Error {
    io::Error::other("no chunk is open")
}

impl Sink for Envelopes<'_> {
    fn begin(&mut self, head: &ChunkHead<'_>) -> io::Result<()> {
        let mut open = self.packer.open(self.compression, head.estimated_bytes)?;
        open.writer().write_all(chunk_envelope::head(head.platform).as_bytes())?;
        self.open = Some(open);
        Ok(())
    }

    fn write(&mut self, json: &[u8]) -> io::Result<()> {
        self.open.as_mut().ok_or_else(nothing_open)?.writer().write_all(json)
    }

    fn finish(&mut self, summary: &ChunkSummary) -> io::Result<()> {
        let mut open = self.open.take().ok_or_else(nothing_open)?;
        let writer = open.writer();
        writer.write_all(b"\n")?;
        if let Some(item) = &self.extra {
            for part in [&item.header, &item.payload] {
                writer.write_all(part)?;
                writer.write_all(b"\n")?;
            }
        }
        let body = self.packer.close(open)?;
        self.extra = None;
        self.finished.push((body, summary.clone()));
        Ok(())
    }

    fn abandon(&mut self) {
        // The encoder goes with it: what a compressor has seen of the beginning must not get into the next body.
        self.open = None;
    }
}

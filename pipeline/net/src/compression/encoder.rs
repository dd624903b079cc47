//! Compression into a writer, so that what is written never exists uncompressed as a whole.

use std::io::{self, Write};

use flate2::write::GzEncoder;
use zstd::stream::raw::{self, CParameter, Operation as _};
use zstd::stream::zio;

/// How an outgoing payload is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    None,
    /// gzip; levels 1 to 9, others are moved into that range.
    Gzip {
        /// The level.
        level: u32,
    },
    /// zstd; levels 1 to 9, others are moved into that range. The window is at most 2 MiB at every
    /// level. A context takes 1.4 MB at level 1, 3.7 MB at level 3 and 13 MB at level 9, and there is
    /// one for each payload that is being written; level 19 would take 88 MB.
    Zstd {
        /// The level.
        level: i32,
    },
}

/// The largest window that is written: 2 MiB. Level 9 would take 4 MiB.
const WINDOW_LOG_MAX: u32 = 21;

impl Compression {
    /// zstd at level 1: the fastest, and smaller than gzip at level 6 on profiles.
    pub const ZSTD: Compression = Compression::Zstd { level: 1 };
    /// gzip at level 3: a tenth larger than at level 6 in less than half of its time, measured on
    /// profiles with zlib-rs. Level 1 takes half of that again and is 1.45 times as large.
    pub const GZIP: Compression = Compression::Gzip { level: 3 };

    /// The highest level of either kind.
    pub const MAX_LEVEL: i32 = 9;

    /// The value of the `Content-Encoding` header; `None` for no header.
    pub fn content_encoding(self) -> Option<&'static str> {
        match self {
            Compression::None => None,
            Compression::Gzip { .. } => Some("gzip"),
            Compression::Zstd { .. } => Some("zstd"),
        }
    }

    /// The same kind at another level.
    #[must_use]
    pub fn with_level(self, level: i32) -> Compression {
        match self {
            Compression::None => Compression::None,
            Compression::Gzip { .. } => Compression::Gzip { level: level.clamp(1, Self::MAX_LEVEL).unsigned_abs() },
            Compression::Zstd { .. } => Compression::Zstd { level: level.clamp(1, Self::MAX_LEVEL) },
        }
    }
}

/// What one payload leaves for the next: zstd's context, which is costly to build. A payload owns it while it is
/// written, so that whoever writes payloads one after the other can hold the one that is open beside the place where the
/// context goes back to.
#[derive(Default)]
pub struct EncoderContext {
    pub(super) zstd: Option<raw::Encoder<'static>>,
}

impl std::fmt::Debug for EncoderContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EncoderContext").field("has_zstd", &self.zstd.is_some()).finish()
    }
}

/// What zstd is told for a level. A window of 0 is the level's own.
pub(super) fn parameters(level: i32) -> [CParameter; 2] {
    let level = level.clamp(1, Compression::MAX_LEVEL);
    let window = if level == Compression::MAX_LEVEL { WINDOW_LOG_MAX } else { 0 };
    [CParameter::CompressionLevel(level), CParameter::WindowLog(window)]
}

/// A writer that compresses. What is written reaches the inner writer by and by; [`Encoder::finish`]
/// writes the end, without which the output is truncated.
pub enum Encoder<W: Write> {
    /// Hands through.
    Plain(W),
    /// gzip.
    Gzip(GzEncoder<W>),
    /// zstd.
    Zstd(zio::Writer<W, raw::Encoder<'static>>),
}

impl<W: Write> Encoder<W> {
    /// Begins a payload in `writer`, with what `context` kept from the last one. A payload that is never finished keeps
    /// it.
    ///
    /// # Errors
    /// zstd cannot allocate its context.
    pub fn new(compression: Compression, writer: W, context: &mut EncoderContext) -> io::Result<Self> {
        match compression {
            Compression::None => Ok(Encoder::Plain(writer)),
            Compression::Gzip { level } => {
                Ok(Encoder::Gzip(GzEncoder::new(writer, flate2::Compression::new(level.clamp(1, 9)))))
            }
            Compression::Zstd { level } => {
                let mut zstd = context.zstd.take().map_or_else(|| raw::Encoder::new(level), Ok)?;
                zstd.reinit()?;
                parameters(level).into_iter().try_for_each(|parameter| zstd.set_parameter(parameter))?;
                Ok(Encoder::Zstd(zio::Writer::new(writer, zstd)))
            }
        }
    }

    /// Writes the end, hands back the inner writer, and leaves in `context` what serves the next payload.
    ///
    /// # Errors
    /// The inner writer's.
    pub fn finish(self, context: &mut EncoderContext) -> io::Result<W> {
        match self {
            Encoder::Plain(mut writer) => writer.flush().map(|()| writer),
            Encoder::Gzip(encoder) => encoder.finish(),
            Encoder::Zstd(mut encoder) => {
                encoder.finish()?;
                let (writer, zstd) = encoder.into_inner();
                context.zstd = Some(zstd);
                Ok(writer)
            }
        }
    }
}

impl<W: Write> Write for Encoder<W> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        match self {
            Encoder::Plain(writer) => writer.write(data),
            Encoder::Gzip(encoder) => encoder.write(data),
            Encoder::Zstd(encoder) => encoder.write(data),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Encoder::Plain(writer) => writer.flush(),
            Encoder::Gzip(encoder) => encoder.flush(),
            Encoder::Zstd(encoder) => encoder.flush(),
        }
    }
}

//! Compresses into a writer, so that the payload never exists uncompressed as a whole.

use std::io::{self, Write};

use flate2::write::GzEncoder;
use zstd::stream::raw::{self, CParameter, Operation as _};
use zstd::stream::zio;

/// How an outgoing payload is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// No compression.
    None,
    /// gzip; levels are clamped to 1 to 9.
    Gzip {
        /// The level.
        level: u32,
    },
    /// zstd; levels are clamped to 1 to 9. The window is at most 2 MiB at every level. A context takes 1.4 MB at level
    /// 1, 3.7 MB at level 3 and 13 MB at level 9, and each open payload has one; level 19 would take 88 MB.
    Zstd {
        /// The level.
        level: i32,
    },
}

/// The largest window: 2 MiB. Level 9 would otherwise use 4 MiB.
const WINDOW_LOG_MAX: u32 = 21;

impl Compression {
    /// zstd at level 1: the fastest level, and on profiles smaller than gzip at level 6.
    pub const ZSTD: Compression = Compression::Zstd { level: 1 };
    /// gzip at level 3: its output is a tenth larger than at level 6, in less than half of the time, measured on
    /// profiles with zlib-rs. Level 1 takes half of that time, but its output is 1.45 times as large.
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

    /// The same format at another level.
    #[must_use]
    pub fn with_level(self, level: i32) -> Compression {
        match self {
            Compression::None => Compression::None,
            Compression::Gzip { .. } => Compression::Gzip { level: level.clamp(1, Self::MAX_LEVEL).unsigned_abs() },
            Compression::Zstd { .. } => Compression::Zstd { level: level.clamp(1, Self::MAX_LEVEL) },
        }
    }
}

/// State that is reused from one payload to the next: zstd's context, which is costly to create. A payload owns the
/// context while it is written, so that one struct can contain both the open payload and the place of the context.
#[derive(Default)]
pub struct EncoderContext {
    pub(super) zstd: Option<raw::Encoder<'static>>,
}

impl std::fmt::Debug for EncoderContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EncoderContext").field("has_zstd", &self.zstd.is_some()).finish()
    }
}

/// The zstd parameters for a level. A window of 0 means the level's default.
pub(super) fn parameters(level: i32) -> [CParameter; 2] {
    let level = level.clamp(1, Compression::MAX_LEVEL);
    let window = if level == Compression::MAX_LEVEL { WINDOW_LOG_MAX } else { 0 };
    [CParameter::CompressionLevel(level), CParameter::WindowLog(window)]
}

/// A writer that compresses. The inner writer gets the output with a delay; only [`Encoder::finish`] writes the end,
/// without which the output is truncated.
pub enum Encoder<W: Write> {
    /// Writes unchanged.
    Plain(W),
    /// gzip.
    Gzip(GzEncoder<W>),
    /// zstd.
    Zstd(zio::Writer<W, raw::Encoder<'static>>),
}

impl<W: Write> Encoder<W> {
    /// Starts a payload in `writer`, reusing the state in `context`. A payload that is never finished does not return
    /// the state.
    ///
    /// # Errors
    ///
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

    /// Writes the end, returns the inner writer, and stores the reusable state in `context`.
    ///
    /// # Errors
    ///
    /// The inner writer failed.
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

//! Decompression under a limit.

use std::io::{self, Read, Write};

use bytes::Bytes;
use flate2::bufread::{GzDecoder, MultiGzDecoder, ZlibDecoder};
use zstd::stream::raw::DParameter;
use zstd::zstd_safe;

use super::Coding;
use super::brotli::BrotliReader;

/// The largest window a zstd frame may ask for: 8 MiB, which is what RFC 9659 allows for the content
/// coding `zstd`. A frame may claim up to 2 GiB otherwise.
const ZSTD_WINDOW_LOG_MAX: u32 = 23;

const DEFLATE: &str = "deflate (zlib)";
const BROTLI: &str = "br (Brotli)";

/// The output buffer grows at least by this, in bytes.
const MIN_STEP: usize = 16 * 1024;

/// How much of the output is there at once where it is written part by part, in bytes.
const PART: usize = 64 * 1024;

/// How many times the input's size is allocated at once for an output whose size is announced.
/// Profiles compress by 3 to 10; what is larger grows as it is inflated.
const TRUSTED_RATIO: usize = 16;

/// Why a payload cannot be decompressed.
#[derive(Debug, thiserror::Error)]
pub enum DecompressError {
    /// The output is larger than allowed. Permanent: HTTP 413, gRPC RESOURCE_EXHAUSTED.
    #[error("the payload is larger than {limit} bytes after decompression")]
    TooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// The input is damaged, cut off, followed by something else, or asks for too large a window.
    /// Permanent: HTTP 400, gRPC INVALID_ARGUMENT.
    #[error("the payload is not valid {format}: {cause}")]
    Corrupt {
        /// The format that was announced.
        format: &'static str,
        /// What the decoder says.
        cause: io::Error,
    },
    /// The caller did not grant the memory for the output, see [`decompress_granted`].
    #[error("there is no memory for {wanted} decompressed bytes")]
    NotGranted {
        /// How large the output buffer would have become, in bytes.
        wanted: usize,
    },
}

/// Asked before an output buffer is allocated or grown: how large it will be in all, in bytes.
/// `false` ends the decompression.
pub type Grant<'a> = &'a mut dyn FnMut(usize) -> bool;

/// Decompresses `input`; identity hands it through without a copy. The output buffer is at most twice the output and
/// never more than `limit` and a step.
///
/// # Errors
/// The output is too large, or the input is not what `coding` says.
pub fn decompress(coding: Coding, input: Bytes, limit: usize) -> Result<Bytes, DecompressError> {
    decompress_granted(coding, input, limit, &mut |_| true).map(|output| output.plain)
}

/// What a payload was decompressed to.
#[derive(Debug)]
pub struct Decompressed {
    /// The output.
    pub plain: Bytes,
    /// Whether the payload is in the form that every decoder reads in the same way: one member of gzip whose head says
    /// nothing but how it is compressed, or one frame of zstd. Some decoders read the first of several only.
    pub in_one_piece: bool,
}

/// As [`decompress`], for a caller whose memory is counted: `grant` is asked before the output buffer takes memory, and
/// never for identity, whose output is the input.
///
/// # Errors
/// The output is too large, memory for it was not granted, or the input is not what `coding` says.
pub fn decompress_granted(
    coding: Coding,
    input: Bytes,
    limit: usize,
    grant: Grant<'_>,
) -> Result<Decompressed, DecompressError> {
    let mut in_one_piece = false;
    let plain = match coding {
        Coding::Identity if input.len() > limit => return Err(DecompressError::TooLarge { limit }),
        Coding::Identity => input,
        Coding::Gzip => {
            // The last four bytes are the size of the last member's output, modulo 2^32 (RFC 1952).
            let announced = input.last_chunk::<4>().map(|size| u32::from_le_bytes(*size) as usize);
            let mut members = Members { decoder: GzDecoder::new(&input), are_several: false };
            let output = drain(&mut members, "gzip", input.len(), announced, limit, grant)?;
            // The fourth byte says which optional fields the head has (RFC 1952, section 2.3.1).
            in_one_piece = !members.are_several && input.get(3) == Some(&0);
            output
        }
        Coding::Zstd => {
            let output = zstd(&input, limit, grant)?;
            in_one_piece = zstd_safe::find_frame_compressed_size(&input) == Ok(input.len());
            output
        }
        Coding::Deflate => {
            let mut decoder = ZlibDecoder::new(&*input);
            let output = drain(&mut decoder, DEFLATE, input.len(), None, limit, grant)?;
            let rest = decoder.get_ref().len();
            if rest > 0 {
                let text = format!("{rest} bytes follow the end of the stream");
                let cause = io::Error::new(io::ErrorKind::InvalidData, text);
                return Err(DecompressError::Corrupt { format: DEFLATE, cause });
            }
            output
        }
        Coding::Brotli => drain(BrotliReader::new(&input), BROTLI, input.len(), None, limit, grant)?,
    };
    Ok(Decompressed { plain, in_one_piece })
}

fn zstd(input: &[u8], limit: usize, grant: Grant<'_>) -> Result<Bytes, DecompressError> {
    let corrupt = |cause| DecompressError::Corrupt { format: "zstd", cause };
    if input.is_empty() {
        return Err(corrupt(io::ErrorKind::UnexpectedEof.into()));
    }
    let announced = match zstd_safe::get_frame_content_size(input) {
        // A frame that announces more than the limit needs no decoder to be refused.
        Ok(Some(size)) if size > limit as u64 => return Err(DecompressError::TooLarge { limit }),
        Ok(size) => size.and_then(|size| usize::try_from(size).ok()),
        // Not a frame; the decoder says so.
        Err(_) => None,
    };
    drain(zstd_decoder(input).map_err(corrupt)?, "zstd", input.len(), announced, limit, grant)
}

fn zstd_decoder(input: &[u8]) -> io::Result<zstd::stream::read::Decoder<'static, &[u8]>> {
    let mut decoder = zstd::stream::read::Decoder::with_buffer(input)?;
    decoder.set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW_LOG_MAX))?;
    Ok(decoder)
}

/// Decompresses into a writer, part by part: for who needs the output once and has no memory for all of it.
///
/// # Errors
/// The output is larger than `limit`, the input is not what `coding` says (both a [`DecompressError`] inside), or
/// `output` fails.
pub fn decompress_into(coding: Coding, input: &[u8], limit: usize, output: &mut dyn Write) -> io::Result<()> {
    let corrupt = |format| move |cause| io::Error::other(DecompressError::Corrupt { format, cause });
    match coding {
        Coding::Identity => pour(input, limit, output, corrupt("identity")),
        Coding::Gzip => pour(MultiGzDecoder::new(input), limit, output, corrupt("gzip")),
        Coding::Deflate => pour(ZlibDecoder::new(input), limit, output, corrupt(DEFLATE)),
        Coding::Brotli => pour(BrotliReader::new(input), limit, output, corrupt(BROTLI)),
        Coding::Zstd => pour(zstd_decoder(input)?, limit, output, corrupt("zstd")),
    }
}

/// Reads to the end, a part at a time, and stops as soon as there is more than `limit`.
fn pour(
    mut decoder: impl Read,
    limit: usize,
    output: &mut dyn Write,
    corrupt: impl Fn(io::Error) -> io::Error,
) -> io::Result<()> {
    let mut part = vec![0; PART];
    let mut written = 0;
    loop {
        let more = match decoder.read(&mut part) {
            Ok(0) => return Ok(()),
            Ok(more) => more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(corrupt(error)),
        };
        written += more;
        if written > limit {
            return Err(io::Error::other(DecompressError::TooLarge { limit }));
        }
        output.write_all(&part[..more])?;
    }
}

/// The members of a gzip payload, one after the other.
struct Members<'a> {
    decoder: GzDecoder<&'a [u8]>,
    are_several: bool,
}

impl Read for Members<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.decoder.read(buffer)?;
            let rest = *self.decoder.get_ref();
            if read > 0 || buffer.is_empty() || rest.is_empty() {
                return Ok(read);
            }
            *self = Members { decoder: GzDecoder::new(rest), are_several: true };
        }
    }
}

/// Reads to the end into a buffer that doubles, and stops as soon as there is more than `limit`.
fn drain(
    mut decoder: impl Read,
    format: &'static str,
    input: usize,
    announced: Option<usize>,
    limit: usize,
    grant: Grant<'_>,
) -> Result<Bytes, DecompressError> {
    let trusted = input.saturating_mul(TRUSTED_RATIO).max(MIN_STEP);
    // One byte more than announced lets the decoder find the end without another step.
    let start = announced.map_or(input.saturating_mul(4), |size| size.saturating_add(1)).min(trusted);
    let most = limit.saturating_add(1);
    let mut granted = |wanted: usize| if grant(wanted) { Ok(()) } else { Err(DecompressError::NotGranted { wanted }) };
    granted(start.min(most))?;
    let mut output = Vec::with_capacity(start.min(most));
    let mut filled = 0;
    loop {
        if filled == output.len() {
            let step = output.len().max(MIN_STEP).max(output.capacity() - output.len());
            let target = output.len().saturating_add(step).min(most);
            if target > output.capacity() {
                granted(target)?;
                output.reserve_exact(target - output.len());
            }
            output.resize(target, 0);
        }
        match decoder.read(&mut output[filled..]) {
            Ok(0) => break,
            Ok(more) => filled += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(cause) => return Err(DecompressError::Corrupt { format, cause }),
        }
        if filled > limit {
            return Err(DecompressError::TooLarge { limit });
        }
    }
    output.truncate(filled);
    // Who keeps it, or sends it on as it is, counts its length.
    output.shrink_to_fit();
    Ok(Bytes::from(output))
}

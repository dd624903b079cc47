//! Decompression under a limit.

use std::io::{self, Read, Write};

use bytes::Bytes;
use flate2::bufread::{GzDecoder, MultiGzDecoder, ZlibDecoder};
use zstd::stream::raw::DParameter;
use zstd::zstd_safe;

use super::Coding;
use super::brotli::BrotliReader;

/// The largest window that a zstd frame may require: 8 MiB, which RFC 9659 allows for the content coding `zstd`.
/// Without a limit a frame may claim up to 2 GiB.
const ZSTD_WINDOW_LOG_MAX: u32 = 23;

const DEFLATE: &str = "deflate (zlib)";
const BROTLI: &str = "br (Brotli)";

/// Minimum growth of the output buffer in bytes.
const MIN_STEP: usize = 16 * 1024;

/// Buffer size in bytes when the output is written in parts.
const PART: usize = 64 * 1024;

/// At most this multiple of the input is allocated at once for an announced output size. Profiles compress by a factor
/// of 3 to 10; for larger outputs the buffer grows during decompression.
const MAX_PREALLOCATED_RATIO: usize = 16;

/// Why a payload could not be decompressed.
#[derive(Debug, thiserror::Error)]
pub enum DecompressError {
    /// The output is larger than allowed. Permanent: HTTP 413, gRPC RESOURCE_EXHAUSTED.
    #[error("the payload is larger than {limit} bytes after decompression")]
    TooLarge {
        /// The limit in bytes.
        limit: usize,
    },
    /// The input is damaged, truncated, followed by other bytes, or requires too large a window. Permanent: HTTP 400,
    /// gRPC INVALID_ARGUMENT.
    #[error("the payload is not valid {format}: {cause}")]
    Corrupt {
        /// The announced format.
        format: &'static str,
        /// The decoder's error.
        cause: io::Error,
    },
    /// The caller refused the memory for the output, see [`decompress_granted`].
    #[error("there is no memory for {wanted} decompressed bytes")]
    NotGranted {
        /// The requested size of the output buffer in bytes.
        wanted: usize,
    },
}

/// Called with the new total size in bytes before an output buffer is allocated or grown. Returning `false` stops the
/// decompression.
pub type Grant<'a> = &'a mut dyn FnMut(usize) -> bool;

/// Decompresses `input`. With identity, returns the input without a copy. The output buffer is at most twice the output
/// and never larger than `limit` plus one step.
///
/// # Errors
///
/// The output is too large, or the input is not valid in `coding`.
pub fn decompress(coding: Coding, input: Bytes, limit: usize) -> Result<Bytes, DecompressError> {
    decompress_granted(coding, input, limit, &mut |_| true).map(|output| output.plain)
}

/// A decompressed payload.
#[derive(Debug)]
pub struct Decompressed {
    /// The output.
    pub plain: Bytes,
    /// Whether every decoder reads the payload alike: it is one gzip member without optional header fields, or one zstd
    /// frame. Of several members or frames, some decoders only read the first.
    pub in_one_piece: bool,
}

/// Like [`decompress`], for a caller that counts memory: `grant` is called before the output buffer takes memory. It is
/// not called for identity, whose output is the input.
///
/// # Errors
///
/// The output is too large, memory for it was not granted, or the input is not valid in `coding`.
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
            // The fourth byte contains the flags of optional header fields (RFC 1952, section 2.3.1).
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
        // If the frame announces a size above the limit, it is refused without running a decoder.
        Ok(Some(size)) if size > limit as u64 => return Err(DecompressError::TooLarge { limit }),
        Ok(size) => size.and_then(|size| usize::try_from(size).ok()),
        // The input is not a frame; the decoder will report this.
        Err(_) => None,
    };
    drain(zstd_decoder(input).map_err(corrupt)?, "zstd", input.len(), announced, limit, grant)
}

fn zstd_decoder(input: &[u8]) -> io::Result<zstd::stream::read::Decoder<'static, &[u8]>> {
    let mut decoder = zstd::stream::read::Decoder::with_buffer(input)?;
    decoder.set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW_LOG_MAX))?;
    Ok(decoder)
}

/// Decompresses into a writer, part by part: for callers that need the output once and have no memory for all of it.
///
/// # Errors
///
/// The output is larger than `limit`, the input is not valid in `coding` (both as a wrapped [`DecompressError`]), or
/// `output` fails.
pub fn decompress_into(coding: Coding, input: &[u8], limit: usize, output: &mut dyn Write) -> io::Result<()> {
    let corrupt = |format| move |cause| io::Error::other(DecompressError::Corrupt { format, cause });
    match coding {
        Coding::Identity => copy_in_parts(input, limit, output, corrupt("identity")),
        Coding::Gzip => copy_in_parts(MultiGzDecoder::new(input), limit, output, corrupt("gzip")),
        Coding::Deflate => copy_in_parts(ZlibDecoder::new(input), limit, output, corrupt(DEFLATE)),
        Coding::Brotli => copy_in_parts(BrotliReader::new(input), limit, output, corrupt(BROTLI)),
        Coding::Zstd => copy_in_parts(zstd_decoder(input)?, limit, output, corrupt("zstd")),
    }
}

/// Copies to the end, part by part, and stops as soon as the output exceeds `limit`.
fn copy_in_parts(
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

/// Reads to the end into a buffer that doubles, and stops as soon as the output exceeds `limit`.
fn drain(
    mut decoder: impl Read,
    format: &'static str,
    input: usize,
    announced: Option<usize>,
    limit: usize,
    grant: Grant<'_>,
) -> Result<Bytes, DecompressError> {
    let trusted = input.saturating_mul(MAX_PREALLOCATED_RATIO).max(MIN_STEP);
    // One byte more than announced lets the decoder find the end without growing the buffer.
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
    // Callers that keep the output count its memory by its length.
    output.shrink_to_fit();
    Ok(Bytes::from(output))
}

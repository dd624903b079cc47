//! Decompresses Brotli from bytes in memory.

use std::io::{self, Read};

use brotli_decompressor::{BrotliDecompressStream, BrotliResult, BrotliState, StandardAlloc};

type DecoderState = BrotliState<StandardAlloc, StandardAlloc, StandardAlloc>;

/// Decompresses one stream. A truncated stream and bytes after its end are errors. The window grows with the output, up
/// to 16 MiB, the maximum of RFC 7932.
pub(super) struct BrotliReader<'a> {
    input: &'a [u8],
    at: usize,
    state: DecoderState,
    ended: bool,
}

impl<'a> BrotliReader<'a> {
    pub(super) fn new(input: &'a [u8]) -> Self {
        let alloc = StandardAlloc::default;
        Self { input, at: 0, state: BrotliState::new(alloc(), alloc(), alloc()), ended: false }
    }
}

impl Read for BrotliReader<'_> {
    fn read(&mut self, output: &mut [u8]) -> io::Result<usize> {
        if self.ended || output.is_empty() {
            return Ok(0);
        }
        let (mut left, mut room, mut written, mut total) = (self.input.len() - self.at, output.len(), 0, 0);
        let result = BrotliDecompressStream(
            &mut left,
            &mut self.at,
            self.input,
            &mut room,
            &mut written,
            output,
            &mut total,
            &mut self.state,
        );
        match result {
            BrotliResult::NeedsMoreOutput => Ok(written),
            BrotliResult::NeedsMoreInput => Err(io::ErrorKind::UnexpectedEof.into()),
            BrotliResult::ResultFailure => Err(io::Error::new(io::ErrorKind::InvalidData, "the stream is damaged")),
            BrotliResult::ResultSuccess if left > 0 => {
                let text = format!("{left} bytes follow the end of the stream");
                Err(io::Error::new(io::ErrorKind::InvalidData, text))
            }
            BrotliResult::ResultSuccess => {
                self.ended = true;
                Ok(written)
            }
        }
    }
}

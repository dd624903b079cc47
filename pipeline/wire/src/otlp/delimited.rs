//! The frames of the Collector's file exporter: many requests in one file, each preceded by its length.
//!
//! The length is a big-endian 32-bit integer (opentelemetry-collector-contrib, exporter/fileexporter,
//! `buildProtobufMarshaler` and `exportMessageAsBuffer`).

use bytes::Bytes;

/// A truncated frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the frame at byte {offset} claims {claimed} bytes where {left} are left")]
pub struct CutOff {
    /// The frame's start offset.
    pub offset: usize,
    /// The length in the frame's header; 4 if even the header is truncated.
    pub claimed: usize,
    /// The remaining bytes.
    pub left: usize,
}

/// Iterates over the frames of a file. Ends after the first truncated one.
#[derive(Debug, Clone)]
pub struct Frames {
    rest: Bytes,
    offset: usize,
}

/// The frames of a file, without copying.
pub fn frames(file: Bytes) -> Frames {
    Frames { rest: file, offset: 0 }
}

impl Iterator for Frames {
    type Item = Result<Bytes, CutOff>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let offset = self.offset;
        let cut_off = |claimed: usize, left: usize| Some(Err(CutOff { offset, claimed, left }));
        let Some(&length) = self.rest.first_chunk::<4>() else {
            let left = std::mem::take(&mut self.rest).len();
            return cut_off(4, left);
        };
        let length = u32::from_be_bytes(length) as usize;
        let left = self.rest.len() - 4;
        if length > left {
            self.rest = Bytes::new();
            return cut_off(length, left);
        }
        let mut frame = self.rest.split_to(4 + length);
        self.offset += frame.len();
        Some(Ok(frame.split_off(4)))
    }
}

/// Appends a message to a file as a frame.
///
/// # Errors
///
/// The message is too long for a frame; nothing was appended.
pub fn put_frame(file: &mut Vec<u8>, message: &[u8]) -> Result<(), TooLong> {
    let length = u32::try_from(message.len()).map_err(|_| TooLong)?;
    file.reserve(4 + message.len());
    file.extend_from_slice(&length.to_be_bytes());
    file.extend_from_slice(message);
    Ok(())
}

/// A message is too long for a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a frame holds less than 4 GiB")]
pub struct TooLong;

#[cfg(test)]
mod tests {
    use super::*;

    fn all(file: &[u8]) -> Vec<Result<Bytes, CutOff>> {
        frames(Bytes::copy_from_slice(file)).collect()
    }

    /// Guarantees: messages survive the round trip through frames, including empty ones.
    #[test]
    fn round_trip() {
        let mut file = Vec::new();
        for message in [&b"one"[..], b"", b"three"] {
            put_frame(&mut file, message).unwrap();
        }
        assert_eq!(&file[..7], b"\0\0\0\x03one");
        let expected = [&b"one"[..], b"", b"three"].map(|message| Ok(Bytes::from_static(message)));
        assert_eq!(all(&file), expected);
        assert_eq!(all(b""), []);
    }

    /// Guarantees: a file that ends within a frame gives the frames before it and the position of the end.
    #[test]
    fn cut_off() {
        let mut file = Vec::new();
        put_frame(&mut file, b"whole").unwrap();
        file.extend_from_slice(&[0, 0, 0, 9, 1, 2]);
        let found = all(&file);
        assert_eq!(found[0], Ok(Bytes::from_static(b"whole")));
        assert_eq!(found[1..], [Err(CutOff { offset: 9, claimed: 9, left: 2 })]);
        assert_eq!(all(&[0, 0]), [Err(CutOff { offset: 0, claimed: 4, left: 2 })]);
        assert_eq!(all(&[0xff; 8]), [Err(CutOff { offset: 0, claimed: u32::MAX as usize, left: 4 })]);
    }
}

//! Parses bytes as an envelope, in one pass and without copying.

use bytes::Bytes;
use profbridge_model::{Envelope, Item};

use super::{Ending, Header, ItemHeader, MAX_HEADER, MAX_ITEMS, Parsed};

/// Why bytes are not a valid envelope, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// There are no bytes.
    #[error("the envelope is empty")]
    Empty,
    /// A header is not a JSON object on its own line, or one of its keys is invalid. The message quotes no values.
    #[error("{place} (byte {offset}): {rule}")]
    Header {
        /// Which header: `header`, or `items[3].header`.
        place: String,
        /// The header's start offset.
        offset: usize,
        /// The error.
        rule: String,
    },
    /// An item's `length` exceeds the remaining bytes.
    #[error("items[{item}].header.length: {length} bytes are announced, {left} are left")]
    TooShort {
        /// The item's position.
        item: usize,
        /// The item's `length`.
        length: u64,
        /// The remaining bytes.
        left: usize,
    },
    /// An item's payload continues after its `length`.
    #[error("items[{item}].header.length: the payload does not end after {length} bytes (byte {offset})")]
    TooLong {
        /// The item's position.
        item: usize,
        /// The item's `length`.
        length: u64,
        /// The offset at which a line break was expected.
        offset: usize,
    },
    /// There are more than [`MAX_ITEMS`] items.
    #[error("the envelope has more than {MAX_ITEMS} items")]
    TooManyItems,
}

/// Parses an envelope. Every part of the result is a slice of `bytes`.
///
/// # Errors
///
/// The envelope breaks one of Relay's rules; the error names the place.
pub fn read(bytes: Bytes) -> Result<Parsed, ReadError> {
    if bytes.is_empty() {
        return Err(ReadError::Empty);
    }
    let (end, mut at) = line(&bytes, 0);
    check(&bytes[..end], 0, || "header".to_owned(), |line| Header::read(line).map(drop))?;

    let mut envelope = Envelope { header: bytes.slice(..end), ..Envelope::default() };
    // Whether the bytes before `at` end with a line break.
    let mut newline = at > end;
    while at < bytes.len() {
        let item = envelope.items.len();
        if item == MAX_ITEMS {
            return Err(ReadError::TooManyItems);
        }
        let start = at;
        let (end, payload) = line(&bytes, start);
        let mut length = None;
        check(
            &bytes[start..end],
            start,
            || format!("items[{item}].header"),
            |line| {
                length = ItemHeader::read(line)?.length;
                Ok(())
            },
        )?;
        let (payload_end, next) = match length {
            None => line(&bytes, payload),
            Some(length) => measured(&bytes, payload, length, item)?,
        };
        envelope
            .items
            .push(Item { header: bytes.slice(start..end), payload: bytes.slice(payload..payload_end).into() });
        newline = next > payload_end;
        at = next;
    }
    Ok(Parsed { envelope, ending: if newline { Ending::Newline } else { Ending::Bare } })
}

/// The end of the line that begins at `start`, and the start of the next line.
fn line(bytes: &[u8], start: usize) -> (usize, usize) {
    match bytes[start..].iter().position(|&byte| byte == b'\n') {
        Some(len) => (start + len, start + len + 1),
        None => (bytes.len(), bytes.len()),
    }
}

/// The end of a payload with a given length, and the start of the next line.
fn measured(bytes: &[u8], start: usize, length: u64, item: usize) -> Result<(usize, usize), ReadError> {
    let left = bytes.len() - start;
    let end = match usize::try_from(length) {
        Ok(len) if len <= left => start + len,
        _ => return Err(ReadError::TooShort { item, length, left }),
    };
    match bytes.get(end) {
        None => Ok((end, end)),
        Some(b'\n') => Ok((end, end + 1)),
        Some(_) => Err(ReadError::TooLong { item, length, offset: end }),
    }
}

/// Checks a header's syntax, then its keys.
fn check<'a>(
    line: &'a [u8],
    offset: usize,
    place: impl Fn() -> String,
    keys: impl FnOnce(&'a [u8]) -> Result<(), serde_json::Error>,
) -> Result<(), ReadError> {
    let wrong = |rule: String| ReadError::Header { place: place(), offset, rule };
    if line.len() > MAX_HEADER {
        return Err(wrong(format!("is longer than {MAX_HEADER} bytes")));
    }
    match line {
        [] => return Err(wrong("the line is empty".to_owned())),
        [.., b'\r'] => return Err(wrong("the line ends in \\r\\n, a single \\n is required".to_owned())),
        // serde would accept a JSON list as a struct with its fields in order.
        [b'{', .., b'}'] => {}
        _ => return Err(wrong("is not one JSON object on a line of its own".to_owned())),
    }
    keys(line).map_err(|error| wrong(explain(&error)))
}

/// Removes quoted values from the parser's message, because a header may contain a DSN.
fn explain(error: &serde_json::Error) -> String {
    let text = error.to_string();
    if text.starts_with("duplicate field") || text.starts_with("missing field") {
        // The line number is always 1.
        return text.replace(" at line 1 column ", " at column ");
    }
    match error.classify() {
        serde_json::error::Category::Data => {
            format!("a key has a value of the wrong type at column {}", error.column())
        }
        _ => format!("is not valid JSON at column {}", error.column()),
    }
}

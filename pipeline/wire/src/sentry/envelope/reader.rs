//! Bytes to an envelope, in one pass and without copying any of them.

use bytes::Bytes;
use profbridge_model::{Envelope, Item};

use super::{Ending, Header, ItemHeader, MAX_HEADER, MAX_ITEMS, Parsed};

/// Why bytes are no envelope, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// There are no bytes.
    #[error("the envelope is empty")]
    Empty,
    /// A header is no JSON object on a line of its own, or a key in it is wrong. The message holds no values.
    #[error("{place} (byte {offset}): {rule}")]
    Header {
        /// Which header: `header`, or `items[3].header`.
        place: String,
        /// Where it starts.
        offset: usize,
        /// What is wrong with it.
        rule: String,
    },
    /// An item says that it is longer than what is left.
    #[error("items[{item}].header.length: {length} bytes are announced, {left} are left")]
    TooShort {
        /// The item's position.
        item: usize,
        /// What it says.
        length: u64,
        /// What is left.
        left: usize,
    },
    /// An item's payload goes on where its `length` says it ends.
    #[error("items[{item}].header.length: the payload does not end after {length} bytes (byte {offset})")]
    TooLong {
        /// The item's position.
        item: usize,
        /// What it says.
        length: u64,
        /// Where a line's end should stand.
        offset: usize,
    },
    /// There are more than [`MAX_ITEMS`] items.
    #[error("the envelope has more than {MAX_ITEMS} items")]
    TooManyItems,
}

/// Reads an envelope. Every part of the result is a slice of `bytes`.
///
/// # Errors
///
/// Whatever Relay refuses, by the place at which it stands.
pub fn read(bytes: Bytes) -> Result<Parsed, ReadError> {
    if bytes.is_empty() {
        return Err(ReadError::Empty);
    }
    let (end, mut at) = line(&bytes, 0);
    check(&bytes[..end], 0, || "header".to_owned(), |line| Header::read(line).map(drop))?;

    let mut envelope = Envelope { header: bytes.slice(..end), ..Envelope::default() };
    // Whether the bytes before `at` end in a line's end.
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

/// Where the line that starts at `start` ends, and where the next one starts.
fn line(bytes: &[u8], start: usize) -> (usize, usize) {
    match bytes[start..].iter().position(|&byte| byte == b'\n') {
        Some(len) => (start + len, start + len + 1),
        None => (bytes.len(), bytes.len()),
    }
}

/// Where a payload of an announced length ends, and where the next line starts.
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

/// Checks a header's form, then its keys.
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
        // A sequence of values would be taken for a struct with its fields in order.
        [b'{', .., b'}'] => {}
        _ => return Err(wrong("is not one JSON object on a line of its own".to_owned())),
    }
    keys(line).map_err(|error| wrong(explain(&error)))
}

/// The parser's message without the values that it quotes: a header may hold a DSN.
fn explain(error: &serde_json::Error) -> String {
    let text = error.to_string();
    if text.starts_with("duplicate field") || text.starts_with("missing field") {
        // The line is always the first.
        return text.replace(" at line 1 column ", " at column ");
    }
    match error.classify() {
        serde_json::error::Category::Data => {
            format!("a key has a value of the wrong type at column {}", error.column())
        }
        _ => format!("is not valid JSON at column {}", error.column()),
    }
}

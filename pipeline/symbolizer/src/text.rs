//! Shortens and validates text from files.

use std::borrow::Cow;

/// The maximum length of a name in bytes; longer names are truncated. C++ has names of some thousand bytes, but a file
/// may claim a gigabyte.
pub(crate) const MAX_NAME: usize = 4096;

/// Text from a file: at most [`MAX_NAME`] bytes, valid UTF-8, and without control characters.
pub(crate) fn clean(bytes: &[u8]) -> Cow<'_, str> {
    let text = match std::str::from_utf8(&bytes[..bytes.len().min(MAX_NAME)]) {
        Ok(text) => Cow::Borrowed(text),
        // A character that is cut in two at the end is dropped, not replaced.
        Err(error) if error.error_len().is_none() => String::from_utf8_lossy(&bytes[..error.valid_up_to()]),
        Err(_) => Cow::Owned(cut(String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_NAME)]).into_owned())),
    };
    if text.chars().any(char::is_control) {
        return Cow::Owned(cut(text.replace(char::is_control, "\u{fffd}")));
    }
    text
}

/// Truncates a text to [`MAX_NAME`] bytes.
pub(crate) fn cut(mut text: String) -> String {
    if text.len() > MAX_NAME {
        let end = (0..=MAX_NAME).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        text.truncate(end);
    }
    text
}

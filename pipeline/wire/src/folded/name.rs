//! What a frame is called in a line of collapsed stacks.

use std::borrow::Cow;

use profbridge_model::{Dictionary, Line, Location};
use xxhash_rust::xxh3::xxh3_64;

/// The longest name that is written, in bytes. C++ templates reach kilobytes; a reader sees the first hundred.
pub const MAX_NAME: usize = 1024;

/// What stands at the end of a name that was cut, in bytes: an ellipsis and 64 bits in hexadecimal.
const CUT_END: usize = '…'.len_utf8() + 16;

/// A name of at most [`MAX_NAME`] bytes. One that is cut ends with a hash of all of it: instances of one template often
/// differ in their last parameter only, and are not the same function.
pub fn shortened(name: &str) -> Cow<'_, str> {
    if name.len() <= MAX_NAME {
        return Cow::Borrowed(name);
    }
    let end = (0..=MAX_NAME - CUT_END).rev().find(|&end| name.is_char_boundary(end)).unwrap_or_default();
    Cow::Owned(format!("{}…{:016x}", &name[..end], xxh3_64(name.as_bytes())))
}

/// What a frame is called: its function, or, where it has none, the file it lies in, in brackets, and the page of it.
pub fn frame_name<'a>(dictionary: &'a Dictionary, location: &Location, line: Option<&Line>) -> Cow<'a, str> {
    let function = line.and_then(|line| line.function).map(|function| dictionary.function(function));
    let name = function.map(|function| match dictionary.string(function.name) {
        "" => dictionary.string(function.system_name),
        name => name,
    });
    match name.filter(|name| !name.is_empty()) {
        Some(name) => Cow::Borrowed(name),
        None => {
            let mapping = location.mapping.map(|mapping| dictionary.mapping(mapping));
            let file = mapping.map_or("", |mapping| dictionary.string(mapping.filename));
            // A frame of an interpreter has a line, and its address is none of a file.
            let page = mapping.filter(|_| line.is_none()).and_then(|mapping| mapping.page_of(location.address));
            Cow::Owned(unnamed(file, page))
        }
    }
}

/// Writes a frame's name.
pub(super) fn push_frame(text: &mut String, dictionary: &Dictionary, location: &Location, line: Option<&Line>) {
    push(text, &frame_name(dictionary, location, line));
}

/// What a frame without a function is called, as in a chunk for Sentry: the file it lies in, in brackets, and the page
/// of it where that is known.
fn unnamed(file: &str, page: Option<u64>) -> String {
    let name = match file.rsplit('/').next().unwrap_or_default() {
        "" => return "[unknown]".to_owned(),
        // The vDSO, and what the kernel calls `[kernel.kallsyms]`, have theirs already.
        name if name.starts_with('[') && name.ends_with(']') => name.to_owned(),
        name => format!("[{name}]"),
    };
    match page {
        Some(page) => format!("{name}+{page:#x}"),
        None => name,
    }
}

/// Appends one frame, with the `;` in front of it where it is not the first.
pub(super) fn push(text: &mut String, name: &str) {
    if !text.is_empty() {
        text.push(';');
    }
    let name = shortened(name.trim());
    if name.is_empty() {
        return text.push_str("[unknown]");
    }
    if !name.contains(|c: char| c == ';' || c.is_control()) {
        return text.push_str(&name);
    }
    text.extend(name.chars().map(|c| match c {
        ';' => ':',
        c if c.is_control() => ' ',
        c => c,
    }));
}

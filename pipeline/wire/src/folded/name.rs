//! The name of a frame in a line of collapsed stacks.

use std::borrow::Cow;

use profbridge_model::{Dictionary, Line, Location};
use xxhash_rust::xxh3::xxh3_64;

/// Maximum length of a name, in bytes. C++ templates have names of kilobytes, of which a reader sees the first hundred
/// bytes.
pub const MAX_NAME: usize = 1024;

/// Length of the suffix of a truncated name in bytes: an ellipsis and 64 bits in hexadecimal.
const CUT_END: usize = '…'.len_utf8() + 16;

/// A name of at most [`MAX_NAME`] bytes. A truncated name ends with a hash of the whole name: instances of one template
/// often differ only in their last parameter, but are different functions.
pub fn shortened(name: &str) -> Cow<'_, str> {
    if name.len() <= MAX_NAME {
        return Cow::Borrowed(name);
    }
    let end = (0..=MAX_NAME - CUT_END).rev().find(|&end| name.is_char_boundary(end)).unwrap_or_default();
    Cow::Owned(format!("{}…{:016x}", &name[..end], xxh3_64(name.as_bytes())))
}

/// The name of a frame: its function or, without one, the binary in brackets, with the page.
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
            // A frame of an interpreter has a line, and its address is not an address in a file.
            let page = mapping.filter(|_| line.is_none()).and_then(|mapping| mapping.page_of(location.address));
            Cow::Owned(unnamed(file, page))
        }
    }
}

/// Writes a frame's name.
pub(super) fn push_frame(text: &mut String, dictionary: &Dictionary, location: &Location, line: Option<&Line>) {
    push(text, &frame_name(dictionary, location, line));
}

/// The name of a frame without a function, as in a Sentry chunk: the binary in brackets, with the page if it is known.
fn unnamed(file: &str, page: Option<u64>) -> String {
    let name = match file.rsplit('/').next().unwrap_or_default() {
        "" => return "[unknown]".to_owned(),
        // The vDSO and the kernel's `[kernel.kallsyms]` already have brackets.
        name if name.starts_with('[') && name.ends_with(']') => name.to_owned(),
        name => format!("[{name}]"),
    };
    match page {
        Some(page) => format!("{name}+{page:#x}"),
        None => name,
    }
}

/// Appends a frame, with a leading `;` if it is not the first.
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

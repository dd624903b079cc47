//! What a frame is called in a line of collapsed stacks.

use profbridge_model::{Dictionary, Line, Location};

/// The longest name that is written, in bytes. C++ templates reach kilobytes; a reader sees the first hundred.
const MAX_NAME: usize = 1024;

/// Writes a frame's name: the function's, or what [`unnamed`] makes of the file it lies in.
pub(super) fn push_frame(text: &mut String, dictionary: &Dictionary, location: &Location, line: Option<&Line>) {
    let function = line.and_then(|line| line.function).map(|function| dictionary.function(function));
    let name = function.map(|function| match dictionary.string(function.name) {
        "" => dictionary.string(function.system_name),
        name => name,
    });
    match name.filter(|name| !name.is_empty()) {
        Some(name) => push(text, name),
        None => {
            let mapping = location.mapping.map(|mapping| dictionary.mapping(mapping));
            let file = mapping.map_or("", |mapping| dictionary.string(mapping.filename));
            // A frame of an interpreter has a line, and its address is none of a file.
            let page = mapping.filter(|_| line.is_none()).and_then(|mapping| mapping.page_of(location.address));
            push(text, &unnamed(file, page));
        }
    }
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
    let end = (0..=MAX_NAME.min(name.len())).rev().find(|&end| name.is_char_boundary(end)).unwrap_or_default();
    let name = name[..end].trim();
    if name.is_empty() {
        return text.push_str("[unknown]");
    }
    if !name.contains(|c: char| c == ';' || c.is_control()) {
        return text.push_str(name);
    }
    text.extend(name.chars().map(|c| match c {
        ';' => ':',
        c if c.is_control() => ' ',
        c => c,
    }));
}

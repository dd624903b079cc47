//! Paths and URLs of source files, as UTF-8 bytes.

use std::borrow::Cow;

/// The last part of a path.
pub(super) fn basename(path: &[u8]) -> &[u8] {
    let start = path.iter().rposition(|&byte| byte == b'/' || byte == b'\\').map_or(0, |slash| slash + 1);
    &path[start..]
}

pub(super) fn is_absolute(path: &[u8]) -> bool {
    path.starts_with(b"/") || path.get(1..3) == Some(b":\\")
}

/// The path of a `file:` URL (RFC 8089), V8's form of module names: `file:///a/m%20b.mjs` is `/a/m b.mjs`. Any other
/// text is returned unmodified.
pub(super) fn of_url(text: &[u8]) -> Cow<'_, [u8]> {
    let Some(rest) = text.strip_prefix(b"file://") else { return text.into() };
    // A host may precede the path.
    match rest.iter().position(|&byte| byte == b'/') {
        Some(slash) => percent_decoded(&rest[slash..]),
        None => text.into(),
    }
}

/// Replaces percent-encodings such as `%2e` by their bytes (RFC 3986, 2.1). If the result is not UTF-8, the text is
/// returned unmodified.
pub(super) fn percent_decoded(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.contains(&b'%') {
        return text.into();
    }
    let digit = |byte: Option<&u8>| byte.and_then(|&byte| (byte as char).to_digit(16));
    let mut decoded = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        match (byte, digit(text.get(at + 1)), digit(text.get(at + 2))) {
            (b'%', Some(high), Some(low)) => {
                decoded.push((high << 4 | low) as u8);
                at += 3;
            }
            _ => {
                decoded.push(byte);
                at += 1;
            }
        }
    }
    if std::str::from_utf8(&decoded).is_ok() { decoded.into() } else { text.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: a `file:` URL becomes its path; other texts, and URLs whose path is not UTF-8, stay unmodified.
    #[test]
    fn urls() {
        for (url, path) in [
            ("file:///a/b.mjs", "/a/b.mjs"),
            ("file:///a/m%20o.mjs", "/a/m o.mjs"),
            ("file:///a/%C3%A9.mjs", "/a/\u{e9}.mjs"),
            ("file://localhost/a/b.mjs", "/a/b.mjs"),
            ("file:///a/%ff.mjs", "/a/%ff.mjs"),
            ("file:///a/%2.mjs%", "/a/%2.mjs%"),
            ("file://", "file://"),
            ("/a/%20.mjs", "/a/%20.mjs"),
            ("node:fs", "node:fs"),
        ] {
            assert_eq!(of_url(url.as_bytes()), path.as_bytes(), "{url}");
        }
    }
}

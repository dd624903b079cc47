//! Paths and URLs of source files, as bytes of UTF-8.

use std::borrow::Cow;

/// The last part of a path.
pub(super) fn basename(path: &[u8]) -> &[u8] {
    let start = path.iter().rposition(|&byte| byte == b'/' || byte == b'\\').map_or(0, |slash| slash + 1);
    &path[start..]
}

/// Whether a path says where on a machine a file lies.
pub(super) fn is_absolute(path: &[u8]) -> bool {
    path.starts_with(b"/") || path.get(1..3) == Some(b":\\")
}

/// The path of a `file:` URL (RFC 8089), which is how V8 names modules: `file:///a/m%20b.mjs` is `/a/m b.mjs`. Anything
/// else is what it is.
pub(super) fn of_url(text: &[u8]) -> Cow<'_, [u8]> {
    let Some(rest) = text.strip_prefix(b"file://") else { return text.into() };
    // A host may stand in front of the path.
    match rest.iter().position(|&byte| byte == b'/') {
        Some(slash) => percent_decoded(&rest[slash..]),
        None => text.into(),
    }
}

/// Text with `%2e` and the like replaced by the bytes they stand for (RFC 3986, 2.1). Where that would not be text, it
/// stays as it is.
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

    /// Guarantees: a `file:` URL becomes the path that it stands for, and what is no URL or would be no text stays.
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

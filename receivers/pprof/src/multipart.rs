//! Parses multipart forms (RFC 7578, RFC 2046 section 5.1), in which Pyroscope's clients send profiles.

use bytes::Bytes;

use crate::fault::Fault;

/// The maximum number of parts. Pyroscope's clients send three.
const MOST_PARTS: usize = 16;

/// The maximum length of a boundary (RFC 2046, section 5.1.1).
const LONGEST_BOUNDARY: usize = 70;

/// The boundary in a `Content-Type`; `None` if the body is no form.
pub(crate) fn boundary(content_type: &str) -> Option<Result<String, Fault>> {
    let mut parameters = content_type.split(';').map(str::trim);
    if !parameters.next()?.eq_ignore_ascii_case("multipart/form-data") {
        return None;
    }
    let named = parameters.find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim().eq_ignore_ascii_case("boundary").then(|| value.trim().trim_matches('"').to_owned())
    });
    Some(match named {
        Some(boundary) if (1..=LONGEST_BOUNDARY).contains(&boundary.len()) => Ok(boundary),
        _ => Err(Fault::malformed("content-type: a form needs a boundary of at most 70 characters")),
    })
}

/// The contents of the parts with these names, in the order of the names. If several parts have the same name, the
/// first one is used.
pub(crate) fn parts<const N: usize>(
    body: &Bytes,
    boundary: &str,
    names: [&str; N],
) -> Result<[Option<Bytes>; N], Fault> {
    let mut found = [const { None }; N];
    let delimiter = format!("--{boundary}");
    let between = format!("\r\n{delimiter}");
    let broken = || Fault::malformed("the form is cut off, or its boundary is not that of the content-type");
    // Text before the first boundary is ignored.
    let mut at = match body.starts_with(delimiter.as_bytes()) {
        true => delimiter.len(),
        false => position(body, between.as_bytes()).ok_or_else(broken)? + between.len(),
    };
    for _ in 0..MOST_PARTS {
        let rest = body.slice(at..);
        if rest.starts_with(b"--") {
            return Ok(found);
        }
        // Spaces may follow the boundary.
        let line = position(&rest, b"\r\n").ok_or_else(broken)?;
        let part = rest.slice(line..);
        let head = position(&part, b"\r\n\r\n").ok_or_else(broken)?;
        let content = part.slice(head + 4..);
        let end = position(&content, between.as_bytes()).ok_or_else(broken)?;
        let name = name(&part[..head]);
        if let Some(metadata) = name.and_then(|name| names.iter().position(|metadata| *metadata == name)) {
            found[metadata].get_or_insert_with(|| content.slice(..end));
        }
        at += line + head + 4 + end + between.len();
    }
    Err(Fault::malformed(format!("the form has more than {MOST_PARTS} parts")))
}

/// The name of a part, from its header lines.
fn name(head: &[u8]) -> Option<&str> {
    let head = std::str::from_utf8(head).ok()?;
    let disposition = head.split("\r\n").find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.trim().eq_ignore_ascii_case("content-disposition").then_some(value)
    })?;
    let parameters = disposition.split(';').filter_map(|parameter| parameter.split_once('='));
    let name = parameters.into_iter().find(|(name, _)| name.trim().eq_ignore_ascii_case("name"));
    name.map(|(_, value)| value.trim().trim_matches('"'))
}

fn position(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FORM: &[u8] =
        b"--xyz\r\nContent-Disposition: form-data; name=\"profile\"; filename=\"name=prev_profile\"\r\n\
        Content-Type: application/octet-stream\r\n\r\nPRO\r\nFILE\r\n--xyz \r\n\
        content-disposition: form-data; filename=a; name=sample_type_config\r\n\r\n{}\r\n--xyz--\r\n";

    fn read(body: &[u8]) -> Result<[Option<Bytes>; 2], Fault> {
        parts(&Bytes::copy_from_slice(body), "xyz", ["profile", "prev_profile"])
    }

    /// Guarantees: a part is found by its name, and its content is returned byte for byte.
    #[test]
    fn by_name() {
        assert_eq!(read(FORM).unwrap(), [Some(Bytes::from_static(b"PRO\r\nFILE")), None]);
        let behind = [b"preamble\r\n", FORM].concat();
        assert_eq!(read(&behind).unwrap()[0].as_deref(), Some(&b"PRO\r\nFILE"[..]));
        assert_eq!(read(b"--xyz--").unwrap(), [None, None]);
    }

    /// Guarantees: a boundary is read with or without quotes; other content types have none.
    #[test]
    fn boundaries() {
        let named = |text: &str| boundary(text).map(|boundary| boundary.map_err(|fault| fault.reason));
        assert_eq!(named("multipart/form-data; boundary=xyz"), Some(Ok("xyz".to_owned())));
        assert_eq!(named("Multipart/Form-Data;charset=x; Boundary=\"x y\""), Some(Ok("x y".to_owned())));
        assert_eq!(named("multipart/form-data"), Some(Err("malformed")));
        assert_eq!(named(&format!("multipart/form-data; boundary={}", "x".repeat(71))), Some(Err("malformed")));
        assert_eq!(named("application/octet-stream"), None);
    }

    proptest! {
        /// Guarantees: no input causes a panic, and a form that ends before its last boundary is refused.
        #[test]
        fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..100), cut in 0..FORM.len() - 4) {
            drop(read(&bytes));
            drop(read(&[FORM, &bytes].concat()));
            prop_assert!(read(&FORM[..cut]).is_err());
        }
    }

    /// Amplification: each part is searched for in the rest of the body. Ceiling: 16 parts. Outcome: refused.
    #[test]
    fn many_parts() {
        let part = b"\r\n\r\n\r\n\r\n--xyz".repeat(100);
        assert!(read(&[b"--xyz", &part[..], b"--"].concat()).unwrap_err().message.contains("more than 16 parts"));
    }
}

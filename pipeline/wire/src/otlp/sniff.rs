//! Tells the forms of a file apart by its content.

use super::reader::{LEN, Reader};

/// What a file seems to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// One `ProfilesData` or `ExportProfilesServiceRequest` as protobuf.
    Protobuf,
    /// [Frames](super::delimited) of those.
    Frames,
    /// JSON, or a Sentry envelope, which starts with a line of it.
    Json,
    /// Compressed with gzip; what is inside has to be looked at again.
    Gzip,
    /// Compressed with zstd; what is inside has to be looked at again.
    Zstd,
    /// None of these.
    Unknown,
}

/// Says what a file seems to be. An empty file is a request without content.
///
/// Protobuf has no magic number, but few bytes pass for a sequence of fields up to the last one. The start of a frame
/// does not: its first byte is 0 for all requests up to 16 MiB, and there is no field 0. JSON may start with a line
/// break, which is also the key of `resource_profiles`, and is then told apart by the whole.
pub fn sniff(file: &[u8]) -> Kind {
    match file {
        [] => return Kind::Protobuf,
        [0x1f, 0x8b, ..] => return Kind::Gzip,
        [0x28, 0xb5, 0x2f, 0xfd, ..] => return Kind::Zstd,
        _ => {}
    }
    if is_request(file) {
        return Kind::Protobuf;
    }
    if let Some((length, rest)) = file.split_first_chunk::<4>() {
        let length = u32::from_be_bytes(*length) as usize;
        let first = rest.get(..length.min(rest.len())).unwrap_or_default();
        // The last frame may be cut off: a file that is still being written is a file of frames.
        let cut_off = first.len() < length && starts_request(first) && !starts_request(file);
        if cut_off || first.len() == length && is_request(first) {
            return Kind::Frames;
        }
    }
    match file.iter().find(|byte| !byte.is_ascii_whitespace()) {
        Some(b'{' | b'[') => Kind::Json,
        _ if starts_request(file) => Kind::Protobuf,
        _ => Kind::Unknown,
    }
}

/// Whether bytes are fields from the first to the last, and the known ones have their wire type.
fn is_request(bytes: &[u8]) -> bool {
    let mut reader = Reader::new(bytes);
    loop {
        match reader.key() {
            Ok(None) => return true,
            Ok(Some(key)) if (key >> 3 > 2 || key & 7 == LEN) && reader.skip(key).is_ok() => {}
            _ => return false,
        }
    }
}

/// Whether bytes start with one of the two fields of a request.
fn starts_request(bytes: &[u8]) -> bool {
    matches!(bytes.first(), Some(0x0a | 0x12))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::otlp::delimited::put_frame;

    fn request() -> Vec<u8> {
        // Two empty resources and a dictionary with an empty string.
        vec![0x0a, 0x00, 0x0a, 0x00, 0x12, 0x02, 0x2a, 0x00]
    }

    /// Guarantees: each form is recognised, also where it is empty, short, or cut off.
    #[test]
    fn forms() {
        let mut framed = Vec::new();
        put_frame(&mut framed, &request()).unwrap();
        put_frame(&mut framed, &request()).unwrap();
        assert_eq!(sniff(&request()), Kind::Protobuf);
        assert_eq!(sniff(&request()[..7]), Kind::Protobuf);
        assert_eq!(sniff(&[]), Kind::Protobuf);
        assert_eq!(sniff(&framed), Kind::Frames);
        assert_eq!(sniff(&framed[..9]), Kind::Frames);
        assert_eq!(sniff(&[0, 0, 0, 0]), Kind::Frames);
        assert_eq!(sniff(b"{\"resourceProfiles\":[]}"), Kind::Json);
        assert_eq!(sniff(b"\n {\n}"), Kind::Json);
        assert_eq!(sniff(b"{}\n{\"type\":\"profile_chunk\"}\n{}"), Kind::Json);
        assert_eq!(sniff(b"[1]"), Kind::Json);
        assert_eq!(sniff(&[0x1f, 0x8b, 8]), Kind::Gzip);
        assert_eq!(sniff(&[0x28, 0xb5, 0x2f, 0xfd, 0]), Kind::Zstd);
        assert_eq!(sniff(b"name,value"), Kind::Unknown);
        assert_eq!(sniff(&[0; 3]), Kind::Unknown);
    }

    proptest::proptest! {
        /// Guarantees: no bytes make it panic.
        #[test]
        fn any_bytes(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..40)) {
            sniff(&bytes);
        }
    }
}

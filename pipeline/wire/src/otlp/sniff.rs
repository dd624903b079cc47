//! Detects the format of a file by its content.

use super::reader::{LEN, ProtobufReader, VARINT};

/// The likely format of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentKind {
    /// One `ProfilesData` or `ExportProfilesServiceRequest` as protobuf.
    Protobuf,
    /// [Frames](super::delimited) with such messages.
    Frames,
    /// JSON, or a Sentry envelope, which starts with a line of JSON.
    Json,
    /// Compressed with gzip; the content has to be checked again.
    Gzip,
    /// Compressed with zstd; the content has to be checked again.
    Zstd,
    /// None of these formats.
    Unknown,
}

/// Detects the likely format of a file. An empty file is an empty request.
///
/// Protobuf has no magic number, but few files parse as a sequence of fields up to the last byte. The start of a frame
/// does not: its first byte is 0 for all requests up to 16 MiB, and there is no field 0. JSON may start with a line
/// break, which is also the key of `resource_profiles`; then the whole file decides.
pub fn sniff(file: &[u8]) -> ContentKind {
    match file {
        [] => return ContentKind::Protobuf,
        [0x1f, 0x8b, ..] => return ContentKind::Gzip,
        [0x28, 0xb5, 0x2f, 0xfd, ..] => return ContentKind::Zstd,
        _ => {}
    }
    if is_request(file) {
        return ContentKind::Protobuf;
    }
    if let Some((length, rest)) = file.split_first_chunk::<4>() {
        let length = u32::from_be_bytes(*length) as usize;
        let first = rest.get(..length.min(rest.len())).unwrap_or_default();
        // The last frame may be truncated, because the file may still be written.
        let cut_off = first.len() < length && starts_request(first) && !starts_request(file);
        if cut_off || first.len() == length && (is_request(first) || is_packed(first)) {
            return ContentKind::Frames;
        }
    }
    match file.iter().find(|byte| !byte.is_ascii_whitespace()) {
        Some(b'{' | b'[') => ContentKind::Json,
        _ if starts_request(file) => ContentKind::Protobuf,
        _ => ContentKind::Unknown,
    }
}

/// Whether bytes are an uncompressed pprof profile (google/pprof `proto/profile.proto`), valid or not. pprof uses the
/// field numbers of a request with other meanings: its field 1 holds value types, which begin with an integer, while a
/// request's holds resources, which begin with a message; and a request has no integers next to its resources. Value
/// types without type and unit are empty, as resources may be. Then samples plus a string table decide for pprof,
/// because a request with only empty resources has nothing to lose.
pub fn is_pprof(bytes: &[u8]) -> bool {
    let mut reader = ProtobufReader::new(bytes);
    let (mut messages, mut integers, mut samples, mut strings) = (false, false, false, false);
    while let Ok(Some(key)) = reader.key() {
        match (key >> 3, key & 7) {
            (1, LEN) => match reader.message().map(|message| message.rest().first().copied()) {
                Ok(Some(0x08 | 0x10)) => return true,
                Ok(Some(_)) => return false,
                Ok(None) => messages = true,
                Err(_) => break,
            },
            (number @ (2..=6 | 11 | 13), LEN) => {
                messages = true;
                samples |= number == 2;
                match reader.message() {
                    Ok(text) => strings |= number == 6 && text.rest().is_empty(),
                    Err(_) => break,
                }
            }
            (7..=10 | 12..=15, VARINT) if reader.skip(key).is_ok() => integers = true,
            (number, _) if number > 15 && reader.skip(key).is_ok() => {}
            _ => return false,
        }
    }
    // Text may begin with bytes that parse as an integer.
    messages && integers || samples && strings
}

/// Whether bytes are two concatenated requests, as `cat` joins files: each has a dictionary. Protobuf merges both into
/// one, where the indices of the second request point to elements of the first. A sender may also split one dictionary
/// into several parts, but no sender is known to do that, and the bytes do not show the difference.
pub fn has_second_dictionary(bytes: &[u8]) -> bool {
    let mut reader = ProtobufReader::new(bytes);
    let mut dictionaries = 0;
    while let Ok(Some(key)) = reader.key() {
        dictionaries += usize::from(key >> 3 == 2 && key & 7 == LEN);
        if dictionaries > 1 {
            return true;
        }
        if reader.skip(key).is_err() {
            break;
        }
    }
    false
}

/// Whether all bytes parse as fields, and known fields have their wire type.
fn is_request(bytes: &[u8]) -> bool {
    let mut reader = ProtobufReader::new(bytes);
    loop {
        match reader.key() {
            Ok(None) => return true,
            Ok(Some(key)) if (key >> 3 > 2 || key & 7 == LEN) && reader.skip(key).is_ok() => {}
            _ => return false,
        }
    }
}

/// Whether bytes are compressed, or JSON; both occur in frames.
fn is_packed(bytes: &[u8]) -> bool {
    matches!(bytes, [0x1f, 0x8b, ..] | [0x28, 0xb5, 0x2f, 0xfd, ..] | [b'{', ..])
}

/// Whether bytes start with a field of a request.
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

    /// Guarantees: two concatenated requests are distinguished from one, whatever fields surround their dictionaries,
    /// also if the second is truncated.
    #[test]
    fn joined() {
        let (one, bare) = (request(), &request()[..4]);
        let two = [&one[..], &one].concat();
        for whole in [&one[..], bare, &[], &[bare, &one].concat(), &[&one[..], bare].concat()] {
            assert!(!has_second_dictionary(whole), "{whole:?}");
        }
        assert!(has_second_dictionary(&two) && has_second_dictionary(&[&two[..], bare].concat()));
        assert!(has_second_dictionary(&two[..two.len() - 1]), "it is one as soon as it begins");
    }

    /// Guarantees: each format is recognised, also if it is empty, short, or truncated.
    /// rule: otep-0239#same-layout
    #[test]
    fn forms() {
        let mut framed = Vec::new();
        put_frame(&mut framed, &request()).unwrap();
        put_frame(&mut framed, &request()).unwrap();
        assert_eq!(sniff(&request()), ContentKind::Protobuf);
        assert_eq!(sniff(&request()[..7]), ContentKind::Protobuf);
        assert_eq!(sniff(&[]), ContentKind::Protobuf);
        assert_eq!(sniff(&framed), ContentKind::Frames);
        assert_eq!(sniff(&framed[..9]), ContentKind::Frames);
        assert_eq!(sniff(&[0, 0, 0, 0]), ContentKind::Frames);
        for message in [&[0x1f, 0x8b, 8][..], &[0x28, 0xb5, 0x2f, 0xfd, 0], b"{}"] {
            let mut framed = Vec::new();
            put_frame(&mut framed, message).unwrap();
            assert_eq!(sniff(&framed), ContentKind::Frames);
        }
        assert_eq!(sniff(b"{\"resourceProfiles\":[]}"), ContentKind::Json);
        assert_eq!(sniff(b"\n {\n}"), ContentKind::Json);
        assert_eq!(sniff(b"{}\n{\"type\":\"profile_chunk\"}\n{}"), ContentKind::Json);
        assert_eq!(sniff(b"[1]"), ContentKind::Json);
        assert_eq!(sniff(&[0x1f, 0x8b, 8]), ContentKind::Gzip);
        assert_eq!(sniff(&[0x28, 0xb5, 0x2f, 0xfd, 0]), ContentKind::Zstd);
        assert_eq!(sniff(b"name,value"), ContentKind::Unknown);
        assert_eq!(sniff(&[0; 3]), ContentKind::Unknown);
    }

    /// Guarantees: a pprof profile is recognised, also if its type has no name or it is truncated; a request is never
    /// taken for one, empty or not, in any layout.
    #[test]
    fn pprof() {
        // sample_type {type: 1, unit: 2}, a sample with packed ids and values, a location with its id, and three
        // strings.
        let profile = b"\x0a\x04\x08\x01\x10\x02\x12\x06\x0a\x01\x01\x12\x01\x05\x22\x02\x08\x01\x32\x00\x32\x03cpu\x32\x0bnanoseconds\x48\x07\x60\x08";
        let nameless = [b"\x0a\x00", &profile[6..]].concat();
        for pprof in [
            &profile[..],
            &profile[..18],
            &profile[..30],
            &[b"\x0a\x00", &profile[..]].concat(),
            &nameless,
            &nameless[..nameless.len() - 4],
            &profile[6..],
            &[&profile[6..], b"\x0a\x04\x08\x63"].concat(),
            b"\x0a\x00\x48\x07",
        ] {
            assert!(is_pprof(pprof), "{pprof:x?}");
        }
        for other in [
            &b""[..],
            &request(),
            b"\x0a\x00\x32\x00",
            b"\x0a\x02\x0a\x00\x32\x00",
            b"\x0a\x02\x0a\x00\x12\x02\x0a\x00\x32\x00\x48\x07",
            b"{}",
            b"Hello",
        ] {
            assert!(!is_pprof(other), "{other:x?}");
        }
    }

    proptest::proptest! {
        /// Guarantees: no bytes cause a panic.
        #[test]
        fn any_bytes(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..40)) {
            sniff(&bytes);
            is_pprof(&bytes);
        }
    }
}

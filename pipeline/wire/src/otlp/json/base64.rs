//! Base64 in JSON, in the variants that senders use.

use base64::alphabet;
use base64::engine::{DecodePaddingMode, Engine as _, GeneralPurpose, GeneralPurposeConfig, general_purpose};

/// Padding is optional, and surplus bits of the last character are ignored, as in Go and Python.
const LENIENT: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_padding_mode(DecodePaddingMode::Indifferent)
    .with_decode_allow_trailing_bits(true);

const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);
const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT);

/// Maximum number of bytes that this many characters decode to.
pub(super) fn most_bytes(characters: usize) -> usize {
    characters.div_ceil(4) * 3
}

/// Decodes base64 in the standard or the URL alphabet into `out`, which must have room for [`most_bytes`]. Returns the
/// number of bytes, or the error.
pub(super) fn read(text: &str, out: &mut [u8]) -> Result<usize, String> {
    let engine = if text.contains(['-', '_']) { &URL_SAFE } else { &STANDARD };
    engine.decode_slice(text, out).map_err(|error| format!("is not base64: {error}"))
}

/// Whether the id of a trace or a span is base64, as in protobuf's own JSON, instead of hexadecimal digits. The lengths
/// of both encodings differ. Base64 may lack its padding; a text that could be hexadecimal counts as hexadecimal.
pub(super) fn is_id(text: &[u8]) -> bool {
    match text.len() {
        11 | 22 => !text.iter().all(u8::is_ascii_hexdigit),
        12 => text.ends_with(b"=") && !text.ends_with(b"=="),
        24 => text.ends_with(b"=="),
        _ => false,
    }
}

/// Appends base64 in the standard alphabet, padded.
pub(super) fn write(out: &mut Vec<u8>, bytes: &[u8]) {
    let start = out.len();
    out.resize(start + bytes.len().div_ceil(3) * 4, 0);
    // The reserved space is exactly the size of padded base64.
    let written = general_purpose::STANDARD.encode_slice(bytes, &mut out[start..]).unwrap_or_default();
    debug_assert_eq!(start + written, out.len());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Guarantees: bytes survive the round trip, in either alphabet, with and without padding.
        /// rule: otlp#json-mapping
        #[test]
        fn round_trip(bytes: Vec<u8>) {
            let mut written = Vec::new();
            write(&mut written, &bytes);
            let standard = String::from_utf8(written).unwrap();
            let bare = standard.trim_end_matches('=');
            let url = standard.replace('+', "-").replace('/', "_");
            for text in [&standard, bare, &url, url.trim_end_matches('=')] {
                let mut out = vec![0; most_bytes(text.len())];
                let len = read(text, &mut out);
                prop_assert_eq!(len, Ok(bytes.len()));
                prop_assert_eq!(&out[..bytes.len()], &bytes[..]);
            }
        }
    }
}

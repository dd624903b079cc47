//! The hash by which OpenTelemetry's profilers identify a file.
//!
//! Source: opentelemetry-specification `specification/profiles/mappings.md`: the first 16 bytes of the SHA-256 of the
//! file's first 4096 bytes, its last 4096 bytes and its length as eight bytes, big-endian. A shorter file is hashed
//! completely, twice.

use hmac_sha256::Hash;

use super::Malformed;
use super::source::{ByteSource, read_range};

const PART: u64 = 4096;

/// Computes the hash of a file.
///
/// # Errors
///
/// When it cannot be read, or was truncated meanwhile.
pub fn htlhash<S: ByteSource + ?Sized>(source: &S) -> Result<[u8; 16], Malformed> {
    let length = source.len();
    let part = length.min(PART);
    let mut hash = Hash::new();
    hash.update(read_range(source, "first bytes", 0, part, PART)?);
    hash.update(read_range(source, "last bytes", length - part, part, PART)?);
    hash.update(length.to_be_bytes());
    let digest = hash.finalize();
    let mut short = [0; 16];
    short.copy_from_slice(&digest[..16]);
    Ok(short)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: the hash equals `sha256sum` of first part, last part and length, for files longer and shorter than
    /// a part.
    #[test]
    fn known_answers() {
        // { head -c 4096 f; tail -c 4096 f; printf '\0\0\0\0\0\0\047\020'; } | sha256sum, f being 10000 times "a"
        let hex = |bytes: [u8; 16]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(hex(htlhash(&[b'a'; 10_000][..]).unwrap()), "0fc53d460b08a7527d0f13557240c360");
        // { printf abc; printf abc; printf '\0\0\0\0\0\0\0\003'; } | sha256sum
        assert_eq!(hex(htlhash(&b"abc"[..]).unwrap()), "a7e79e8a85da69bad5c3fea209342ac9");
    }
}

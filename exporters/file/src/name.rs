//! Names of envelope files, and how to distinguish them from foreign files.

use profbridge_net::compression::Compression;

use crate::calendar;

/// `TIME-PROFILER-CHUNK.envelope`, or `TIME-TRACE-EVENT.envelope` for a transaction, with the first eight digits of
/// both ids, and an extension for the compression.
pub(crate) fn envelope(unix_nano: u64, profiler: &str, chunk: &str, compression: Compression) -> String {
    let time = calendar::compact(unix_nano);
    let ending = match compression {
        Compression::None => "",
        Compression::Gzip { .. } => ".gz",
        Compression::Zstd { .. } => ".zst",
    };
    format!("{time}-{profiler:.8}-{chunk:.8}.envelope{ending}")
}

/// Whether [`envelope`] could have created this name.
pub(crate) fn is_envelope(name: &str) -> bool {
    let name = name.strip_suffix(".gz").or_else(|| name.strip_suffix(".zst")).unwrap_or(name);
    let Some(stem) = name.strip_suffix(".envelope") else { return false };
    let mut parts = stem.split('-');
    let hex = |part: &str| part.len() == 8 && part.bytes().all(|c| c.is_ascii_digit() || (b'a'..=b'f').contains(&c));
    parts.next().is_some_and(calendar::is_compact)
        && parts.next().is_some_and(hex)
        && parts.next().is_some_and(hex)
        && parts.next().is_none()
}

/// The temporary name of an envelope. It is hidden and has another extension, so that patterns for envelopes do not
/// match it.
pub(crate) fn temporary(name: &str) -> String {
    format!(".{name}.tmp")
}

/// Whether [`temporary`] could have created this name.
pub(crate) fn is_temporary(name: &str) -> bool {
    name.strip_prefix('.').and_then(|name| name.strip_suffix(".tmp")).is_some_and(is_envelope)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: the exporter recognizes the names that it creates, and no others.
    #[test]
    fn names() {
        for (compression, ending) in
            [(Compression::None, "envelope"), (Compression::GZIP, "envelope.gz"), (Compression::ZSTD, "envelope.zst")]
        {
            let name = envelope(951_782_400_000_000_000, "0123456789abcdef", "fedcba9876543210", compression);
            assert_eq!(name, format!("20000229T000000.000Z-01234567-fedcba98.{ending}"));
            assert!(is_envelope(&name) && is_temporary(&temporary(&name)));
            assert!(!is_envelope(&temporary(&name)) && !is_temporary(&name));
        }
        for other in [
            "",
            "notes.envelope",
            "20000229T000000.000Z.envelope",
            "20000229T000000.000Z-01234567-fedcba98.txt",
            "20000229T000000.000Z-01234567-FEDCBA98.envelope",
            "20000229T000000.000Z-01234567-fedcba98-1.envelope",
            "x20000229T000000.000Z-01234567-fedcba98.envelope",
        ] {
            assert!(!is_envelope(other), "{other}");
        }
    }
}

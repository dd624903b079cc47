//! Timestamps in file names.

use profbridge_wire::sentry::timestamp::Timestamp;

/// Formats nanoseconds since the Unix epoch as `20260131T235959.123Z`, in UTC. The result sorts by time and is valid in
/// file names on every file system.
pub(crate) fn compact(unix_nano: u64) -> String {
    Timestamp(unix_nano).rfc3339(3).replace(['-', ':'], "")
}

/// Whether a text has the format that [`compact`] writes.
pub(crate) fn is_compact(text: &str) -> bool {
    let form = b"ddddddddTdddddd.dddZ";
    text.len() == 20
        && text.bytes().zip(form).all(|(c, &form)| if form == b'd' { c.is_ascii_digit() } else { c == form })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: times are formatted according to the calendar, including leap days and the last representable time.
    #[test]
    fn times() {
        for (seconds, expected) in [
            (0, "19700101T000000.000Z"),
            (951_782_400, "20000229T000000.000Z"),
            (951_868_799, "20000229T235959.000Z"),
            (951_868_800, "20000301T000000.000Z"),
            (1_767_225_599, "20251231T235959.000Z"),
            (4_107_542_400, "21000301T000000.000Z"),
        ] {
            assert_eq!(compact(seconds * 1_000_000_000), expected);
            assert!(is_compact(expected));
        }
        assert_eq!(compact(1_234_567_890_123_456_789), "20090213T233130.123Z");
        assert_eq!(compact(u64::MAX), "25540721T233433.709Z");
        assert!(!is_compact("20000229T23595a.000Z") && !is_compact("") && !is_compact("20000229x235959.000Z"));
    }
}

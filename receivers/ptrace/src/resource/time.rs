//! Moments as text.

use profbridge_engine::calendar::Utc;

/// A moment in nanoseconds since the Unix epoch, in the form of RFC 3339 with nanoseconds, UTC: ISO 8601, as
/// `process.creation.time` wants it (opentelemetry semantic conventions, registry).
pub(super) fn rfc3339(unix_nano: u64) -> String {
    Utc::from_unix_nano(unix_nano).rfc3339(9)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: moments around leap days, turns of years and the ends of the range are written as the calendar has
    /// them.
    #[test]
    fn moments() {
        for (unix_nano, text) in [
            (0, "1970-01-01T00:00:00.000000000Z"),
            (951_782_400_000_000_000, "2000-02-29T00:00:00.000000000Z"),
            (951_868_800_000_000_000, "2000-03-01T00:00:00.000000000Z"),
            (1_767_225_599_999_999_999, "2025-12-31T23:59:59.999999999Z"),
            (1_767_225_600_000_000_000, "2026-01-01T00:00:00.000000000Z"),
            (1_709_210_096_123_000_000, "2024-02-29T12:34:56.123000000Z"),
            (u64::MAX, "2554-07-21T23:34:33.709551615Z"),
        ] {
            assert_eq!(rfc3339(unix_nano), text);
        }
    }
}

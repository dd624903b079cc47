//! Moments as text.

/// A moment in nanoseconds since the Unix epoch, in the form of RFC 3339 with nanoseconds, UTC: ISO 8601, as
/// `process.creation.time` wants it (opentelemetry semantic conventions, registry).
pub(super) fn rfc3339(unix_nano: u64) -> String {
    let (seconds, nanos) = (unix_nano / 1_000_000_000, unix_nano % 1_000_000_000);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{nanos:09}Z")
}

/// The date this many days after 1970-01-01. It counts from March, so that the leap day is at the end of a year.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (year, next) = (year + era * 400, month >= 10);
    let month_of_year = if next { month - 9 } else { month + 3 };
    (year + u64::from(next), month_of_year, day - (153 * month + 2) / 5 + 1)
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

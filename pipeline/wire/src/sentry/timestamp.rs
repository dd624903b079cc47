//! Times in the formats of Sentry's clients.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error, Visitor};
use time::format_description::well_known::Rfc3339;
use time::{OffsetDateTime, UtcDateTime};

/// A time before 2262, in nanoseconds since the Unix epoch. Parsed from RFC 3339, with or without a zone (then UTC), or
/// from a number of seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timestamp(pub u64);

impl Timestamp {
    fn of_seconds(seconds: f64) -> Option<Self> {
        let nanos = (seconds * 1e9).round();
        (0.0..i64::MAX as f64).contains(&nanos).then_some(Self(nanos as u64))
    }

    /// Parses RFC 3339 section 5.6, where a space may replace the `T`.
    pub fn parse(text: &str) -> Option<Self> {
        if !matches!(text.as_bytes().get(10), Some(b'T' | b't' | b' ')) {
            return None;
        }
        let has_zone = text.get(11..)?.contains(['Z', 'z', '+', '-']);
        let zoned = if has_zone { Cow::Borrowed(text) } else { Cow::Owned(format!("{text}Z")) };
        let time = OffsetDateTime::parse(&zoned, &Rfc3339).ok()?;
        // The parser returns the nanosecond before a leap second (second 60).
        let leap = i128::from(text.get(17..19) == Some("60"));
        let nanos = u64::try_from(time.unix_timestamp_nanos() + leap).ok()?;
        (nanos < i64::MAX as u64).then_some(Self(nanos))
    }

    /// Formats as RFC 3339 in UTC, with this many digits of the second's fraction (at most nine); the rest is
    /// truncated.
    pub fn rfc3339(self, digits: usize) -> String {
        let time = UtcDateTime::UNIX_EPOCH + Duration::from_nanos(self.0);
        let (hour, minute, second, nano) = time.as_hms_nano();
        let fraction = format!("{nano:09}");
        format!("{}T{hour:02}:{minute:02}:{second:02}.{}Z", time.date(), &fraction[..digits.min(9)])
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TimestampVisitor;
        impl Visitor<'_> for TimestampVisitor {
            type Value = Timestamp;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a time in RFC 3339, or seconds since 1970")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Timestamp, E> {
                Timestamp::parse(text).ok_or_else(|| E::custom("invalid value: not a time in RFC 3339"))
            }

            fn visit_f64<E: Error>(self, seconds: f64) -> Result<Timestamp, E> {
                Timestamp::of_seconds(seconds)
                    .ok_or_else(|| E::custom("invalid value: not a time between 1970 and 2262"))
            }

            fn visit_u64<E: Error>(self, seconds: u64) -> Result<Timestamp, E> {
                self.visit_f64(seconds as f64)
            }
        }
        deserializer.deserialize_any(TimestampVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantees: times are parsed with and without a zone and with any fraction; invalid times are rejected.
    /// rule: profiles-sdk#v1-timestamp
    #[test]
    fn times() {
        let start = 1_795_228_720_136_000_000;
        for (text, nanos) in [
            ("2026-11-21T02:38:40.136Z", start),
            ("2026-11-21T02:38:40.136", start),
            ("2026-11-21 02:38:40.136000+00:00", start),
            ("2026-11-21t04:08:40.136+01:30", start),
            ("2026-11-20T21:38:40.136-05:00", start),
            ("2026-11-21T02:38:40.1360000019z", start + 1),
            ("1970-01-01T00:00:00", 0),
            ("2000-02-29T00:00:00Z", 951_782_400_000_000_000),
            ("2016-12-31T23:59:60Z", 1_483_228_800_000_000_000),
            ("2262-01-01T00:00:00Z", 9_214_646_400_000_000_000),
        ] {
            assert_eq!(Timestamp::parse(text), Some(Timestamp(nanos)), "{text}");
        }
        for text in [
            "",
            "2026-11-21",
            "2026-11-21T02:38",
            "2026-11-21T02:38:40.",
            "2026-11-21T02:38:40+0100",
            "2026-02-29T00:00:00Z",
            "1969-12-31T23:59:59Z",
            "2263-01-01T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-00-01T00:00:00Z",
            "2026-1-021T00:00:00Z",
            "2026-11-21T24:00:00Z",
            "+026-11-21T02:38:40Z",
            "2026-11-21T02:38:40é",
            "é026-11-21T02:38:40",
            "2026-11-21T02:38:40+99:00",
        ] {
            assert_eq!(Timestamp::parse(text), None, "{text}");
        }
    }

    /// Guarantees: numbers of seconds are accepted, with or without a fraction.
    #[test]
    fn seconds() {
        let read = |json: &str| serde_json::from_str::<Timestamp>(json).ok().map(|time| time.0);
        assert_eq!(read("1795228720.5"), Some(1_795_228_720_500_000_000));
        assert_eq!(read("1795228720"), Some(1_795_228_720_000_000_000));
        assert_eq!([read("-1"), read("1e300"), read("null"), read("true")], [None; 4]);
    }

    /// Guarantees: times around leap days, turns of years and the limits of the range are formatted correctly.
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
            assert_eq!(Timestamp(unix_nano).rfc3339(9), text);
        }
    }
}

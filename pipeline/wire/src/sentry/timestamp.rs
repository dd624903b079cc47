//! Times as Sentry's clients write them.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, Visitor};

/// A time, in nanoseconds since the Unix epoch: RFC 3339, with or without a zone (then UTC), or a number of seconds.
/// Before 2262.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timestamp(pub u64);

impl Timestamp {
    fn of_seconds(seconds: f64) -> Option<Self> {
        let nanos = (seconds * 1e9).round();
        (0.0..i64::MAX as f64).contains(&nanos).then_some(Self(nanos as u64))
    }

    /// Reads RFC 3339 section 5.6, with its note that a space may stand for the `T`.
    pub fn parse(text: &str) -> Option<Self> {
        let (date, rest) = (text.get(..10)?, text.get(11..)?);
        if !matches!(text.as_bytes()[10], b'T' | b't' | b' ') {
            return None;
        }
        let (year, month, day) = three(date, b'-', [4, 2, 2])?;
        let (time, rest) = (rest.get(..8)?, &rest[8..]);
        let (hour, minute, second) = three(time, b':', [2, 2, 2])?;
        let (nanos, zone) = match rest.strip_prefix('.') {
            Some(digits) => {
                let end = digits.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(digits.len());
                (fraction(&digits[..end])?, &digits[end..])
            }
            None => (0, rest),
        };
        let east = match zone.as_bytes() {
            [] | [b'Z' | b'z'] => 0,
            [sign @ (b'+' | b'-'), _, _, b':', _, _] => {
                let (hours, minutes) = (number(&zone[1..3])?, number(&zone[4..6])?);
                if hours > 23 || minutes > 59 {
                    return None;
                }
                let east = (hours * 60 + minutes) * 60;
                if *sign == b'-' { -east } else { east }
            }
            _ => return None,
        };
        // A leap second is written as the 61st.
        if !(1..=12).contains(&month)
            || day < 1
            || day > days_of(year, month)
            || hour > 23
            || minute > 59
            || second > 60
        {
            return None;
        }
        let seconds = days_since_1970(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second - east;
        let nanos = u64::try_from(seconds).ok()?.checked_mul(1_000_000_000)?.checked_add(nanos)?;
        (nanos < i64::MAX as u64).then_some(Self(nanos))
    }
}

/// Three numbers of so many digits each, with separators between them.
fn three(text: &str, separator: u8, digits: [usize; 3]) -> Option<(i64, i64, i64)> {
    let (second, third) = (digits[0] + 1, digits[0] + digits[1] + 2);
    let bytes = text.as_bytes();
    if bytes.get(digits[0]) != Some(&separator) || bytes.get(third - 1) != Some(&separator) {
        return None;
    }
    Some((number(text.get(..digits[0])?)?, number(text.get(second..third - 1)?)?, number(text.get(third..)?)?))
}

fn number(digits: &str) -> Option<i64> {
    if digits.bytes().all(|digit| digit.is_ascii_digit()) { digits.parse().ok() } else { None }
}

/// The nanoseconds that digits behind the point stand for. What is smaller than one is cut off.
fn fraction(digits: &str) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    let nine = digits.bytes().chain(std::iter::repeat(b'0')).take(9);
    Some(nine.fold(0, |nanos, digit| nanos * 10 + u64::from(digit - b'0')))
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_of(year: i64, month: i64) -> i64 {
    match month {
        2 => 28 + i64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let leaps = |year: i64| year / 4 - year / 100 + year / 400;
    let years = (year - 1970) * 365 + leaps(year - 1) - leaps(1969);
    years + (1..month).map(|month| days_of(year, month)).sum::<i64>() + day - 1
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

    /// Guarantees: times are read with and without a zone, with any fraction, and what is no time is none.
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

    /// Guarantees: seconds are read as numbers, whole or not.
    #[test]
    fn seconds() {
        let read = |json: &str| serde_json::from_str::<Timestamp>(json).ok().map(|time| time.0);
        assert_eq!(read("1795228720.5"), Some(1_795_228_720_500_000_000));
        assert_eq!(read("1795228720"), Some(1_795_228_720_000_000_000));
        assert_eq!([read("-1"), read("1e300"), read("null"), read("true")], [None; 4]);
    }
}

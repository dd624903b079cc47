//! Durations as text with units, as in the Collector: `500ms`, `1m30s`.

use std::fmt;
use std::time;

use serde::de::{Deserialize, Deserializer};

use super::from_text::from_text;

/// A length of time, written with units (`ns`, `us`, `ms`, `s`, `m`, `h`). Several units can be combined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(time::Duration);

/// The longest accepted duration: 100 years. It cannot overflow when added to a clock.
const MAX: time::Duration = time::Duration::from_secs(100 * 366 * 24 * 3600);

/// The units and their lengths in nanoseconds.
const UNITS: &[(&str, u64)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

impl Duration {
    /// Zero.
    pub const ZERO: Self = Self(time::Duration::ZERO);

    /// A duration in seconds.
    #[must_use]
    pub const fn from_secs(seconds: u64) -> Self {
        Self(time::Duration::from_secs(seconds))
    }

    /// A duration in milliseconds.
    #[must_use]
    pub const fn from_millis(milliseconds: u64) -> Self {
        Self(time::Duration::from_millis(milliseconds))
    }

    /// The duration as a standard library type.
    #[must_use]
    pub const fn get(self) -> time::Duration {
        self.0
    }

    /// The duration in nanoseconds, the unit of all timestamps; saturates after 584 years.
    #[must_use]
    pub fn nanos(self) -> u64 {
        crate::clock::nanos(self.0)
    }

    /// Whether the duration is zero.
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.0.is_zero()
    }
}

impl From<time::Duration> for Duration {
    fn from(value: time::Duration) -> Self {
        Self(value)
    }
}

impl From<Duration> for time::Duration {
    fn from(value: Duration) -> Self {
        value.0
    }
}

/// Why a text is not a duration. In the message, the text after `; ` is the hint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadDuration {
    /// The text is a number without a unit.
    #[error("a duration needs a unit; write `{0}s` for seconds or `{0}ms` for milliseconds")]
    NoUnit(u64),
    /// The text is not a duration for another reason.
    #[error("this is not a duration; write a number and a unit, such as `500ms`, `5s` or `1m30s`")]
    Syntax,
    /// The duration is negative.
    #[error("a duration cannot be negative; write `0s` for none")]
    Negative,
    /// The duration is longer than 100 years.
    #[error("the duration is too long; at most 100 years")]
    TooLong,
}

impl std::str::FromStr for Duration {
    type Err = BadDuration;

    fn from_str(text: &str) -> Result<Self, BadDuration> {
        let mut rest = text.trim();
        if rest.starts_with('-') {
            return Err(BadDuration::Negative);
        }
        if let Ok(number) = rest.parse::<u64>() {
            // A zero would be unambiguous without a unit, but a unit is required as for every other number.
            return Err(BadDuration::NoUnit(number));
        }
        if rest.is_empty() {
            return Err(BadDuration::Syntax);
        }
        let mut sum = time::Duration::ZERO;
        while !rest.is_empty() {
            let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or(BadDuration::Syntax)?;
            let (number, tail) = rest.split_at(end);
            let end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
            let (unit, tail) = tail.split_at(end);
            let nanos = UNITS.iter().find(|(name, _)| *name == unit.trim()).ok_or(BadDuration::Syntax)?.1;
            sum = sum.checked_add(part(number, nanos)?).ok_or(BadDuration::TooLong)?;
            rest = tail;
        }
        if sum > MAX { Err(BadDuration::TooLong) } else { Ok(Self(sum)) }
    }
}

fn part(number: &str, nanos: u64) -> Result<time::Duration, BadDuration> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || whole.len() > 19 || fraction.contains('.') || (number.contains('.') && fraction.is_empty()) {
        return Err(if whole.len() > 19 { BadDuration::TooLong } else { BadDuration::Syntax });
    }
    let whole: u128 = whole.parse().map_err(|_| BadDuration::Syntax)?;
    let mut total = whole * u128::from(nanos);
    let mut scale = u128::from(nanos);
    for digit in fraction.bytes() {
        scale /= 10;
        total += u128::from(digit - b'0') * scale;
    }
    u64::try_from(total).map(time::Duration::from_nanos).map_err(|_| BadDuration::TooLong)
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut nanos = self.0.as_nanos();
        if nanos == 0 {
            return f.write_str("0s");
        }
        for (unit, size) in [("h", 3_600_000_000_000), ("m", 60_000_000_000), ("s", 1_000_000_000), ("ms", 1_000_000)] {
            let count = nanos / size;
            nanos %= size;
            if count > 0 {
                write!(f, "{count}{unit}")?;
            }
        }
        let (micros, nanos) = (nanos / 1_000, nanos % 1_000);
        if micros > 0 {
            write!(f, "{micros}us")?;
        }
        if nanos > 0 { write!(f, "{nanos}ns") } else { Ok(()) }
    }
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(deserializer, "a duration such as `500ms` or `1m30s`")
    }
}

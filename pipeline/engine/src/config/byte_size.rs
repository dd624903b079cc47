//! Sizes in bytes: `64MiB`, `10MB`, or a plain number.

use std::fmt;

use serde::de::{Deserialize, Deserializer};

use super::from_text::from_text;

/// A number of bytes. Written as an integer, or with a unit: `kB`, `MB`, `GB` (powers of 1000), `KiB`, `MiB`, `GiB`
/// (powers of 1024).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(u64);

/// Units in lower case, and how many bytes they have.
const UNITS: &[(&str, u64)] = &[
    ("gib", 1 << 30),
    ("mib", 1 << 20),
    ("kib", 1 << 10),
    ("gb", 1_000_000_000),
    ("mb", 1_000_000),
    ("kb", 1_000),
    ("b", 1),
];

impl ByteSize {
    /// A size of `bytes` bytes.
    #[must_use]
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    /// A size of `mib` MiB (1,048,576 bytes each).
    #[must_use]
    pub const fn from_mib(mib: u32) -> Self {
        Self((mib as u64) << 20)
    }

    /// The number of bytes.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The number of bytes as a length in memory; saturates.
    #[must_use]
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

/// Why a text is not a size. In the message, the text after `; ` is the hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadByteSize {
    /// The text has no number, or an unknown unit.
    #[error("this is not a size; write a whole number of bytes, or one with a unit, such as `64MiB` or `10MB`")]
    Syntax,
    /// The size does not fit into 64 bits.
    #[error("the size is too large; at most 16777215GiB")]
    TooLarge,
}

/// The largest size. It leaves room for sums of sizes.
const MAX: u64 = (1 << 54) - 1;

impl std::str::FromStr for ByteSize {
    type Err = BadByteSize;

    fn from_str(text: &str) -> Result<Self, BadByteSize> {
        let lower = text.trim().to_lowercase();
        let found = UNITS.iter().find_map(|(unit, size)| lower.strip_suffix(unit).map(|number| (number, *size)));
        let (number, size) = found.unwrap_or((lower.as_str(), 1));
        let number = number.trim_end();
        if number.is_empty() || !number.bytes().all(|b| b.is_ascii_digit()) {
            return Err(BadByteSize::Syntax);
        }
        let number: u64 = number.parse().map_err(|_| BadByteSize::TooLarge)?;
        number.checked_mul(size).filter(|bytes| *bytes <= MAX).map(Self).ok_or(BadByteSize::TooLarge)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, size) in [("GiB", 1_u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
            if self.0 >= size && self.0.is_multiple_of(size) {
                return write!(f, "{}{unit}", self.0 / size);
            }
        }
        write!(f, "{}", self.0)
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(deserializer, "a size in bytes such as `64MiB` or `10MB`")
    }
}

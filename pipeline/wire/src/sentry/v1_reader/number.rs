//! Numbers in the formats of SDKs.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, Visitor};

/// A non-negative integer: a number without a fraction, or a string with one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Whole(pub(super) u64);

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct WholeVisitor;
        impl Visitor<'_> for WholeVisitor {
            type Value = Whole;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number, or a string that holds one")
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Whole, E> {
                Ok(Whole(number))
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<Whole, E> {
                // Above 2^53 a double never has a fraction, so such a number is not reliable.
                if (0.0..9.1e15).contains(&number) && number.fract() == 0.0 {
                    return Ok(Whole(number as u64));
                }
                Err(E::custom("invalid value: not a whole number"))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Whole, E> {
                text.parse().map(Whole).map_err(|_| E::custom("invalid value: not a whole number"))
            }
        }
        deserializer.deserialize_any(WholeVisitor)
    }
}

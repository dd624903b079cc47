//! Trace and span ids as in W3C Trace Context and OTLP: bytes, never all zero.

use std::fmt;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident($len:literal);)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name([u8; $len]);

        impl $name {
            /// An id of these bytes; `None` if their number is wrong, or if they are all zero, which means no id (W3C
            /// Trace Context, sections 3.2.2.3 and 3.2.2.4).
            pub fn new(bytes: &[u8]) -> Option<Self> {
                let bytes: [u8; $len] = bytes.try_into().ok()?;
                (bytes != [0; $len]).then_some(Self(bytes))
            }

            /// Parses hexadecimal digits of any case, as in JSON. Hyphens, as in a UUID, are skipped.
            pub fn parse(text: &str) -> Option<Self> {
                let mut bytes = [0; $len];
                let mut digits = text.bytes().filter(|byte| *byte != b'-').map(|byte| (byte as char).to_digit(16));
                for byte in &mut bytes {
                    *byte = (digits.next()?? << 4 | digits.next()??) as u8;
                }
                if digits.next().is_some() {
                    return None;
                }
                Self::new(&bytes)
            }

            /// The bytes of the id.
            pub const fn bytes(&self) -> &[u8; $len] {
                &self.0
            }
        }

        impl fmt::Display for $name {
            /// Writes lower-case hexadecimal digits.
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    )*};
}

ids! {
    /// The id of a trace.
    TraceId(16);
    /// The id of a span.
    SpanId(8);
}

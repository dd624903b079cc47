//! Attribute values as literals.

/// A value that the builder converts into a [`Value`](crate::Value), whose strings are in the tables.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Any<'a> {
    /// No value.
    #[default]
    Empty,
    /// A string.
    Str(&'a str),
    /// A boolean.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A floating-point number.
    Double(f64),
    /// Bytes.
    Bytes(&'a [u8]),
    /// An array.
    Array(&'a [Any<'a>]),
    /// A list of keys and values.
    KeyValueList(&'a [(&'a str, Any<'a>)]),
}

impl<'a> From<&'a str> for Any<'a> {
    fn from(value: &'a str) -> Self {
        Self::Str(value)
    }
}

impl<'a> From<&'a String> for Any<'a> {
    fn from(value: &'a String) -> Self {
        Self::Str(value)
    }
}

impl From<i64> for Any<'_> {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<bool> for Any<'_> {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<f64> for Any<'_> {
    fn from(value: f64) -> Self {
        Self::Double(value)
    }
}

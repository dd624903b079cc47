//! The value of a span's attribute, reduced to scalars, which decisions can depend on.

use std::borrow::Cow;

use crate::otlp::traces::AnyValue;

/// A scalar value.
#[derive(Debug, Clone, PartialEq)]
pub enum SpanValue<'a> {
    /// Text.
    Text(Cow<'a, str>),
    /// A boolean.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A floating-point number.
    Double(f64),
}

impl<'a> From<&'a str> for SpanValue<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }
}

impl<'a> SpanValue<'a> {
    pub(super) fn of_otlp(value: AnyValue<'a>) -> Option<Self> {
        match value {
            AnyValue::Text(text) => Some(Self::from(text)),
            AnyValue::Bool(value) => Some(Self::Bool(value)),
            AnyValue::Int(value) => Some(Self::Int(value)),
            AnyValue::Double(value) => Some(Self::Double(value)),
            AnyValue::Empty | AnyValue::Bytes(_) | AnyValue::Array(_) | AnyValue::KeyValueList(_) => None,
        }
    }

    /// The text, if the value is text.
    pub fn into_text(self) -> Option<String> {
        match self {
            Self::Text(text) => Some(text.into_owned()),
            _ => None,
        }
    }

    /// The value as text: numbers in decimal digits, `true` and `false`.
    pub fn to_text(&self) -> Cow<'_, str> {
        match self {
            Self::Text(text) => Cow::Borrowed(text),
            Self::Bool(value) => Cow::Borrowed(if *value { "true" } else { "false" }),
            Self::Int(value) => Cow::Owned(value.to_string()),
            Self::Double(value) => Cow::Owned(value.to_string()),
        }
    }

    /// The number, if the value is one or a text that parses as one. May be NaN or infinite.
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Text(text) => text.parse().ok(),
            Self::Bool(_) => None,
            Self::Int(value) => Some(*value as f64),
            Self::Double(value) => Some(*value),
        }
    }

    /// The boolean, if the value is one or a text that parses as one.
    pub fn bool(&self) -> Option<bool> {
        match self {
            Self::Bool(value) => Some(*value),
            Self::Text(text) => text.parse().ok(),
            Self::Int(_) | Self::Double(_) => None,
        }
    }
}

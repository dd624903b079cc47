//! The errors of deserializing a section. They contain no values of the configuration.

use std::fmt::Display;

use serde::de::{self, Expected, Unexpected};

/// An error and the path below the section's root where it occurred.
#[derive(Debug)]
pub(super) struct DeError {
    pub(super) path: Option<Vec<String>>,
    pub(super) kind: DeKind,
}

/// The kinds of errors.
#[derive(Debug)]
pub(super) enum DeKind {
    UnknownKey {
        key: String,
        valid: &'static [&'static str],
    },
    UnknownVariant {
        valid: &'static [&'static str],
    },
    Missing {
        key: &'static str,
    },
    /// The value has the wrong type or is out of range; `found` is the type that serde saw.
    Mismatch {
        found: &'static str,
        expected: String,
        hint: Option<Hint>,
    },
    /// The value is invalid, and was reported while its source was read.
    Broken {
        message: String,
        hint: String,
    },
    Custom(String),
}

/// Advice about a value of the wrong type.
#[derive(Debug)]
pub(super) enum Hint {
    /// A hint that does not quote the value.
    Fixed(&'static str),
    /// Quotes the value, which may be a secret.
    Quoting(String),
}

impl DeError {
    /// An error about the current value.
    pub(super) fn new(kind: DeKind) -> Self {
        Self { path: None, kind }
    }

    /// Adds the path to the error, unless it has one already.
    pub(super) fn at(mut self, path: &[String]) -> Self {
        self.path.get_or_insert_with(|| path.to_vec());
        self
    }
}

impl Display for DeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.kind {
            DeKind::UnknownKey { .. } => f.write_str("unknown key"),
            DeKind::UnknownVariant { .. } => f.write_str("unknown value"),
            DeKind::Missing { key } => write!(f, "missing key `{key}`"),
            DeKind::Mismatch { expected, .. } => write!(f, "expected {expected}"),
            DeKind::Broken { message, .. } => f.write_str(message),
            DeKind::Custom(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for DeError {}

fn kind_of(found: &Unexpected<'_>) -> &'static str {
    match found {
        Unexpected::Bool(_) => "a boolean",
        Unexpected::Unsigned(_) | Unexpected::Signed(_) | Unexpected::Float(_) => "a number",
        Unexpected::Seq => "a list",
        Unexpected::Map | Unexpected::Enum | Unexpected::NewtypeStruct => "a map",
        Unexpected::Unit | Unexpected::Option => "nothing",
        _ => "text",
    }
}

impl de::Error for DeError {
    fn custom<T: Display>(message: T) -> Self {
        Self::new(DeKind::Custom(message.to_string()))
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::new(DeKind::Mismatch { found: kind_of(&found), expected: expected.to_string(), hint: None })
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_type(found, expected)
    }

    fn invalid_length(length: usize, expected: &dyn Expected) -> Self {
        let message = format!("expected {expected}, found {length} items");
        Self::new(DeKind::Custom(message))
    }

    fn unknown_variant(_: &str, valid: &'static [&'static str]) -> Self {
        Self::new(DeKind::UnknownVariant { valid })
    }

    fn unknown_field(key: &str, valid: &'static [&'static str]) -> Self {
        Self::new(DeKind::UnknownKey { key: key.to_owned(), valid })
    }

    fn missing_field(key: &'static str) -> Self {
        Self::new(DeKind::Missing { key })
    }

    fn duplicate_field(key: &'static str) -> Self {
        Self::new(DeKind::Custom(format!("`{key}` is given twice, under two names")))
    }
}

/// Describes the expected type in YAML's terms instead of Rust's.
pub(super) fn expected_words(expected: &str) -> String {
    let words = match expected {
        "a boolean" | "bool" => "`true` or `false`",
        "a string" | "string" | "str" | "a borrowed string" => "text",
        "a sequence" | "seq" => "a list",
        "a map" | "map" => "a map",
        "unit" => "nothing",
        "char" | "a character" => "a single character",
        "u8" => "an integer from 0 to 255",
        "u16" => "an integer from 0 to 65535",
        "u32" => "an integer from 0 to 4294967295",
        "u64" | "usize" => "an integer, 0 or more",
        "i8" | "i16" | "i32" | "i64" | "isize" => "an integer",
        "f32" | "f64" => "a number",
        "a nonzero u8" | "a nonzero u16" | "a nonzero u32" | "a nonzero u64" | "a nonzero usize" => {
            "an integer, 1 or more"
        }
        other if other.starts_with("struct ") || other.starts_with("internally tagged enum ") => "a map of settings",
        other if other.starts_with("enum ") => "one word out of a list",
        other if other.starts_with("tuple ") => "a list",
        other => other,
    };
    words.to_owned()
}

//! Converts a JSON value to an OTLP one.

use serde_json::Value;

use crate::otlp::traces::write::{KeyValues, any_array, any_bool, any_double, any_int, any_key_values, any_text};

/// Maximum nesting of lists and objects before they become text. OTLP readers have their own limits, ours 16.
const MAX_DEPTH: usize = 8;

/// Converts a value to an `AnyValue`. Integers beyond signed 64 bits and values that nest too deep become text
/// (OpenTelemetry specification, "Mapping Arbitrary Data to OTLP AnyValue").
pub(super) fn any(value: &Value) -> Vec<u8> {
    at(value, 0)
}

fn at(value: &Value, depth: usize) -> Vec<u8> {
    match value {
        Value::Null => Vec::new(),
        Value::Bool(is_true) => any_bool(*is_true),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(number), _) => any_int(number),
            (None, Some(double)) if number.is_f64() => any_double(double),
            _ => any_text(&number.to_string()),
        },
        Value::String(text) => any_text(text),
        Value::Array(_) | Value::Object(_) if depth == MAX_DEPTH => any_text(&value.to_string()),
        Value::Array(values) => any_array(&values.iter().map(|value| at(value, depth + 1)).collect::<Vec<_>>()),
        Value::Object(members) => {
            let mut list = KeyValues::default();
            members.iter().for_each(|(key, value)| list.add(key, at(value, depth + 1)));
            any_key_values(&list)
        }
    }
}

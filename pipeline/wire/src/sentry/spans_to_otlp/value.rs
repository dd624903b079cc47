//! A value of JSON as one of OTLP.

use serde_json::Value;

use crate::otlp::traces::write::{KeyValues, any_array, any_bool, any_double, any_int, any_key_values, any_text};

/// How deep lists and objects may nest before they become text. OTLP's readers have limits of their own, ours 16.
const MAX_DEPTH: usize = 8;

/// A value as an `AnyValue`. Whole numbers beyond 64 bits with a sign, and what nests too deep, are text
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

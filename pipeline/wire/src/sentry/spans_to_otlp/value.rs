//! A value of JSON as one of OTLP, and back.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::otlp::traces::AnyValue;
use crate::otlp::traces::write::{KeyValues, any_array, any_bool, any_double, any_int, any_key_values, any_text};

/// How deep lists and objects may nest. OTLP's readers have limits of their own, ours 16.
const MAX_DEPTH: usize = 8;

/// A value as an `AnyValue` that [`json()`] makes the same value of. `None` where there is none: for `null`, whole
/// numbers beyond 64 bits with a sign, and what nests too deep.
pub(super) fn exact(value: &Value) -> Option<Vec<u8>> {
    if value.is_null() { None } else { any(value, 0) }
}

fn any(value: &Value, depth: usize) -> Option<Vec<u8>> {
    if depth > MAX_DEPTH {
        return None;
    }
    Some(match value {
        Value::Null => Vec::new(),
        Value::Bool(is_true) => any_bool(*is_true),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(number), _) => any_int(number),
            // As text it is another number, by the last digit, where the parser is not exact.
            (None, Some(double)) if number.is_f64() && reparsed(value) => any_double(double),
            _ => return None,
        },
        Value::String(text) => any_text(text),
        Value::Array(values) => {
            let values: Option<Vec<_>> = values.iter().map(|value| any(value, depth + 1)).collect();
            any_array(&values?)
        }
        Value::Object(members) => {
            let mut list = KeyValues::default();
            for (key, value) in members {
                list.add(key, any(value, depth + 1)?);
            }
            any_key_values(&list)
        }
    })
}

fn reparsed(value: &Value) -> bool {
    serde_json::from_str::<Value>(&value.to_string()).is_ok_and(|again| again == *value)
}

/// An `AnyValue` as JSON. What JSON has no word for is `null` (numbers that are none) or base64 (bytes), as in OTLP's
/// own JSON.
pub(in crate::sentry) fn json(value: AnyValue<'_>) -> Value {
    match value {
        AnyValue::Empty => Value::Null,
        AnyValue::Text(text) => text.into(),
        AnyValue::Bool(is_true) => is_true.into(),
        AnyValue::Int(number) => number.into(),
        AnyValue::Double(number) => number.into(),
        AnyValue::Bytes(bytes) => STANDARD.encode(bytes).into(),
        AnyValue::Array(values) => values.map(json).collect(),
        AnyValue::KeyValueList(members) => members.map(|(key, value)| (key.to_owned(), json(value))).collect(),
    }
}

/// A value as an attribute of a span of a container: with its type (getsentry/relay
/// `relay-event-schema/src/protocol/attributes.rs`).
pub(in crate::sentry) fn typed(value: &Value) -> Value {
    let kind = match value {
        Value::Null | Value::Object(_) => return json!({ "value": value }),
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "double",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
    };
    json!({ "value": value, "type": kind })
}

//! Short functions that create attributes of OTLP.

use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, KeyValue, KeyValueList};

pub(crate) fn value_of(value: Any) -> AnyValue {
    AnyValue { value: Some(value) }
}

pub(crate) fn text(text: &str) -> AnyValue {
    value_of(Any::StringValue(text.to_owned()))
}

pub(crate) fn int(number: i64) -> AnyValue {
    value_of(Any::IntValue(number))
}

pub(crate) fn list(values: Vec<AnyValue>) -> AnyValue {
    value_of(Any::ArrayValue(ArrayValue { values }))
}

pub(crate) fn map(values: Vec<KeyValue>) -> AnyValue {
    value_of(Any::KvlistValue(KeyValueList { values }))
}

pub(crate) fn pair(key: &str, value: AnyValue) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(value), ..KeyValue::default() }
}

/// Attributes whose values are texts.
pub(crate) fn texts(pairs: &[(&str, &str)]) -> Vec<KeyValue> {
    pairs.iter().map(|(key, value)| pair(key, text(value))).collect()
}

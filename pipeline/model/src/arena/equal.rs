//! When two attributes are the same: by value, recursively, floating-point numbers by their bits.
//!
//! Bits, because a NaN that is not equal to itself would be added again with every batch that brings it. Byte values
//! are interned, so that equal places are equal bytes.

use std::hash::{Hash, Hasher};

use crate::dictionary::{Attribute, Value};

/// Whether two attributes of one arena are the same.
pub(super) fn same_attribute(a: &Attribute, b: &Attribute) -> bool {
    a.key == b.key && a.unit == b.unit && same_value(&a.value, &b.value)
}

fn same_value(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Double(a), Value::Double(b)) => a.to_bits() == b.to_bits(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_value(a, b)),
        (Value::KeyValueList(a), Value::KeyValueList(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_attribute(a, b))
        }
        (a, b) => a == b,
    }
}

/// Hashes an attribute so that the same ones hash alike.
pub(super) fn hash_attribute(attribute: &Attribute, hasher: &mut impl Hasher) {
    (attribute.key, attribute.unit).hash(hasher);
    hash_value(&attribute.value, hasher);
}

fn hash_value(value: &Value, hasher: &mut impl Hasher) {
    std::mem::discriminant(value).hash(hasher);
    match value {
        Value::Empty => {}
        Value::String(id) => id.hash(hasher),
        Value::Bool(value) => value.hash(hasher),
        Value::Int(value) => value.hash(hasher),
        Value::Double(value) => value.to_bits().hash(hasher),
        Value::Bytes(span) => span.hash(hasher),
        Value::Array(values) => {
            values.len().hash(hasher);
            values.iter().for_each(|value| hash_value(value, hasher));
        }
        Value::KeyValueList(list) => {
            list.len().hash(hasher);
            list.iter().for_each(|item| hash_attribute(item, hasher));
        }
    }
}

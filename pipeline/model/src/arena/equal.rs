//! Equality of attributes: by value, recursively, floating-point numbers by their bits.
//!
//! Numbers are compared by their bits, because a NaN that is not equal to itself would be added again with every batch
//! that contains it. Byte values are interned, so equal bytes have equal ranges.

use std::hash::{Hash, Hasher};

use crate::dictionary::{Attribute, Value};

/// An attribute that is compared and hashed by value.
#[derive(Clone, Copy)]
pub(super) struct ByValue<'a>(pub(super) &'a Attribute);

impl PartialEq for ByValue<'_> {
    fn eq(&self, other: &Self) -> bool {
        let Attribute { key, value, unit } = self.0;
        (key, unit) == (&other.0.key, &other.0.unit) && same_value(value, &other.0.value)
    }
}

impl Hash for ByValue<'_> {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let Attribute { key, value, unit } = self.0;
        (key, unit).hash(hasher);
        hash_value(value, hasher);
    }
}

fn same_value(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Double(a), Value::Double(b)) => a.to_bits() == b.to_bits(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_value(a, b)),
        (Value::KeyValueList(a), Value::KeyValueList(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| ByValue(a) == ByValue(b))
        }
        (a, b) => a == b,
    }
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
            list.iter().for_each(|item| ByValue(item).hash(hasher));
        }
    }
}

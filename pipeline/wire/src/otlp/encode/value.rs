//! Encodes `AnyValue`, `KeyValue` and `KeyValueAndUnit`.

use profbridge_model::{Attribute, StringId, Value};

use super::RequestEncoder;
use super::put::{FieldSink, bytes, encoded, int, message};

impl RequestEncoder<'_> {
    /// The index of a string, if it may be written as a reference.
    fn reference(&self, id: Option<StringId>) -> Option<u64> {
        let index = StringId::wire(id);
        (self.options.references && id.is_some() && (index as usize) < self.strings).then_some(u64::from(index))
    }

    /// Writes the content of an `AnyValue`.
    fn value(&self, out: &mut impl FieldSink, value: &Value) {
        match value {
            Value::Empty => {}
            Value::String(id) => match self.reference(*id) {
                Some(index) => int(out, 0x40, index),
                None => encoded(out, 0x0a, self.dictionary.string_bytes(*id)),
            },
            Value::Bool(flag) => out.raw(&[0x10, u8::from(*flag)]),
            // Zero is written too, because the field determines the value's type.
            Value::Int(number) => {
                out.raw(&[0x18]);
                out.varint(*number as u64);
            }
            Value::Double(number) => {
                out.raw(&[0x21]);
                out.raw(&number.to_bits().to_le_bytes());
            }
            Value::Bytes(span) => encoded(out, 0x3a, self.dictionary.bytes(*span)),
            Value::Array(values) => message(out, 0x2a, |size| self.array(size, values), |out| self.array(out, values)),
            Value::KeyValueList(list) => {
                message(out, 0x32, |size| self.key_values(size, 0x0a, list), |out| self.key_values(out, 0x0a, list));
            }
        }
    }

    fn array(&self, out: &mut impl FieldSink, values: &[Value]) {
        for value in values {
            message(out, 0x0a, |size| self.value(size, value), |out| self.value(out, value));
        }
    }

    /// Writes a `value` field, unless it is not set.
    fn value_field(&self, out: &mut impl FieldSink, value: &Value) {
        if *value != Value::Empty {
            message(out, 0x12, |size| self.value(size, value), |out| self.value(out, value));
        }
    }

    /// Writes `KeyValue`s as fields.
    pub(super) fn key_values(&self, out: &mut impl FieldSink, field: u8, attributes: &[Attribute]) {
        for attribute in attributes {
            message(out, field, |size| self.key_value(size, attribute), |out| self.key_value(out, attribute));
        }
    }

    fn key_value(&self, out: &mut impl FieldSink, attribute: &Attribute) {
        let reference = self.reference(attribute.key);
        if reference.is_none() {
            bytes(out, 0x0a, self.dictionary.string_bytes(attribute.key));
        }
        self.value_field(out, &attribute.value);
        int(out, 0x18, reference.unwrap_or(0));
    }

    /// Writes the content of a `KeyValueAndUnit`.
    pub(super) fn key_value_and_unit(&self, out: &mut impl FieldSink, attribute: &Attribute) {
        int(out, 0x08, StringId::wire(attribute.key).into());
        self.value_field(out, &attribute.value);
        int(out, 0x18, StringId::wire(attribute.unit).into());
    }
}

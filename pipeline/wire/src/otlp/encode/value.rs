//! `AnyValue`, `KeyValue` and `KeyValueAndUnit`.

use profbridge_model::{Attribute, StringId, Value};

use super::Encoder;
use super::put::{bytes, bytes_size, head, int, int_size, message_size};

impl Encoder<'_> {
    /// The index of a string that may be written as a reference.
    fn reference(&self, id: Option<StringId>) -> Option<u64> {
        let index = StringId::wire(id);
        (self.options.references && id.is_some() && (index as usize) < self.strings).then_some(u64::from(index))
    }

    /// The size of an `AnyValue`'s contents.
    fn value_size(&self, value: &Value) -> usize {
        match value {
            Value::Empty => 0,
            Value::String(id) => match self.reference(*id) {
                Some(index) => int_size(index),
                None => message_size(self.dictionary.string_bytes(*id).len()),
            },
            Value::Bool(_) => 2,
            // Zero is written too: the field says which type the value has.
            Value::Int(number) => 1 + profbridge_model::varint::len(*number as u64),
            Value::Double(_) => 9,
            Value::Bytes(span) => message_size(span.len as usize),
            Value::Array(values) => message_size(self.array_size(values)),
            Value::KeyValueList(list) => message_size(self.list_size(list)),
        }
    }

    fn array_size(&self, values: &[Value]) -> usize {
        values.iter().map(|value| message_size(self.value_size(value))).sum()
    }

    fn list_size(&self, list: &[Attribute]) -> usize {
        list.iter().map(|attribute| message_size(self.key_value_size(attribute))).sum()
    }

    /// Writes an `AnyValue`'s contents.
    fn value(&self, out: &mut Vec<u8>, value: &Value) {
        match value {
            Value::Empty => {}
            Value::String(id) => match self.reference(*id) {
                Some(index) => int(out, 0x40, index),
                None => {
                    let text = self.dictionary.string_bytes(*id);
                    head(out, 0x0a, text.len());
                    out.extend_from_slice(text);
                }
            },
            Value::Bool(flag) => out.extend_from_slice(&[0x10, u8::from(*flag)]),
            Value::Int(number) => {
                out.push(0x18);
                profbridge_model::varint::put(out, *number as u64);
            }
            Value::Double(number) => {
                out.push(0x21);
                out.extend_from_slice(&number.to_bits().to_le_bytes());
            }
            Value::Bytes(span) => {
                head(out, 0x3a, span.len as usize);
                out.extend_from_slice(self.dictionary.bytes(*span));
            }
            Value::Array(values) => {
                head(out, 0x2a, self.array_size(values));
                for value in values {
                    head(out, 0x0a, self.value_size(value));
                    self.value(out, value);
                }
            }
            Value::KeyValueList(list) => {
                head(out, 0x32, self.list_size(list));
                for attribute in list {
                    self.key_value(out, 0x0a, attribute);
                }
            }
        }
    }

    /// The size of a `value` field; one that is not set is left out.
    fn value_field_size(&self, value: &Value) -> usize {
        if *value == Value::Empty { 0 } else { message_size(self.value_size(value)) }
    }

    fn value_field(&self, out: &mut Vec<u8>, value: &Value) {
        if *value != Value::Empty {
            head(out, 0x12, self.value_size(value));
            self.value(out, value);
        }
    }

    /// The size of a `KeyValue`'s contents.
    pub(super) fn key_value_size(&self, attribute: &Attribute) -> usize {
        let key = match self.reference(attribute.key) {
            Some(index) => int_size(index),
            None => bytes_size(self.dictionary.string_bytes(attribute.key).len()),
        };
        key + self.value_field_size(&attribute.value)
    }

    /// Writes a `KeyValue` as a field.
    pub(super) fn key_value(&self, out: &mut Vec<u8>, field: u8, attribute: &Attribute) {
        head(out, field, self.key_value_size(attribute));
        let reference = self.reference(attribute.key);
        if reference.is_none() {
            bytes(out, 0x0a, self.dictionary.string_bytes(attribute.key));
        }
        self.value_field(out, &attribute.value);
        int(out, 0x18, reference.unwrap_or(0));
    }

    /// The size of a `KeyValueAndUnit`'s contents.
    pub(super) fn key_value_and_unit_size(&self, attribute: &Attribute) -> usize {
        int_size(StringId::wire(attribute.key).into())
            + self.value_field_size(&attribute.value)
            + int_size(StringId::wire(attribute.unit).into())
    }

    /// Writes a `KeyValueAndUnit` as a field.
    pub(super) fn key_value_and_unit(&self, out: &mut Vec<u8>, field: u8, attribute: &Attribute) {
        head(out, field, self.key_value_and_unit_size(attribute));
        int(out, 0x08, StringId::wire(attribute.key).into());
        self.value_field(out, &attribute.value);
        int(out, 0x18, StringId::wire(attribute.unit).into());
    }
}

//! Decodes `AnyValue` and `KeyValue`.
//!
//! Protobuf merges repeated messages, which joins lists. A [`Draft`] is a value that can still grow, so joining costs
//! no more than reading.

use profbridge_model::{Attribute, ByteRange, Value};

use super::super::error::Result;
use super::super::reader::ProtobufReader;
use super::Decoder;

/// A value that is being read.
#[derive(Debug, Default)]
pub(super) enum Draft {
    #[default]
    Empty,
    Plain(Value),
    Array(Vec<Value>),
    KeyValueList(Vec<Attribute>),
}

impl Draft {
    pub(super) fn finish(self) -> Value {
        match self {
            Draft::Empty => Value::Empty,
            Draft::Plain(value) => value,
            Draft::Array(values) => Value::Array(values.into()),
            Draft::KeyValueList(list) => Value::KeyValueList(list.into()),
        }
    }
}

impl<'a> Decoder<'a> {
    /// Reads an `AnyValue` into a draft. If several kinds of value are set, the last one is used.
    pub(super) fn value(&mut self, mut reader: ProtobufReader<'a>, draft: &mut Draft, depth: u32) -> Result<()> {
        self.budget.value(depth)?;
        while let Some(key) = reader.key()? {
            match key {
                0x0a => {
                    let text = self.inline_string(reader.span()?)?;
                    *draft = Draft::Plain(Value::String(text));
                }
                0x10 => *draft = Draft::Plain(Value::Bool(reader.varint()? != 0)),
                0x18 => *draft = Draft::Plain(Value::Int(reader.varint()? as i64)),
                0x21 => *draft = Draft::Plain(Value::Double(f64::from_bits(reader.fixed64()?))),
                0x2a => {
                    if !matches!(draft, Draft::Array(_)) {
                        *draft = Draft::Array(Vec::new());
                    }
                    if let Draft::Array(values) = draft {
                        self.array(reader.message()?, values, depth)?;
                    }
                }
                0x32 => {
                    if !matches!(draft, Draft::KeyValueList(_)) {
                        *draft = Draft::KeyValueList(Vec::new());
                    }
                    if let Draft::KeyValueList(list) = draft {
                        self.key_value_list(reader.message()?, list, depth)?;
                    }
                }
                0x3a => *draft = Draft::Plain(Value::Bytes(reader.span()?)),
                0x40 => {
                    self.references = true;
                    let text = self.table_string(reader.varint()?, "value.string_value_strindex");
                    *draft = Draft::Plain(Value::String(text));
                }
                _ => self.other(&mut reader, key, 8)?,
            }
        }
        Ok(())
    }

    fn array(&mut self, mut reader: ProtobufReader<'a>, values: &mut Vec<Value>, depth: u32) -> Result<()> {
        while let Some(key) = reader.key()? {
            match key {
                0x0a => {
                    self.budget.charge::<Value>(1)?;
                    let mut draft = Draft::default();
                    self.value(reader.message()?, &mut draft, depth + 1)?;
                    values.push(draft.finish());
                }
                _ => self.other(&mut reader, key, 1)?,
            }
        }
        Ok(())
    }

    fn key_value_list(&mut self, mut reader: ProtobufReader<'a>, list: &mut Vec<Attribute>, depth: u32) -> Result<()> {
        while let Some(key) = reader.key()? {
            match key {
                0x0a => {
                    self.budget.charge::<Attribute>(1)?;
                    let attribute = self.key_value(reader.message()?, depth + 1)?;
                    list.push(attribute);
                }
                _ => self.other(&mut reader, key, 1)?,
            }
        }
        Ok(())
    }

    /// Reads a `KeyValue`. Its key is inline or refers to the string table, never both (opentelemetry-proto
    /// `common.proto`), so an inline key takes precedence.
    pub(super) fn key_value(&mut self, mut reader: ProtobufReader<'a>, depth: u32) -> Result<Attribute> {
        let mut inline = ByteRange::default();
        let mut index = 0;
        let mut draft = Draft::default();
        while let Some(key) = reader.key()? {
            match key {
                0x0a => inline = reader.span()?,
                0x12 => self.value(reader.message()?, &mut draft, depth)?,
                0x18 => {
                    index = reader.varint()?;
                    self.references |= index != 0;
                }
                _ => self.other(&mut reader, key, 3)?,
            }
        }
        let key = match self.inline_string(inline)? {
            None => self.table_string(index, "key_strindex"),
            inline => inline,
        };
        Ok(Attribute { key, value: draft.finish(), unit: None })
    }
}

/// Heap size of a value, in bytes.
pub(super) fn heap(value: &Value) -> usize {
    match value {
        Value::Array(values) => size_of_val(&**values) + values.iter().map(heap).sum::<usize>(),
        Value::KeyValueList(list) => {
            size_of_val(&**list) + list.iter().map(|attribute| heap(&attribute.value)).sum::<usize>()
        }
        _ => 0,
    }
}

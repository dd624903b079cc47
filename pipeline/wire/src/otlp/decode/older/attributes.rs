//! What used to be a field and is an attribute since, or has become a rule.

use profbridge_model::dictionary::Invalid;
use profbridge_model::{Attribute, AttributeId, StringId, Value, ValueType};

use super::super::super::error::Result;
use super::super::super::reader::Reader;
use super::super::Decoder;

/// `Profile.comment_strindices` (semantic-conventions `model/pprof`; opentelemetry-proto#729).
const COMMENT: &str = "pprof.profile.comment";

/// `AGGREGATION_TEMPORALITY_UNSPECIFIED` and `_DELTA`.
const DELTA: [u64; 2] = [0, 1];
const CUMULATIVE: u64 = 2;

impl<'a> Decoder<'a> {
    /// The id of a text that the request does not hold.
    pub(super) fn text(&mut self, text: &'static str) -> Result<Option<StringId>> {
        if let Some((_, known)) = self.older.texts.iter().find(|(known, _)| *known == text) {
            return Ok(*known);
        }
        self.budget.charge::<u8>(text.len())?;
        let place = self.spill.put(text.as_bytes());
        let id = self.inline_string(place)?;
        self.older.texts.push((text, id));
        Ok(id)
    }

    /// Appends an attribute that does not stand in the table.
    pub(super) fn add_attribute(&mut self, attribute: Attribute) -> Result<Option<AttributeId>> {
        self.budget.charge::<Attribute>(1)?;
        // Each takes two bytes of the request at least, of which there are fewer than 2^31.
        let id = AttributeId::new(self.tables.attributes.len() as u32);
        self.tables.attributes.push(attribute);
        Ok(id)
    }

    /// The attribute that says that this is so.
    pub(super) fn flag(&mut self, key: &'static str) -> Result<Option<AttributeId>> {
        if let Some((_, known)) = self.older.flags.iter().find(|(known, _)| *known == key) {
            return Ok(*known);
        }
        let name = self.text(key)?;
        let id = self.add_attribute(Attribute { key: name, value: Value::Bool(true), unit: None })?;
        self.older.flags.push((key, id));
        Ok(id)
    }

    /// Appends the comments of a profile, if there are any.
    pub(super) fn comments(&mut self, comments: Vec<Value>) -> Result<Option<AttributeId>> {
        if comments.is_empty() {
            return Ok(None);
        }
        let key = self.text(COMMENT)?;
        self.add_attribute(Attribute { key, value: Value::Array(comments.into()), unit: None })
    }

    /// Reads a `ValueType` that has a temporality. What is not the change since the last report is refused: it would be
    /// counted again with each report.
    pub(super) fn value_type_with_temporality(
        &mut self,
        mut reader: Reader<'a>,
        value_type: &mut ValueType,
        [kind, unit]: [&'static str; 2],
        fault: &mut Option<Invalid>,
    ) -> Result<()> {
        while let Some(key) = reader.key()? {
            match key {
                0x08 => value_type.kind = self.table_string(reader.varint()?, kind),
                0x10 => value_type.unit = self.table_string(reader.varint()?, unit),
                0x18 => {
                    let temporality = reader.varint()?;
                    if !DELTA.contains(&temporality) {
                        fault.get_or_insert(not_delta(temporality));
                    }
                }
                _ => self.other(&mut reader, key, 3)?,
            }
        }
        Ok(())
    }
}

#[cold]
pub(super) fn not_delta(temporality: u64) -> Invalid {
    let rule = match temporality {
        CUMULATIVE => "CUMULATIVE values are not read, only DELTA; let the profiler report changes".to_owned(),
        other => format!("{other} is no temporality"),
    };
    Invalid { place: "sample_type.aggregation_temporality".to_owned(), rule }
}
